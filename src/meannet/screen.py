"""Text for people: names printed as they are, and whole lines where no terminal sets a width."""

from rich.console import Console
from rich.table import Column, Table

ANY_WIDTH = 10_000


def console(*, stderr: bool = False) -> Console:
    """Standard output or error; colour, and lines folded to its width, on a terminal only."""
    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = ANY_WIDTH
    return made


def table(*names: str, numbers: tuple[str, ...] = ()) -> Table:
    """Columns set apart by space alone; the first keeps its words whole, and numbers stand to the right."""
    first, *others = names
    columns = [Column(first, no_wrap=True), *map(Column, others)]
    columns += [Column(name, justify="right", no_wrap=True) for name in numbers]
    return Table(*columns, box=None, padding=(0, 2, 0, 0))
