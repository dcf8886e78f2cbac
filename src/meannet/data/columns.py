"""Columns of a table of one's own as inputs of a net, and what is to be learned from them.

Words are inputs of 0 and 1, one for each word of a column. A missing number is the mean of its column; where rows to
learn from lacked one, another input says whether it is missing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import numpy as np

from meannet import checkpoint
from meannet.data.table import Table, short, some

FEW = 20  # different numbers that are still taken for labels, and different words that are never too many
MOST = 1 << 27  # numbers in the inputs of all rows: 1 GiB, of which there are a few copies

Say = Callable[[str], None]


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
    """The columns that a net takes, in the order of its inputs, and the one that it predicts."""

    columns: tuple[Column, ...]
    target: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """That of a file that `meannet fit` wrote."""
        facts = checkpoint.read_named(Path(path))[1]
        if "table" not in facts:
            raise ValueError(f"{path} was not written by `meannet fit` and knows no columns")
        return cls.from_json(facts["table"])

    @classmethod
    def of(cls, task: "Task", rows: Any = slice(None)) -> Self:
        """What there is to learn of columns from some rows, or from all."""
        return cls(tuple(Column.of(name, held[rows]) for name, held in task.values.items()), task.name)

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
            table.check_column(column.name, ", which the net takes")
            values[column.name] = _as(table, column.name, words=column.words is not None)
        if others := [name for name in table.columns if name not in values and name != self.target]:
            say(f"{table.path}: left out, being no columns that the net takes: {some(others)}")
        for column in self.columns:
            held = values[column.name]
            if column.words is None:
                _tell_three_decimals(table, column.name, say)
                count = int(np.isnan(held).sum())
                if count and not column.gaps:
                    say(f"{column.name} is missing in {_rows(count)}; taken as the mean, {column.fill:.6g}")
            elif new := sorted(set(held) - set(column.words)):
                count = int(np.isin(held, new).sum())
                named = some([repr(word) if word else "nothing" for word in new])
                say(f"{column.name} holds {named} in {_rows(count)}, new to the net; taken as none of its words")
        return self.encode(values)

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target, "columns": [vars(column) for column in self.columns]}

    @classmethod
    def from_json(cls, held: Any) -> Self:
        try:
            columns = tuple(
                Column(
                    str(one["name"]),
                    None if one["words"] is None else tuple(map(str, one["words"])),
                    float(one["fill"]),
                    bool(one["gaps"]),
                )
                for one in held["columns"]
            )
            target = str(held["target"])
        except (TypeError, KeyError, ValueError):
            columns, target = (), ""
        if not columns or any(column.words == () for column in columns):
            raise ValueError("what the file says of its table cannot be read; was it written by another version?")
        return cls(columns, target)


@dataclass(frozen=True)
class Task:
    """What is to be learned from a table: the values of columns, and the target of each row, labels or numbers."""

    table: Table
    name: str  # of the target
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
        table.check_column(name)
    if target in (*drop, *words):
        raise ValueError(f"{target} is the column to predict; do not drop it or call it words")
    used = [name for name in table.columns if name not in (target, *drop)]
    for name in used:
        if name not in words and _counts(table, name):
            say(f"note: {name} rises by 1 from row to row; if it only counts rows, --drop {name}")
    if unknown := {row for row, cell in enumerate(table.columns[target]) if not cell}:
        say(f"left out: {_rows(len(unknown))} without {target}")
        table = table.without(unknown)
    aims = _target(table, target, kind, say)
    useful = _useful(table, used, words, say)
    if not useful:
        raise ValueError(f"{table.path} has no column to predict {target} from")
    found = Task(table, target, {name: _column(table, name, name in words) for name in useful}, aims)
    for name, held in found.values.items():
        if held.dtype != object:
            _point_out(table, name, say)
    _check_memory(found)
    return found


def _useful(table: Table, used: Sequence[str], words: Sequence[str], say: Say) -> list[str]:
    """Columns that something can be learned from; the others are named."""
    if table.unnamed:
        say(f"left out: {table.unnamed} column{'s' * (table.unnamed > 1)} without a name")
    alike = [name for name in used if len(set(table.columns[name])) < 2]
    names = [name for name in used if name not in (*alike, *words) and _differ(table, name)]
    if alike:
        say(f"left out, being the same in all rows: {some(alike)}")
    if names:
        say(f"left out, with different words in most rows: {some(names)}; --words NAME keeps one")
    return [name for name in used if name not in (*alike, *names)]


def _point_out(table: Table, name: str, say: Say) -> None:
    """What may be wrong with a column that is taken for numbers."""
    _tell_three_decimals(table, name, say)
    codes = [cell for cell in table.columns[name] if len(cell) > 1 and cell[0] == "0" and cell.isdigit()]
    if codes:
        say(f"note: {name} has numbers that begin with 0, such as {short(codes[0])}; if they are names, --words {name}")


def _check_memory(found: Task) -> None:
    columns, rows = Encoding.of(found).columns, len(found.target)
    inputs = sum(len(column.inputs) for column in columns)
    if inputs * rows > MOST:
        most = max(columns, key=lambda column: len(column.inputs))
        raise ValueError(
            f"{found.table.path} would be {rows:,} rows of {inputs:,} inputs, too much memory; {most.name} alone is "
            f"{len(most.inputs):,} of them, --drop {most.name}"
        )


def _tell_three_decimals(table: Table, name: str, say: Say) -> None:
    if rows := table.unclear(name):
        say(f"note: {name} is taken for numbers with three decimals, such as {table.columns[name][rows[0]]}")


def _target(table: Table, name: str, kind: str | None, say: Say) -> np.ndarray:
    """Words as they stand, or float64."""
    if kind is None:
        _check_alike(table, name, "take all of the column as labels: --as labels")
    cells, numbers = table.columns[name], None if kind == "labels" else table.numbers(name)
    if kind is None:
        counted = numbers is not None and (len(set(numbers)) > FEW or (numbers != np.rint(numbers)).any())
        kind = "numbers" if counted else "labels"
    if kind == "numbers" and numbers is None:
        raise ValueError(f"{table.told(name, table.no_numbers(name)[0])}, which is no number")
    if kind == "labels":
        cells = _spelled_alike(table, name, say)
    different = len(set(cells))
    if different < 2:
        raise ValueError(f"{table.path}: {name} is the same in all rows; there is nothing to predict")
    if kind == "labels" and different > max(FEW, len(cells) / 2):
        raise ValueError(f"{table.path}: {name} has {different:,} different labels in {_rows(len(cells))}, too many")
    return np.asarray(numbers, np.float64) if kind == "numbers" else np.array(cells)


def _spelled_alike(table: Table, name: str, say: Say) -> list[str]:
    """Labels; where all are numbers, those that are equal get the commonest of their spellings."""
    cells = table.columns[name]
    if table.no_numbers(name):
        return cells
    spellings: dict[Decimal, Counter[str]] = {}
    for cell, text in zip(cells, table.spelled(name), strict=True):
        spellings.setdefault(Decimal(str(text)), Counter())[cell] += 1
    if several := [" and ".join(spelled) for spelled in spellings.values() if len(spelled) > 1]:
        say(f"{name}: one label each, being equal numbers: {some(several)}")
    chosen = {cell: spelled.most_common(1)[0][0] for spelled in spellings.values() for cell in spelled}
    return [chosen[cell] for cell in cells]


def _counts(table: Table, name: str) -> bool:
    """Whether a column rises by 1 from each row that has it to the next."""
    held = [text for cell, text in zip(table.columns[name], table.spelled(name), strict=True) if cell]
    return len(held) > 2 and None not in held and bool((np.diff(np.array(held, np.float64)) == 1).all())


def _differ(table: Table, name: str) -> bool:
    """Whether a column holds words, too many different ones to learn from."""
    if not table.no_numbers(name) or table.mostly_numbers(name):
        return False
    filled = [cell for cell in table.columns[name] if cell]
    return len(set(filled)) > max(FEW, len(filled) / 2)


def _column(table: Table, name: str, words: bool) -> np.ndarray:
    """Numbers with nan for what is missing, or words."""
    if not words:
        _check_alike(table, name, f"take all of the column as words: --words {name}")
    return _as(table, name, words=words or bool(table.no_numbers(name)))


def _check_alike(table: Table, name: str, otherwise: str) -> None:
    """Refuse a cell that is no number where most are."""
    if table.mostly_numbers(name):
        told = table.told(name, table.no_numbers(name)[0])
        raise ValueError(f"{told}, and a number in most rows; put a number there, leave it empty, or {otherwise}")


def _as(table: Table, name: str, *, words: bool) -> np.ndarray:
    if words:
        return np.array(table.columns[name], object)
    held = table.numbers(name)
    if held is None:
        raise ValueError(f"{table.told(name, table.no_numbers(name)[0])}; the net takes a number there")
    return held


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
