"""Numbers as people write them in tables, with a comma or a dot before decimals or between thousands."""

import re
from collections.abc import Sequence

LARGEST = 1e38  # of a number, so that it is one in float32, too
CLEAR = re.compile(  # 1,234.5 and 1.234,5; 1,234,567 and 1.234.567
    r"[-+]?\d{1,3}((,\d{3})+\.\d+|(\.\d{3})+,\d+|(,\d{3}){2,}|(\.\d{3}){2,})"
)
THREE_DIGITS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")  # after a mark that may be before decimals or thousands


def thousands_mark(cells: Sequence[str]) -> str:
    """The mark between thousands, where cells tell; else nothing."""
    found = {min(".,", key=(cell + ".,").index) for cell in cells if _clear(cell)}
    return found.pop() if len(found) == 1 else ""


def spelled(cell: str, thousands: str, *, commas: bool) -> str | None:
    """A cell as Python writes numbers; None where it is none, or too large. `commas` may be before decimals."""
    if _clear(cell):
        first = min(".,", key=(cell + ".,").index)
        cell = cell.replace(first, "").replace(",", ".")
    elif thousands and thousands in cell and THREE_DIGITS.fullmatch(cell):
        cell = cell.replace(thousands, "")
    elif commas and cell.count(",") == 1 and "." not in cell:
        cell = cell.replace(",", ".")
    try:
        found = float(cell)
    except ValueError:
        return None
    return cell if abs(found) < LARGEST and "_" not in cell else None


def unclear(cells: Sequence[str], *, commas: bool) -> list[int]:
    """The cells in which three digits follow a mark, where no other cell tells what that mark is before."""
    if thousands_mark(cells):
        return []
    for mark in ".," if commas else "":
        marked = [place for place, cell in enumerate(cells) if mark in cell and not _clear(cell)]
        if marked and all(THREE_DIGITS.fullmatch(cells[place]) for place in marked):
            return marked
    return []


def _clear(cell: str) -> bool:
    return cell.count(",") + cell.count(".") > 1 and CLEAR.fullmatch(cell) is not None
