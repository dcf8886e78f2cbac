"""A table of one's own, with a header, numbers, words and gaps, and what of it a net takes.

Words are inputs of 0 and 1, one for each word of a column. A missing number is the mean of its column; where rows to
learn from lacked one, another input says whether it is missing.
"""

import csv
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from meannet import checkpoint
from meannet.config import nearest

SEPARATORS = ",;\t"
MISSING = {"", "na", "n/a", "nan", "null", "?"}  # in any case
FEW = 20  # different numbers that are still taken for labels, and different words that are never too many
MOST = 1 << 28  # numbers in the inputs of all rows: 2 GiB

Say = Callable[[str], None]


@dataclass(frozen=True)
class Table:
    """Cells as they stand in the file, a list a row."""

    path: Path
    separator: str
    names: list[str]
    rows: list[list[str]]
    lines: list[int]  # of the file, where each row ends

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self, name: str) -> list[str]:
        """A column; what is missing is empty."""
        place = self.names.index(name)
        return ["" if row[place].lower() in MISSING else row[place] for row in self.rows]

    def numbers(self, name: str) -> np.ndarray | None:
        """A column as float64, what is missing as nan; None where a cell is no number."""
        found = [math.nan if cell == "" else self._number(cell) for cell in self.cells(name)]
        return None if None in found else np.array(found, np.float64)

    def without(self, dropped: Collection[int]) -> Self:
        """The same table without some rows."""
        kept = [row for row in range(len(self)) if row not in dropped]
        return replace(self, rows=[self.rows[row] for row in kept], lines=[self.lines[row] for row in kept])

    def no_numbers(self, name: str) -> list[int]:
        """The rows in which a column holds something, and no number."""
        return [row for row, cell in enumerate(self.cells(name)) if cell and self._number(cell) is None]

    def at(self, row: int) -> str:
        return f"{self.path}, line {self.lines[row]}"

    def _number(self, cell: str) -> float | None:
        if self.separator != "," and cell.count(",") == 1 and "." not in cell:  # a decimal comma
            cell = cell.replace(",", ".")
        try:
            found = float(cell)
        except ValueError:
            return None
        return found if math.isfinite(found) and "_" not in cell else None


