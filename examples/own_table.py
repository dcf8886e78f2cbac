"""A table of one's own: a CSV file with a header, numbers and words, one column of which is to be predicted.

python examples/own_table.py FILE.csv COLUMN; without a file it takes scikit-learn's wines.
"""

import csv
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from meannet import DropoutClassifier


def read(path: str, column: str) -> tuple[np.ndarray, np.ndarray]:
    if not Path(path).is_file():
        sys.exit(f"there is no file {path}")
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin with a mark
            head, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (UnicodeDecodeError, csv.Error):
        sys.exit(f"{path} is not a CSV file in UTF-8; save it as one")
    if column not in head:
        hint = "; put commas in place of semicolons" if ";" in "".join(head) else ""
        sys.exit(f"{path} has no column {column!r}; it has {', '.join(head)}{hint}")
    for place, row in enumerate(rows, start=1):
        if len(row) != len(head) or not all(map(str.strip, row)):
            sys.exit(f"{path}, row {place}: not one value for each of {len(head)} columns; fill it in or leave it out")
    if len(rows) < 5:
        sys.exit(f"{path} has {len(rows)} rows, too few to judge by")
    table, at = np.array(rows, dtype=object), head.index(column)
    for name, cells in zip(head, table.T, strict=True):
        wrong = [k for k, cell in enumerate(cells) if not number(cell)]
        if name != column and 0 < len(wrong) < len(cells) / 2:  # else it would be a column of words
            sys.exit(f"{path}, row {wrong[0] + 1}: {name} is {cells[wrong[0]]}, and a number in most; put one there")
    label, count = min(Counter(table[:, at]).items(), key=lambda item: item[1])
    if count < 5:
        sys.exit(f"{path} has {count} rows with {column} {label}, too few to judge by; numbers want DropoutRegressor")
    return np.delete(table, at, axis=1), table[:, at].astype(str)


def number(cell: object) -> bool:
    try:
        return np.isfinite(float(str(cell)))
    except ValueError:
        return False


def main(path: str | None = None, column: str = "", **settings) -> tuple[float, float]:
    inputs, labels = read(path, column) if path else load_wine(return_X_y=True)
    words = [k for k in range(inputs.shape[1]) if not all(number(cell) for cell in inputs[:, k])]
    # Words become columns of 0 and 1. The net brings numbers to one scale by itself.
    ready = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), words), remainder="passthrough")
    splits = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
    errors = []
    for model in (DropoutClassifier(random_state=0, **settings), RandomForestClassifier(random_state=0)):
        errors.append(1 - cross_val_score(make_pipeline(ready, model), inputs, labels, cv=splits).mean())
        print(f"{type(model).__name__}: {errors[-1]:.1%} of rows wrong that it was not trained on")
    return errors[0], errors[1]


if __name__ == "__main__":
    main(*sys.argv[1:3])
