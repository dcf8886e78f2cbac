"""Kept results: the result.json files committed under results/RECIPE/, read for the tables of README and `meannet list`."""

import json
import statistics
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "results"


def load(recipe: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The kept results of a recipe, by file name; none where the package is installed without its checkout."""
    return [json.loads(path.read_text()) for path in sorted((folder / recipe).glob("*.json"))]


def summary(recipe: str, folder: Path = FOLDER) -> str:
    """One line about the kept results: each arm's mean over all nets and seeds, with its range over nets."""
    found: dict[str, list[float]] = {}
    for result in load(recipe, folder):
        for arm in result["arms"]:
            if arm["mean"] is not None:
                found.setdefault(arm["name"], []).append(arm["mean"])
    if len(found) > 3:
        best = min(found, key=lambda name: statistics.fmean(found[name]))
        return f"best: {best} ({statistics.fmean(found[best]):.1f})"
    return "; ".join(f"{name} {_span(values)}" for name, values in found.items())


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.1f}" if len(values) == 1 else f"{low:.1f} to {high:.1f}"
