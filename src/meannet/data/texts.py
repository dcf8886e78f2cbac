"""Texts of one's own as C represents documents: log(1 + C) of the commonest words that are no stop words."""

import csv
import html
import numbers
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WORD = re.compile(r"[^\W\d_]{2,}")  # runs of letters, of any alphabet
LARGEST = 1 << 24  # bytes of a text file


@dataclass(frozen=True)
class Counts:
    """Documents as a net takes them, and the words that the columns stand for, commonest first."""

    inputs: Any  # SciPy's compressed rows (documents, words), float32: log(1 + C)
    words: tuple[str, ...]


def counts(
    texts: Iterable[str],
    n_words: int = 2000,
    *,
    words: Sequence[str] | None = None,
    stop_words: Collection[str] | None = None,
) -> Counts:
    """Count the `n_words` commonest words of the texts; or, for new texts, the `words` of those learned from.

    Stop words are scikit-learn's English ones where not given; an empty list keeps every word. Words are in lower case.
    """
    for name, several in (("texts", texts), ("words", words), ("stop_words", stop_words)):
        if isinstance(several, str):
            raise ValueError(f"{name} must be several, not one string; put it into a list")
    if isinstance(n_words, bool) or not isinstance(n_words, numbers.Integral) or n_words < 1:
        raise ValueError(f"n_words must be a whole number, 1 or more, not {n_words!r}")
    if words is not None and len(set(words)) < len(words):
        raise ValueError("words must differ from each other")
    listed, matrix = count_words(texts, words)
    if words is None:
        stop = stopped(_english() if stop_words is None else stop_words)
        totals = np.asarray(matrix.sum(axis=0)).ravel()
        kept = [k for k in np.argsort(-totals, kind="stable") if listed[k] not in stop][:n_words]
        if not kept:
            raise ValueError("the texts hold no words but stop words")
        listed, matrix = tuple(listed[k] for k in kept), matrix[:, kept]
    matrix = matrix.astype(np.float32)
    matrix.sort_indices()
    matrix.data = np.log1p(matrix.data)
    return Counts(matrix, tuple(listed))


def count_words(texts: Iterable[str], words: Sequence[str] | None = None) -> tuple[Sequence[str], Any]:
    """Every word, or those given, and how often each text has it; words found come in alphabetical order."""
    from scipy.sparse import csr_array

    place = {word: k for k, word in enumerate(words or ())}
    starts, columns, values = [0], [], []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {number} is no text but {type(text).__name__}")
        for word, n in Counter(WORD.findall(text.lower())).items():
            k = place.get(word) if words is not None else place.setdefault(word, len(place))
            if k is not None:
                columns.append(k)
                values.append(n)
        starts.append(len(columns))
    parts = np.array(values, np.int32), np.array(columns, np.int32), np.array(starts)
    matrix = csr_array(parts, shape=(len(starts) - 1, len(place)))
    if words is not None:
        return words, matrix
    listed = sorted(place)
    return listed, csr_array(matrix[:, [place[word] for word in listed]])


def read_folder(folder: str | Path) -> tuple[list[str], list[str]]:
    """Texts and labels from FOLDER/LABEL/*.txt, in alphabetical order."""
    found = sorted(Path(folder).glob("*/*.txt"))
    if not found:
        raise ValueError(f"there is no {Path(folder) / 'LABEL' / 'NAME.txt'}: each label is a folder of text files")
    return [_text(path) for path in found], [path.parent.name for path in found]


def read_csv(path: str | Path, text: str = "text", label: str = "label") -> tuple[list[str], list[str]]:
    """Texts and labels from two columns of a CSV file, named in its first line."""
    path, texts, labels, line = Path(path), [], [], 2  # the second line is the first of data
    usual = csv.field_size_limit(LARGEST)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream, strict=True)
            _check_columns(path, rows.fieldnames or (), (text, label))
            for row in rows:
                if None in row or None in row.values():
                    raise csv.Error("not as many columns as in the first line; a text with commas in it needs quotes")
                texts.append(row[text])
                labels.append(row[label])
                line = rows.line_num + 1
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{path}, line {_first_not_utf8(path)}: not in UTF-8; save the file in that encoding"
        ) from None
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: {error}") from None
    finally:
        csv.field_size_limit(usual)
    if not texts:
        raise ValueError(f"{path} has no texts")
    return texts, labels


def _check_columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    if not names:
        raise ValueError(f"{path} is empty")
    for name in wanted:
        if names.count(name) != 1:
            hint = "; columns are separated by commas" if len(names) == 1 else ""
            raise ValueError(f"{path} has {names.count(name) or 'no'} column {name!r}; it has {', '.join(names)}{hint}")


def _first_not_utf8(path: Path) -> int:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def stopped(words: Iterable[str]) -> set[str]:
    """Stop words cut up as texts are: of "don't" there is "don" left."""
    return {part for word in words for part in WORD.findall(word.lower())}


def plain(content: bytes) -> str:
    """A document of Reuters as text: no markup such as &lt; and no care for odd bytes."""
    return html.unescape(content.decode("latin-1"))


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path} has more than {LARGEST:,} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None


def _english() -> Collection[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS
