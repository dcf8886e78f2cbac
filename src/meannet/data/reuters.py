"""RCV1-v2 (C): the token files and topic assignments of Lewis, Yang, Rose and Li (2004), read as a stream.

The token files hold stemmed words without stop words. They are read twice, once to find the commonest words and once to
count these, so that memory is that of the cases and not of the text. The 55 second-level topics below are those that
have documents; the paper speaks of 63 with 11 empty ones, which cannot both be so of this collection.
"""

import gzip
import hashlib
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from meannet.config import Selection
from meannet.data import Checked, DataError, Dataset, Status, documents, folder
from meannet.data.documents import Matrix, Say

NAME = "reuters"
FILES = ()
SELECTION = Selection()
_CODES = (
    "C11 C12 C13 C14 C15 C16 C17 C18 C21 C22 C23 C24 C31 C32 C33 C34 C41 C42 E11 E12 E13 E14 E21 E31 E41 E51 E61 E71 "
    "G15 GCRIM GDEF GDIP GDIS GENT GENV GFAS GHEA GJOB GMIL GOBIT GODD GPOL GPRO GREL GSCI GSPO GTOUR GVIO GVOTE GWEA "
    "GWELF M11 M12 M13 M14"
)
SECOND_LEVEL = tuple(_CODES.split())
HOME = "https://jmlr.csail.mit.edu/papers/volume5/lewis04a/"
SOURCE = f"{HOME} (LYRL2004: token files and topic assignments)"
LICENCE = "terms of LYRL2004 and of Reuters' corpus: research only"
LONGEST = 1 << 22  # bytes of a line
SAID_EVERY = 100_000  # documents


class File(NamedTuple):
    """A file of the collection, zipped or not in the data folder."""

    name: str
    urls: tuple[str, ...]
    documents: int  # in a token file
    content: str = ""  # sha256 of the .gz as published, where it is known


TOKENS = tuple(
    File(f"lyrl2004_tokens_{part}.dat", (f"{HOME}a12-token-files/lyrl2004_tokens_{part}.dat.gz",), count)
    for part, count in {
        "train": 23_149,
        "test_pt0": 199_328,
        "test_pt1": 199_339,
        "test_pt2": 199_576,
        "test_pt3": 183_022,
    }.items()
)
TOPICS = File(
    "rcv1-v2.topics.qrels",
    (f"{HOME}a08-topic-qrels/rcv1-v2.topics.qrels.gz", "https://ndownloader.figshare.com/files/5976048"),
    804_414,
    "2a98e5e5d8b770bded93afc8930d88299474317fe14181aee1466cc754d0d1c1",
)


def load(*, held_out: bool, say: Say, selection: Selection = SELECTION) -> Dataset:
    """The paper's selection; a few minutes for all 804,414 documents."""
    try:
        return _load(held_out=held_out, say=say, selection=selection)
    except DataError as error:
        raise DataError(
            f"{error}; `meannet data check {NAME}` looks at every file, and `data fetch` gets them"
        ) from None


def _load(*, held_out: bool, say: Say, selection: Selection) -> Dataset:
    if any(locate(file) is None for file in (*TOKENS, TOPICS)):
        fetch(force=False, say=say)
    numbers, labels = topics(_path(TOPICS))
    known, place = np.unique(numbers, return_inverse=True)
    second = labels >= 0  # a document without any such topic is known, and in no class
    chosen = documents.choose(place[second], labels[second], SECOND_LEVEL, len(known), selection, held_out=held_out)
    paths = [_path(file) for file in TOKENS]
    words, counts = count(paths, known, chosen, selection, say)
    chosen.facts["most_common"] = words[:10]
    return documents.dataset(NAME, counts, chosen, say)


