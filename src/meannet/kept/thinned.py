"""What `meannet eval` found: the mean network beside averages of thinned networks (body), a table and a picture."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meannet.kept import Result, files, link, load, markdown_table
from meannet.report.written import count, several, spread_of

EVALUATED = "eval"  # results/eval/RECIPE.json
COMBINED = 1, 10, 100, 1000  # networks whose means the table shows
SIZE = 900, 360  # of the picture, in CSS pixels

Row = dict[str, Any]


def table(folder: Path, base: Path) -> str:
    """A row a recipe, arm and kind of mean: errors by how many thinned networks are combined; the mean network's."""
    rows, words = [], []
    for path, found in zip(files(EVALUATED, folder), load(EVALUATED, folder), strict=True):
        for arm, same in omitting(found).items():
            mean = spread_of([row["mean_network"] for row in same])
            for kind in ("arithmetic", "geometric"):
                errors = [spread_of(_errors(same, kind, n)) if n in same[0]["counts"] else "" for n in COMBINED]
                rows.append((f"{found['recipe']}, {arm}" if kind == "arithmetic" else "", kind, *errors, mean))
        words.append(f"[{path.stem}]({link(path, base)}): errors of {_nets(found)}; {found['device']}.")
    if not rows:
        return "No result is kept yet."
    heads = ("", "mean of", *map(count, COMBINED), "mean network")
    return "\n\n".join((markdown_table(heads, rows, right=range(2, len(heads))), *words))


def picture(folder: Path) -> tuple[str, str, str] | None:
    """Errors of geometric means against how many thinned networks they are of: SVG, title and caption."""
    from meannet.report.svg import SOFT, arm_colour, drawing, finish, style

    kept = load(EVALUATED, folder)
    if not kept:
        return None
    found, arms = kept[0], omitting(kept[0])
    levels = {arm: statistics.fmean(row["mean_network"] for row in same) for arm, same in arms.items()}
    with style():
        made, axes = drawing(*SIZE)
        axes.set_position((0.05, 0.14, 0.74, 0.76))
        for arm, same in arms.items():
            colour, counts = arm_colour(list(arms), arm), same[0]["counts"]
            means = [statistics.fmean(_errors(same, "geometric", n)) for n in counts]
            axes.plot(counts, means, "o-", color=colour, linewidth=2.2, markersize=5)
            axes.axhline(levels[arm], color=colour, linewidth=1.4, dashes=(5, 4))
            axes.annotate(arm, (counts[0], means[0]), (8, 2), textcoords="offset points", color=colour)
        for place, (arm, level) in enumerate(sorted(levels.items(), key=lambda pair: -pair[1])):
            said = f"mean network: {level:.1f}"
            axes.annotate(
                said,
                (1, level),
                (10, 9 - 18 * place),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                color=arm_colour(list(arms), arm),
                va="center",
                annotation_clip=False,
            )
        axes.set_xscale("log")
        axes.set_xticks(COMBINED, [count(n) for n in COMBINED])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("thinned networks whose predictions are combined")
        axes.set_title(f"test errors of {count(found['rows'][0]['n_test'])}", loc="left", color=SOFT, fontsize=13)
        drawn = finish(made, "Test errors by number of thinned networks that are combined")
    return drawn, *_words(found, arms)


def omitting(found: Result) -> dict[str, list[Row]]:
    """Rows of each arm that omits units; any other is all of its thinned networks."""
    arms = {
        arm: [r for r in found["rows"] if r["arm"] == arm] for arm in dict.fromkeys(r["arm"] for r in found["rows"])
    }
    return {arm: same for arm, same in arms.items() if any(len(set(row["geometric"])) > 1 for row in same)}


def alike(same: Sequence[Row], kind: str = "geometric") -> bool:
    """Whether errors of the mean network and of the most thinned ones differ by two standard errors or less."""
    apart = [row[kind][-1] - row["mean_network"] for row in same]
    return len(apart) > 1 and abs(statistics.fmean(apart)) <= 2 * statistics.stdev(apart) / math.sqrt(len(apart))


def _errors(same: Sequence[Row], kind: str, number: int) -> list[int]:
    return [row[kind][row["counts"].index(number)] for row in same]


def _words(found: Result, arms: dict[str, list[Row]]) -> tuple[str, str]:
    most = count(found["samples"])
    title = f"Errors on {found['recipe']} of up to {most} thinned networks combined"
    if all(map(alike, arms.values())):
        title = f"On {found['recipe']} one mean network does as well as {most} thinned networks"
    return title, f"{_nets(found)}; lines: geometric means of thinned networks, dashed: the mean network"


def _nets(found: Result) -> str:
    first = found["rows"][0]
    seeds = several(len({row["seed"] for row in found["rows"]}), "seed")
    return f"{count(first['n_test'])} test cases of {found['recipe']}, {first['net']}, {seeds}"
