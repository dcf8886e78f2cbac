"""A table of one's own, as spreadsheets and programs write it: a header, then numbers, words and gaps."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from meannet.config import nearest

SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}  # of equally good ones the first
LOOKED_AT = 50  # rows, to tell what separates cells
MISSING = {"", "na", "n/a", "nan", "null", "?"}  # in any case
LARGEST = 1e38  # of a number, so that it is one in float32, too
THREE_DIGITS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")  # after a mark before decimals or thousands
BOTH_MARKS = re.compile(r"[-+]?\d{1,3}((,\d{3})+\.|(\.\d{3})+,)\d+")  # 1,234.5 and 1.234,5
SHOWN = 5  # names in a line
WIDEST = 40  # characters of a cell that are shown


@dataclass(frozen=True)
class Table:
    """Cells as they stand in the file, column by column; what is missing is empty."""

    path: Path
    separator: str
    columns: dict[str, list[str]]
    unnamed: int  # columns without a name, which are not among them
    lines: list[int]  # of the file, where each row ends

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str) -> np.ndarray | None:
        """A column as float64, what is missing as nan; None where a cell is no number."""
        cells = self.columns[name]
        found = [math.nan if cell == "" else self.number(cell) for cell in cells]
        if None in found:
            return None
        self._check_marks(name)
        return np.array(found, np.float64)

    def no_numbers(self, name: str) -> list[int]:
        """The rows in which a column holds something, and no number."""
        return [row for row, cell in enumerate(self.columns[name]) if cell and self.number(cell) is None]

    def mostly_numbers(self, name: str) -> bool:
        """Whether more than half of what is there are numbers, but not all."""
        return 0 < len(self.no_numbers(name)) < sum(map(bool, self.columns[name])) / 2

    def without(self, dropped: Collection[int]) -> Self:
        """The same table without some rows."""

        def kept(values: list) -> list:
            return [value for row, value in enumerate(values) if row not in dropped]

        columns = {name: kept(cells) for name, cells in self.columns.items()}
        return replace(self, columns=columns, lines=kept(self.lines))

    def at(self, row: int) -> str:
        return f"{self.path}, line {self.lines[row]}"

    def told(self, name: str, row: int) -> str:
        """Where a cell is and what it holds."""
        return f"{self.at(row)}: {name} is {short(self.columns[name][row])!r}"

    def check_column(self, name: str, why: str = "") -> None:
        """Refuse a name that no column has."""
        if name not in self.columns:
            hint = nearest(name, self.columns)
            hint = hint if hint.startswith("did") else f"it has {some(list(self.columns))}"
            apart = SEPARATORS.get(self.separator, f"{self.separator!r}")
            raise ValueError(
                f"{self.path} has no column {name!r}{why}; {hint} (its first line names the columns, {apart} apart)"
            )

    def three_digits(self, name: str) -> list[int]:
        """The rows in which three digits follow a comma or a dot, where a column has such and whole numbers alone.

        Whether that mark is before decimals or thousands cannot be told, unless commas separate cells.
        """
        cells = self.columns[name]
        for mark in ".," if self.separator != "," else "":
            marked = [row for row, cell in enumerate(cells) if mark in cell]
            if marked and all(THREE_DIGITS.fullmatch(cells[row]) for row in marked):
                return marked
        return []

    def _check_marks(self, name: str) -> None:
        """Refuse those of three digits beside numbers without: where all have them, it is taken for decimals."""
        rows = self.three_digits(name)
        if 0 < len(rows) < sum(map(bool, self.columns[name])):
            cell = self.columns[name][rows[0]]
            mark = "," if "," in cell else "."
            remedy = f"write {cell.replace(mark, '')} or {cell}0"
            raise ValueError(f"{self.told(name, rows[0])}, and it is not clear what {mark!r} means there; {remedy}")

    def number(self, cell: str) -> float | None:
        """A cell as a number; None where it is none, or too large to reckon with."""
        if BOTH_MARKS.fullmatch(cell):
            cell = cell.replace(min(".,", key=cell.index), "").replace(",", ".")
        elif self.separator != "," and cell.count(",") == 1 and "." not in cell:  # a decimal comma
            cell = cell.replace(",", ".")
        try:
            found = float(cell)
        except ValueError:
            return None
        return found if abs(found) < LARGEST and "_" not in cell else None


def read(path: str | Path) -> Table:
    """A file whose first line names the columns, apart by commas, semicolons or tabs."""
    path = Path(path)
    if not path.exists() or path.is_dir():
        raise ValueError(f"there is no file {path}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not in UTF-8; save it as CSV in UTF-8") from None
    told = re.match(r'(?i)"?sep=(.)"?\r?\n', text)  # as Excel has it
    separator = told[1] if told else max(SEPARATORS, key=lambda mark: _suits(text, mark))
    reader = _reader(text, separator)
    try:
        found = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader][bool(told) :]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    if max((len(cells) for _, cells in found), default=0) == 1:  # then a blank line is a row with a gap
        while found and not found[-1][1]:
            found.pop()
        found = [(line, cells or [""]) for line, cells in found]
    found = [(line, cells) for line, cells in found if cells]
    if len(found) < 2:
        raise ValueError(f"{path} holds no rows; the first line names the columns, and rows follow")
    (_, names), *rows = found
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise ValueError(f"{path} has two columns named {twice[0]!r}; rename one")
    for line, cells in rows:
        if len(cells) != len(names):
            remedy = "the first line must name all columns, and each row must have them all"
            raise ValueError(
                f"{path}, line {line}: {len(cells)} cells, where the first line has {len(names)}; {remedy}"
            )
    held = zip(names, zip(*(cells for _, cells in rows), strict=True), strict=True)
    columns = {name: ["" if cell.lower() in MISSING else cell for cell in cells] for name, cells in held if name}
    return Table(path, separator, columns, len(names) - len(columns), [line for line, _ in rows])


def _reader(text: str, separator: str, *, strict: bool = True) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict, skipinitialspace=True)


def _suits(text: str, separator: str) -> tuple[bool, int]:
    """How well a mark separates cells: whether the first rows have equally many, and how many at most."""
    try:
        sizes = [len(cells) for cells in islice(_reader(text, separator, strict=False), LOOKED_AT) if cells]
    except csv.Error:  # a cell that is too long
        return False, 0
    return len(set(sizes)) == 1 and sizes[0] > 1, max(sizes, default=0)


def some(names: Sequence[str]) -> str:
    """The first of them."""
    return ", ".join(short(name) for name in names[:SHOWN]) + " …" * (len(names) > SHOWN)


def short(text: str) -> str:
    """What is shown of a cell or a name."""
    return text[:WIDEST] + "…" * (len(text) > WIDEST)