def topics(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of documents and the place of their topic in SECOND_LEVEL, or -1; from lines such as `E11 2286 1`."""
    places = {name.encode(): place for place, name in enumerate(SECOND_LEVEL)}
    numbers, labels = array("q"), array("q")
    with opened(path) as lines:
        for at, line in lines:
            parts = line.split()
            if len(parts) != 3 or not parts[1].isdigit() or len(parts[1]) > 9 or parts[2] != b"1":
                raise _malformed(path, at, line, "TOPIC DOCUMENT 1")
            numbers.append(int(parts[1]))
            labels.append(places.get(parts[0], -1))
    if not numbers:
        raise DataError(f"{path}: holds no topics")
    return np.array(numbers), np.array(labels)


def tokens(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Each document's number and words, from `.I NUMBER`, `.W`, lines of words; an empty line may end it."""
    number, words, begun = -1, [], False
    with opened(path) as lines:
        for at, line in lines:
            if line.startswith(b".I"):
                if number >= 0:
                    yield _whole(path, at, number, words, begun)
                parts = line.split()
                if len(parts) != 2 or parts[0] != b".I" or not parts[1].isdigit() or len(parts[1]) > 9:
                    raise _malformed(path, at, line, ".I NUMBER")
                number, words, begun = int(parts[1]), [], False
            elif line.rstrip() == b".W" and number >= 0 and not begun:
                begun = True
            elif line.strip():
                if not begun:
                    raise _malformed(path, at, line, ".W" if number >= 0 else ".I NUMBER")
                words += line.split()
                if len(words) > LONGEST:
                    raise DataError(f"{path}, line {at}: document {number} has no end")
        if number >= 0:
            yield _whole(path, at, number, words, begun)


def count(
    paths: Sequence[Path], known: np.ndarray, chosen: documents.Chosen, selection: Selection, say: Say
) -> tuple[list[str], Matrix]:
    """The commonest words, and how often each chosen document has them; `known` are all documents' numbers, sorted."""
    from scipy.sparse import csr_array

    row = {int(number): place for place, number in enumerate(known[chosen.documents])}
    counted = set(known[documents.counted(chosen, selection)].tolist())
    occurrences, holding = Counter[bytes](), Counter[bytes]()
    for number, words in _followed(paths, "finding the commonest words", say):
        if number in counted:
            occurrences.update(words)
            holding.update(set(words))
    listed = sorted(occurrences)
    kept = documents.commonest(
        np.array([occurrences[word] for word in listed]), np.array([holding[word] for word in listed]), selection
    )
    column = {listed[place]: k for k, place in enumerate(kept)}
    seen, starts, columns, values = {}, [0], array("i"), array("i")
    for number, words in _followed(paths, "counting them", say):
        if number in row:
            if row[number] in seen:
                raise DataError(f"document {number} is in the token files twice")
            seen[row[number]] = len(seen)
            found = sorted((column[word], n) for word, n in Counter(words).items() if word in column)
            columns.extend(k for k, _ in found)
            values.extend(n for _, n in found)
            starts.append(len(columns))
    if len(seen) < len(row):
        missing = next(number for number, place in row.items() if place not in seen)
        raise DataError(f"document {missing} has topics and is in no token file; one of them is not whole")
    parts = np.frombuffer(values, np.int32), np.frombuffer(columns, np.int32), np.array(starts)
    matrix = csr_array(parts, shape=(len(row), len(column)))[[seen[place] for place in range(len(row))]]
    common = sorted(column, key=lambda word: (-occurrences[word], word))
    return [word.decode(errors="replace") for word in common], matrix


def _followed(paths: Sequence[Path], doing: str, say: Say) -> Iterator[tuple[int, list[bytes]]]:
    seen = 0
    for path in paths:
        for found in tokens(path):
            yield found
            seen += 1
            if seen % SAID_EVERY == 0:
                say(f"{NAME}: {doing}, {seen:,} documents read")


def check() -> list[Checked]:
    """Every document of every file is read."""
    return [_check(file) for file in (*TOKENS, TOPICS)]


def status() -> Status:
    found = [path for file in (*TOKENS, TOPICS) if (path := locate(file))]
    size = sum(path.stat().st_size for path in found)
    return Status(NAME, folder() / NAME, len(found) == len(TOKENS) + 1, size, SOURCE, LICENCE)


def fetch(*, force: bool, say: Say) -> None:
    """Get what is missing; checksums of the token files are not known, so their documents are counted."""
    from meannet.data.fetch import Remote, fetch_remote

    remote = [
        Remote(f"{file.name}.gz", file.urls, limit=1 << 29, sha256=file.content)
        for file in (*TOKENS, TOPICS)
        if force or locate(file) is None
    ]
    by_name = {f"{file.name}.gz": file for file in (*TOKENS, TOPICS)}
    fetch_remote(NAME, folder() / NAME, remote, lambda path, name: _verify(path, by_name[name]), say)


def locate(file: File) -> Path | None:
    """The file in the data folder, zipped or not."""
    where = folder() / NAME
    candidates = where / f"{file.name}.gz", where / file.name
    return next((path for path in candidates if path.is_file()), None)


def _path(file: File) -> Path:
    path = locate(file)
    if path is None:
        raise DataError(f"{folder() / NAME / file.name}.gz is missing; it comes from {file.urls[0]}")
    return path


def _check(file: File) -> Checked:
    try:
        path = _path(file)
        return Checked(path, True, _verify(path, file))
    except DataError as error:
        path = locate(file) or folder() / NAME / f"{file.name}.gz"
        return Checked(path, False, str(error).removeprefix(str(path)).lstrip(":, "))


def _verify(path: Path, file: File) -> str:
    """Says in what way the file is good, or refuses it."""
    if file is TOPICS:
        found, exact = len(np.unique(topics(path)[0])), path.suffix == ".gz" and _sha256(path) == file.content
    else:
        found, exact = sum(1 for _ in tokens(path)), False
    if found != file.documents:
        raise DataError(f"{path}: {found:,} documents where {file.documents:,} should be")
    return "as published" if exact else f"{found:,} documents, as many as published"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Numbered lines of a file, zipped or not; what cannot be read is a DataError."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield _lines(path, stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: not a sound gzip file ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def _lines(path: Path, stream: "BinaryIO | gzip.GzipFile") -> Iterator[tuple[int, bytes]]:
    at = 0
    while line := stream.readline(LONGEST):
        at += 1
        if len(line) == LONGEST:
            raise DataError(f"{path}, line {at}: longer than {LONGEST:,} bytes")
        yield at, line


def _whole(path: Path, at: int, number: int, words: list[bytes], begun: bool) -> tuple[int, list[bytes]]:
    if not begun:
        raise DataError(f"{path}, line {at}: document {number} has no .W line")
    return number, words


def _malformed(path: Path, at: int, line: bytes, wanted: str) -> DataError:
    shown = line[:40].decode(errors="replace").strip()
    return DataError(f"{path}, line {at}: {shown!r} where {wanted!r} should be")
