"""Pages and kept results: what stands between markers such as `<!-- results -->` and `<!-- /results -->` is made anew.

So are the pictures that a page shows: of a `figure` or `ranks` marker, docs/growth.svg, rates.svg and thinned.svg.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from meannet.kept import FOLDER, NONE_YET, RANKS, Result, claims, files, link, pictures, summary, tables, thinned

PICTURE = Path("docs") / "errors.svg"
SCALE = "scale"  # results/scale is of `meannet bench --imagenet`, --loader, --ranks and --scaling
GROWTH = Path("..") / "docs" / "growth.svg"  # from the folder of the page that shows it
RATES, THINNED = Path("rates.svg"), Path("thinned.svg")
RANKED = "tables"  # results/tables is of no recipe: `meannet bench --tables` made it


def fill(text: str, folder: Path, base: Path) -> str:
    """A page with what stands between its markers made anew; `base` is the folder that the page is in."""
    from meannet.bench import scale, speeds, written

    def figure() -> str:
        results = pictures.pictured(folder)
        alt = ". ".join(pictures.picture_words(results)) if results else ""
        return f"![{alt}]({PICTURE.as_posix()})" if results else "No picture yet: it is drawn from the kept results."

    def kept(recipe: str) -> str:
        links = ", ".join(f"[{path.stem}]({link(path, base)})" for path in files(recipe, folder))
        return f"{links}: {summary(recipe, folder)}" if links else NONE_YET

    blocks: dict[str, Callable[[], str]] = {"figure": figure}
    blocks |= {name: lambda made=made: made(folder, base) for name, made in tables.BLOCKS.items()}
    blocks |= claims.blocks(folder, base)
    blocks |= speeds.blocks(folder, base)
    blocks |= written.blocks(ranked(folder, "cpu"), ranked(folder, "choose"))
    blocks |= scale.blocks({path.stem: json.loads(path.read_text("utf-8")) for path in files(SCALE, folder)})
    for name, made in blocks.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if marked.search(text):
            content = made()
            text = marked.sub(lambda found, content=content: f"{found[1]}{content}\n{found[2]}", text)
    line = r"(<!-- kept ([\w.]+) -->).*?(<!-- /kept -->)"
    return re.sub(line, lambda found: f"{found[1]}{kept(found[2])}{found[3]}", text)


def rewrite(page: Path, folder: Path = FOLDER) -> list[Path]:
    """Bring a page, and the pictures it shows, up to date with the kept results; returns what was written."""
    text = page.read_text(encoding="utf-8")
    page.write_text(fill(text, folder, page.resolve().parent), encoding="utf-8")
    results, standing, grown = pictures.pictured(folder), ranked(folder, "cpu"), folder / SCALE / "growth.json"
    drawn: dict[Path, Callable[[], str]] = {}
    if "<!-- figure -->" in text and results:
        drawn[PICTURE] = lambda: pictures.picture(results)
    if "<!-- ranks -->" in text and standing:
        drawn[Path(RANKS)] = lambda: pictures.ranks_picture(standing)
    if f"]({GROWTH.as_posix()})" in text and grown.exists():
        drawn[GROWTH] = lambda: pictures.growth_picture(json.loads(grown.read_text(encoding="utf-8")))
    for path, part in ((RATES, claims), (THINNED, thinned)):
        found = part.picture(folder) if f"]({path})" in text else None
        if found:
            drawn[path] = lambda found=found, size=part.SIZE: pictures.card(found[0], *size, *found[1:])
    for path, made in drawn.items():
        (page.resolve().parent / path).write_text(made(), encoding="utf-8")
    return [page, *(page.resolve().parent / path for path in drawn)]


def ranked(folder: Path, name: str) -> Result | None:
    """A kept comparison on small tables."""
    path = folder / RANKED / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def main(pages: Sequence[str]) -> int:
    if not pages:
        print("usage: python -m meannet.kept README.md docs/paper-map.md docs/tables.md", file=sys.stderr)
        return 2
    for page in pages:
        print("wrote", ", ".join(map(str, rewrite(Path(page)))))
    return 0
