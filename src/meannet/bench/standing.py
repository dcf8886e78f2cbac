"""Who does well over many data sets: mean ranks, the critical difference between them, and one against another.

Ranks and their critical difference are those of Demšar, "Statistical comparisons of classifiers over multiple data
sets", 2006: Friedman's test, then Nemenyi's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.05
STOPPED = ", stopped early"  # ends the name of an arm that is compared with the one before the comma, and not ranked
WIDTH, HEIGHT = 900, 230  # of the picture, in CSS pixels


@dataclass(frozen=True)
class Standing:
    """One arm over all sets."""

    name: str
    rank: float  # the mean over sets; the least errors have rank 1, and those that tie share theirs
    wins: int  # sets on which nobody makes fewer errors
    error: float  # mean share of wrong rows
    log_loss: float
    seconds: float  # a fit takes, on the median set


def errors(document: dict[str, Any], names: Sequence[str]) -> np.ndarray:
    """Mean share of wrong test rows, (sets, arms)."""
    arms = {arm["name"]: arm["sets"] for arm in document["arms"]}
    sets = [one["name"] for one in document["sets"]]
    # Rounded, so that equal counts tie whatever order they were added in.
    return np.array([[round(float(np.mean(arms[arm][one]["errors"])), 9) for arm in names] for one in sets])


def standings(document: dict[str, Any], names: Sequence[str]) -> list[Standing]:
    """Of these arms among themselves, the best mean rank first."""
    wrong = errors(document, names)
    ranks = stats.rankdata(wrong, axis=1).mean(0)
    wins = (wrong == wrong.min(1, keepdims=True)).sum(0)
    arms = {arm["name"]: arm["sets"] for arm in document["arms"]}
    found = []
    for k, name in enumerate(names):
        losses = [float(np.mean(one["log_losses"])) for one in arms[name].values()]
        seconds = [float(np.mean(one["seconds"])) for one in arms[name].values()]
        found.append(
            Standing(
                name=name,
                rank=float(ranks[k]),
                wins=int(wins[k]),
                error=float(wrong[:, k].mean()),
                log_loss=float(np.mean(losses)),
                seconds=float(np.median(seconds)),
            )
        )
    return sorted(found, key=lambda one: one.rank)


def critical_difference(arms: int, sets: int) -> float:
    """Mean ranks that differ by less could differ by chance (Nemenyi)."""
    quantile = float(stats.studentized_range.ppf(1 - LEVEL, arms, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(arms * (arms + 1) / (6 * sets))


def friedman(document: dict[str, Any], names: Sequence[str]) -> float:
    """The probability of ranks this uneven if all were alike."""
    return float(stats.friedmanchisquare(*errors(document, names).T).pvalue)


def alike(found: Sequence[Standing], critical: float) -> list[tuple[int, int]]:
    """First and last of each largest run of standings, sorted by rank, that are within the critical difference."""
    runs: list[tuple[int, int]] = []
    for first, one in enumerate(found):
        last = max(k for k in range(first, len(found)) if found[k].rank - one.rank < critical)
        if last > first and not (runs and runs[-1][1] >= last):
            runs.append((first, last))
    return runs


def against(document: dict[str, Any], one: str, other: str) -> dict[str, Any]:
    """One arm minus another over sets, in points of error; beyond the spread: over two standard errors from zero."""
    first, second = errors(document, (one, other)).T
    difference = 100 * (first - second)
    error = float(difference.std(ddof=1) / math.sqrt(len(difference)))
    mean = float(difference.mean())
    return {
        "arm": one,
        "over": other,
        "difference": mean,
        "standard_error": error,
        "fewer": int((difference < 0).sum()),
        "more": int((difference > 0).sum()),
        "n": len(difference),
        "beyond_spread": abs(mean) > 2 * error,
    }


def picture(found: Sequence[Standing], critical: float) -> str:
    """Mean ranks on one line, best at the left; a bar joins arms within the critical difference. As SVG."""
    from meannet.report.svg import INK, SOFT, arm_colour, drawing, finish, style

    names = [one.name for one in found]
    half, runs = -(-len(found) // 2), alike(found, critical)
    step = 0.26  # between labels, and 0.13 between bars, where the line of ranks is at height 0
    with style():
        drawn, axes = drawing(WIDTH, HEIGHT)
        axes.set_axis_off()
        low, high = 1, len(found)
        margin = 0.62 * (high - low)
        axes.set_xlim(low - margin, high + margin)
        axes.set_ylim(-0.12 - 0.13 * len(runs) - step * half, 0.75)
        axes.plot([low, high], [0, 0], color=INK, linewidth=1.2)
        for rank in range(low, high + 1):
            axes.plot([rank, rank], [0, 0.06], color=INK, linewidth=1.2)
            axes.annotate(str(rank), (rank, 0.1), ha="center", va="bottom", color=SOFT)
        axes.plot([low, low + critical], [0.5, 0.5], color=SOFT, linewidth=2.2)
        axes.annotate(
            f"critical difference {critical:.2f}",
            (low + critical, 0.5), (8, 0), textcoords="offset points", va="center", color=SOFT,
        )  # fmt: skip
        for k, (first, last) in enumerate(runs):
            ends = [found[first].rank - 0.03, found[last].rank + 0.03]
            axes.plot(ends, [-0.1 - 0.13 * k] * 2, color=INK, linewidth=4)
        top = -0.12 - 0.13 * len(runs)
        for k, one in enumerate(found):
            left = k < half
            height = top - step * (k if left else len(found) - 1 - k) - 0.08
            end = low - 0.06 if left else high + 0.06
            colour = arm_colour(names, one.name)
            axes.plot([one.rank, one.rank, end], [0, height, height], color=colour, linewidth=1.4)
            axes.plot([one.rank], [0], "o", color=colour, markersize=7)
            axes.annotate(
                f"{one.name} {one.rank:.2f}", (end, height), (-6 if left else 6, 0), textcoords="offset points",
                ha="right" if left else "left", va="center", color=colour, weight="bold",
            )  # fmt: skip
        spoken = ", ".join(f"{one.name} {one.rank:.2f}" for one in found)
        return finish(drawn, f"Mean ranks: {spoken}; critical difference {critical:.2f}.")
