"""Text for people: names printed as they are, and whole lines where no terminal sets a width."""

import os
import sys
from contextlib import suppress
from typing import IO, cast

from rich.console import Console
from rich.table import Column, Table

from meannet.pipes import Watched

ANY_WIDTH = 10_000


def console(*, stderr: bool = False) -> Console:
    """Standard output or error; colour, and lines folded to its width, on a terminal only."""
    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = ANY_WIDTH
    return made


def lasting(stderr: bool = False) -> Console:
    """The same for work that goes on when whoever reads has gone, as `head` does after ten lines."""
    made = console(stderr=stderr)
    made.file = cast(IO[str], _Lasting(made.file))
    return made


class _Lasting(Watched):
    """A stream that, once it cannot be written to, takes everything and keeps nothing."""

    def _gone(self, error: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        with suppress(OSError):
            print(f"meannet: nothing more can be shown ({error.strerror}); the run goes on", file=sys.stderr)


def table(*names: str, numbers: tuple[str, ...] = ()) -> Table:
    """Columns set apart by space alone; the first keeps its words whole, and numbers stand to the right."""
    first, *others = names
    columns = [Column(first, no_wrap=True), *map(Column, others)]
    columns += [Column(name, justify="right", no_wrap=True) for name in numbers]
    return Table(*columns, box=None, padding=(0, 2, 0, 0))
