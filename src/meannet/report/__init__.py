"""The report: one self-contained HTML page from one or several run folders, like the paper's Fig. 1 and its A.3 figure.

It reads run folders only and needs no torch. `tables` and `findings` are plain data and sentences, which the command
line prints too; `figures` needs matplotlib.
"""

from collections.abc import Sequence
from pathlib import Path

from meannet.atomic import write_atomically


def write(runs: Sequence[Path], out: Path) -> None:
    """Write the page for these run folders to `out`, all of it or, after an error, nothing."""
    from meannet.report.runs import read

    if not runs:
        raise ValueError("a report needs at least one run folder; `meannet run RECIPE` makes one")
    out = Path(out)
    if out.suffix not in (".html", ".htm") and not out.is_dir():
        raise ValueError(f"{out} must end in .html, as in {out.with_suffix('.html')}")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; name the file to write, such as {out / 'report.html'}")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} into; make it first")
    found = [read(Path(folder)) for folder in runs]
    try:
        from meannet.report.page import render
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("matplotlib", "jinja2", "markupsafe", "PIL"):
            raise ValueError(f"the report needs {missing}: pip install 'meannet[report]'") from None
        raise
    write_atomically(out, render(found).encode())
