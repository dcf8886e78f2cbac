"""Commands of meannet as they can be typed where they are told."""

import shlex
import shutil
import sys
from pathlib import Path


def resume_command(out: Path) -> str:
    return as_typed(f"meannet run --resume {shlex.quote(str(out))}")


def as_typed(command: str) -> str:
    """A command of meannet as it can be given here: `make run` has it in a folder that the shell does not search."""
    program = sys.argv[0]
    if Path(program).name != "meannet" or shutil.which("meannet"):
        return command
    return command.replace("meannet", shlex.quote(program), 1)
