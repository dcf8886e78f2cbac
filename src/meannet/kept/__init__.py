"""Kept results: the result.json files under results/RECIPE/, and a line about each for `meannet list`.

What pages say of them is in tables.py and pictures.py here, and put there by pages.py.
"""

import json
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from meannet import recipes
from meannet.report.written import count, duration

_FOLDERS = Path(__file__).parents[1] / "results", Path(__file__).resolve().parents[3] / "results"
FOLDER = next(filter(Path.is_dir, _FOLDERS), _FOLDERS[-1])  # which wheels carry; the checkout's elsewhere
NONE_YET = "not yet"
RANKS = "ranks.svg"  # beside the page that shows mean ranks over small tables

Result = dict[str, Any]


def load(recipe: str, folder: Path = FOLDER) -> list[Result]:
    """The kept results of a recipe, by file name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in files(recipe, folder)]


def files(recipe: str, folder: Path = FOLDER) -> list[Path]:
    return sorted((folder / recipe).glob("*.json"))


def summary(recipe: str, folder: Path = FOLDER) -> str:
    """One line about the kept results: each arm's mean over seeds, its range over nets, scattered seeds one by one."""
    found: dict[str, list[float]] = {}
    kept = load(recipe, folder)
    if kept and all(result["data"].get("made_up") for result in kept):
        costs = [f"{duration(r['seconds'])} and {count(r['peak_mib'])} MiB on {r['device']}" for r in kept]
        return f"{'; '.join(costs)}; the data is made up"
    for result in kept:
        for arm in result["arms"]:
            if arm["mean"] is not None:
                found.setdefault(arm["name"], []).extend(arm["errors"] if scattered(arm) else [arm["mean"]])
    if len(found) > 3:
        best = min(found, key=lambda name: statistics.fmean(found[name]))
        return f"best: {best} ({statistics.fmean(found[best]):.1f})"
    return "; ".join(f"{name} {_span(values)}" for name, values in found.items())


def judged_on(folder: Path, *, held_out: bool) -> Iterator[tuple[Path, Result]]:
    """Results judged on held-out cases, or on test sets, in the order of the recipes; none on made-up data."""
    for recipe in recipes.RECIPES:
        for path, result in zip(files(recipe, folder), load(recipe, folder), strict=True):
            if result["data"]["held_out"] == held_out and not result["data"].get("made_up"):
                yield path, result


def scattered(arm: dict[str, Any]) -> bool:
    """Whether the seeds differ by more than their mean, so that they are better named one by one."""
    return arm["sd"] is not None and arm["sd"] > arm["mean"]


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.1f}" if len(values) == 1 else f"{low:.1f} to {high:.1f}"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A markdown table; the columns named in `right` are set flush right."""
    rule = ["--:" if column in right else "---" for column in range(len(heads))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def link(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path.resolve(), base)).as_posix()