def read(path: Path) -> Table:
    """A file whose first line names the columns, apart by commas, semicolons or tabs."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = next((line for line in file if line.strip()), "")
            separator = max(SEPARATORS, key=lambda mark: len(_split(head, mark)))
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            found = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a table in UTF-8 with commas, semicolons or tabs: {error}") from None
    if len(found) < 2:
        raise ValueError(f"{path} holds no rows; the first line names the columns, and rows follow")
    names = found[0][1]
    for first, second in pairwise(sorted(name for name in names if name)):
        if first == second:
            raise ValueError(f"{path} has two columns named {first!r}; rename one")
    for line, cells in found:
        if len(cells) != len(names):
            raise ValueError(f"{path}, line {line}: {len(cells)} cells; the first line names {len(names)} columns")
    return Table(path, separator, names, [cells for _, cells in found[1:]], [line for line, _ in found[1:]])


def _split(line: str, separator: str) -> list[str]:
    return next(csv.reader([line], delimiter=separator), [])


@dataclass(frozen=True)
class Column:
    """One column of a table as inputs of a net; `words` is None for numbers."""

    name: str
    words: tuple[str, ...] | None  # the empty one stands for what is missing
    fill: float = 0.0  # for missing numbers
    gaps: bool = False  # whether an input says that a number is missing

    @classmethod
    def of(cls, name: str, values: np.ndarray) -> "Column":
        """What there is to learn of it from rows: numbers with nan where one is missing, or words."""
        if values.dtype == object:
            return cls(name, tuple(sorted(set(values))))
        missing = np.isnan(values)
        return cls(name, None, 0.0 if missing.all() else float(values[~missing].mean()), bool(missing.any()))

    @property
    def inputs(self) -> list[str]:
        """A name for each input."""
        if self.words is None:
            return [self.name, f"{self.name} is missing"][: 1 + self.gaps]
        return [f"{self.name}={word}" if word else f"{self.name} is missing" for word in self.words]

    def encode(self, values: np.ndarray) -> np.ndarray:
        """(rows, inputs); a word that is not known is none of them."""
        if self.words is not None:
            return np.stack([values == word for word in self.words], 1).astype(np.float64)
        missing = np.isnan(values)
        filled = np.where(missing, self.fill, values)
        return np.stack([filled, missing.astype(np.float64)][: 1 + self.gaps], 1)


@dataclass(frozen=True)
class Encoding:
    """The columns that a net takes, in the order of its inputs."""

    columns: tuple[Column, ...]

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """That of a file that `meannet fit` wrote."""
        facts = checkpoint.read_named(Path(path))[1]
        if "columns" not in facts:
            raise ValueError(f"{path} was not written by `meannet fit` and knows no columns")
        return cls.from_json(facts["columns"])

    @classmethod
    def of(cls, values: dict[str, np.ndarray], rows: Any = slice(None)) -> Self:
        return cls(tuple(Column.of(name, held[rows]) for name, held in values.items()))

    @property
    def inputs(self) -> list[str]:
        return [name for column in self.columns for name in column.inputs]

    def encode(self, values: dict[str, np.ndarray], rows: Any = slice(None)) -> np.ndarray:
        """(rows, inputs), float64."""
        return np.concatenate([column.encode(values[column.name][rows]) for column in self.columns], 1)

    def encode_new(self, table: Table, say: Say) -> np.ndarray:
        """The same of another table, which must have the columns, in any order; others are left out."""
        values = {}
        for column in self.columns:
            if column.name not in table.names:
                near = nearest(column.name, table.names)
                raise ValueError(f"{table.path} has no column {column.name!r}, which the net takes; {near}")
            values[column.name] = _as(table, column.name, words=column.words is not None)
        if others := [name or "one without a name" for name in table.names if name not in values]:
            say(f"{table.path}: left out, being no columns that the net takes: {_some(others)}")
        for column in self.columns:
            column_values = values[column.name]
            if column.words is None:
                count = 0 if column.gaps else int(np.isnan(column_values).sum())
                if count:
                    say(f"{column.name} is missing in {_rows(count)}; taken as the mean, {column.fill:.6g}")
                continue
            if new := sorted(set(column_values) - set(column.words)):
                count = int(np.isin(column_values, new).sum())
                named = _some([repr(word) if word else "nothing" for word in new])
                say(f"{column.name} holds {named} in {_rows(count)}, new to the net; taken as none of its words")
        return self.encode(values)

    def to_json(self) -> list[dict[str, Any]]:
        return [vars(column) for column in self.columns]

    @classmethod
    def from_json(cls, held: list[dict[str, Any]]) -> Self:
        return cls(
            tuple(Column(**one | {"words": None if one["words"] is None else tuple(one["words"])}) for one in held)
        )


@dataclass(frozen=True)
class Task:
    """What is to be learned from a table: the values of columns, and the target of each row, labels or numbers."""

    table: Table
    values: dict[str, np.ndarray]  # float64 with nan for what is missing, or words
    target: np.ndarray

    @property
    def labels(self) -> bool:
        return self.target.dtype != np.float64


def task(
    table: Table,
    target: str,
    *,
    drop: Sequence[str] = (),
    words: Sequence[str] = (),
    kind: str | None = None,
    say: Say,
) -> Task:
    """Rows whose target is known, and what each column holds; what is decided on the way is said.

    Columns in `words` hold words though they look like numbers. The target is labels or numbers, as `kind` says; else
    numbers where there are only such, and more than a few different ones or some that are not whole.
    """
    for name in (target, *drop, *words):
        if name not in table.names or not name:
            known = [name for name in table.names if name]
            raise ValueError(f"{table.path} has no column {name!r}; {nearest(name, known)}")
    if target in (*drop, *words):
        raise ValueError(f"{target} is the column to predict; do not drop it or call it words")
    if unknown := {row for row, cell in enumerate(table.cells(target)) if not cell}:
        say(f"left out: {_rows(len(unknown))} without {target}")
        table = table.without(unknown)
    aims = _target(table, target, kind)
    values: dict[str, np.ndarray] = {}
    for name in table.names:
        if name == target or name in drop:
            continue
        if not name:
            say("left out: a column without a name")
            continue
        held = _kept(table, name, name in words, say)
        if held is not None:
            values[name] = held
    if not values:
        raise ValueError(f"{table.path} has no column to predict {target} from")
    inputs = len(Encoding.of(values).inputs)
    if inputs * len(table) > MOST:
        raise ValueError(
            f"{table.path} would be {len(table):,} rows of {inputs:,} inputs, too much memory; "
            "--drop columns with many different words"
        )
    return Task(table, values, aims)


def _target(table: Table, name: str, kind: str | None) -> np.ndarray:
    """Words as they stand, or float64."""
    cells, numbers = np.array(table.cells(name), object), table.numbers(name)
    different = len(set(cells))
    if kind is None:
        counted = numbers is not None and (different > FEW or (numbers != np.rint(numbers)).any())
        kind = "numbers" if counted else "labels"
    if kind == "numbers" and numbers is None:
        row = table.no_numbers(name)[0]
        raise ValueError(f"{table.at(row)}: {name} is {cells[row]!r}, which is no number")
    if different < 2:
        raise ValueError(f"{table.path}: {name} is the same in all rows; there is nothing to predict")
    if kind == "labels" and different > max(FEW, len(cells) / 2):
        raise ValueError(f"{table.path}: {name} has {different:,} different labels in {_rows(len(cells))}, too many")
    return np.asarray(numbers, np.float64) if kind == "numbers" else cells.astype(str)


def _kept(table: Table, name: str, words: bool, say: Say) -> np.ndarray | None:
    """A column as numbers or words; None, which is said, where it can be of no use."""
    cells = table.cells(name)
    filled = [cell for cell in cells if cell]
    if len(set(cells)) < 2:
        say(f"left out: {name}, which is the same in all rows")
        return None
    odd = table.no_numbers(name)
    if not words and odd and len(odd) < len(filled) / 2:
        raise ValueError(
            f"{table.at(odd[0])}: {name} is {cells[odd[0]]!r}, and a number in most rows; put a number there, "
            f"leave it empty, or take all of the column as words: --words {name}"
        )
    if not words and odd and len(set(filled)) > max(FEW, len(filled) / 2):
        say(f"left out: {name}, which has {len(set(filled)):,} different words; --words {name} keeps it")
        return None
    held = _as(table, name, words=words or bool(odd))
    if held.dtype != object and len(held) > 2 and (np.diff(held) == 1).all():
        say(f"note: {name} rises by 1 from row to row; if it only counts rows, --drop {name}")
    return held


def _as(table: Table, name: str, *, words: bool) -> np.ndarray:
    if words:
        return np.array(table.cells(name), object)
    held = table.numbers(name)
    if held is None:
        row = table.no_numbers(name)[0]
        raise ValueError(f"{table.at(row)}: {name} is {table.cells(name)[row]!r}; the net takes a number there")
    return held


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + " …" * (len(names) > 5)
