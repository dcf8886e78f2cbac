"""A table of one's own, as spreadsheets and programs write it: a header, then numbers, words and gaps."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from meannet.config import nearest
from meannet.data import marks

SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}  # of equally good ones the first
LOOKED_AT = 50  # rows, to tell what separates cells
MISSING = {"", "na", "n/a", "nan", "null", "?"}  # in any case
SEP = re.compile(r"(?i)\s*\"?sep=([^\r\n])\"?[,;\t]*(\r\n|\r|\n)")  # a line by which Excel names the mark
SHOWN = 5  # names in a line
ANOTHER = "a line above it, such as sep=;, names another mark"
WIDEST = 40  # characters of a cell that are shown


@dataclass(frozen=True)
class Table:
    """Cells as they stand in the file, column by column; what is missing is empty."""

    path: Path
    separator: str
    columns: dict[str, list[str]]
    unnamed: int  # columns without a name, which are not among them
    lines: list[int]  # of the file, where each row ends
    _spelled: dict[str, list[str | None]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.lines)

    def spelled(self, name: str) -> list[str | None]:
        """Each cell of a column as Python writes numbers, and None where it is none."""
        if name not in self._spelled:
            cells = self.columns[name]
            thousands, commas = marks.thousands_mark(cells), self.separator != ","
            self._spelled[name] = [marks.spelled(cell, thousands, commas=commas) for cell in cells]
        return self._spelled[name]

    def numbers(self, name: str) -> np.ndarray | None:
        """A column as float64, what is missing as nan; None where a cell is no number.

        Refuses marks that may be before decimals or thousands, but where all cells have them: then before decimals.
        """
        if self.no_numbers(name):
            return None
        rows = self.unclear(name)
        if 0 < len(rows) < sum(map(bool, self.columns[name])):
            cell = self.columns[name][rows[0]]
            mark = "," if "," in cell else "."
            remedy = f"write {cell.replace(mark, '')} or {cell}0"
            raise ValueError(f"{self.told(name, rows[0])}, and it is not clear what {mark!r} means there; {remedy}")
        return np.array([math.nan if text is None else float(text) for text in self.spelled(name)])

    def no_numbers(self, name: str) -> list[int]:
        """The rows in which a column holds something, and no number."""
        both = zip(self.columns[name], self.spelled(name), strict=True)
        return [row for row, (cell, text) in enumerate(both) if cell and text is None]

    def unclear(self, name: str) -> list[int]:
        """The rows whose number cannot be told by what is in the column."""
        return marks.unclear(self.columns[name], commas=self.separator != ",")

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
            apart = f"{SEPARATORS.get(self.separator, repr(self.separator))} apart; {ANOTHER}"
            raise ValueError(f"{self.path} has no column {name!r}{why}; {hint} (its first line names them, {apart})")


def read(path: str | Path) -> Table:
    """A file whose first line names the columns, apart by commas, semicolons or tabs."""
    path = Path(path)
    if not path.exists() or path.is_dir():
        raise ValueError(f"there is no file {path}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not in UTF-8; save it as CSV in UTF-8") from None
    named = SEP.match(text)
    above = len(text[: named.end()].splitlines()) if named else 0
    text = text[named.end() :] if named else text
    separator = named[1] if named else max(SEPARATORS, key=lambda mark: _suits(text, mark))
    reader = _reader(text, separator)
    try:
        found = [(above + reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise ValueError(f"{path}, line {above + reader.line_num}: {error}") from None
    found = _without_blank_lines(found)
    if len(found) < 2:
        raise ValueError(f"{path} holds no rows; the first line names the columns, and rows follow")
    (_, names), *rows = found
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise ValueError(f"{path} has two columns named {twice[0]!r}; rename one")
    for line, cells in rows:
        if len(cells) != len(names):
            remedy = f"the first line must name all columns, and each row must have them all; {ANOTHER}"
            raise ValueError(
                f"{path}, line {line}: {len(cells)} cells, where the first line has {len(names)}; {remedy}"
            )
    held = zip(names, zip(*(cells for _, cells in rows), strict=True), strict=True)
    columns = {name: ["" if cell.lower() in MISSING else cell for cell in cells] for name, cells in held if name}
    return Table(path, separator, columns, len(names) - len(columns), [line for line, _ in rows])


def _reader(text: str, separator: str, *, strict: bool = True) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict, skipinitialspace=True)


def _without_blank_lines(found: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Lines with cells; in a table of one column a blank line between two others is a row with a gap."""
    found = [(line, cells if any(cells) or len(cells) > 1 else []) for line, cells in found]
    filled = [place for place, (_, cells) in enumerate(found) if cells]
    if max((len(cells) for _, cells in found), default=0) == 1:
        return [(line, cells or [""]) for line, cells in found[filled[0] : filled[-1] + 1]]
    return [found[place] for place in filled]


def _suits(text: str, separator: str) -> tuple[bool, bool, int]:
    """How well a mark separates cells: whether the first rows have equally many, and are sound; else the most."""

    def sizes(strict: bool) -> list[int]:
        try:
            return [len(cells) for cells in islice(_reader(text, separator, strict=strict), LOOKED_AT) if cells]
        except csv.Error:
            return []

    loosely = sizes(strict=False)
    if len(set(loosely)) == 1 and loosely[0] > 1:
        return True, sizes(strict=True) == loosely, 0
    return False, False, max(loosely, default=0)


def some(names: Sequence[str]) -> str:
    """The first of them."""
    return ", ".join(short(name) for name in names[:SHOWN]) + " …" * (len(names) > SHOWN)


def short(text: str) -> str:
    """What is shown of a cell or a name."""
    return text[:WIDEST] + "…" * (len(text) > WIDEST)
