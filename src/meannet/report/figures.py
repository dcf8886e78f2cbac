"""The report's figures as SVG strings: errors against epochs as in Fig. 1, training error, sampled nets.

Each comes wide, for a page, or narrow, for a phone or a panel among others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, MaxNLocator

from meannet.report.findings import figure_of, final_means
from meannet.report.runs import Array, Run
from meannet.report.svg import INK, SOFT, arm_colour, drawing, finish, style
from meannet.report.tables import ERRORS
from meannet.report.written import rate, short

WIDE, NARROW = (900, 400), (400, 300)  # CSS pixels
LINES = 6  # with more arms than that, only means are drawn, and the best of each colour is named
CHANCE = 0.8  # nets with more errors than that have learned nothing
POINTS = 250  # the most that a line is drawn with; the last is always the last epoch


@dataclass(frozen=True)
class Ending:
    """A name and its last value, to stand at the right end of a line."""

    name: str
    value: str
    at: float
    colour: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.value}"


def mean_network(run: Run, net: str, *, wide: bool = True) -> str:
    """Errors of the mean network against epochs: a thin line a seed, a thick one their mean, the paper's dotted."""
    scale, unit = _counted(run)
    paper = paper_line(run)
    with style():
        made, axes = drawing(*(WIDE if wide else NARROW))
        limits = error_limits(run)
        endings = _curves(axes, run, net, "test_error", scale, limits[1], lambda value: figure_of(value / scale, run))
        if paper is not None:
            axes.axhline(paper, color=INK, linewidth=1.2, dashes=(1, 2.5), zorder=1.5)
            endings.append(Ending("paper", short(paper), paper, INK))
        frame(axes, unit, "epoch", limits, endings, whole=bool(run.n_test))
        return finish(made, f"{net}: {unit} of the mean network against epochs. At the end: {_spoken(endings)}.")


def training(run: Run, net: str, *, wide: bool = True) -> str:
    """Training errors of the thinned nets, with their units omitted, against epochs."""
    with style():
        made, axes = drawing(*(WIDE if wide else NARROW))
        top = training_limit(run)
        endings = _curves(axes, run, net, "train_error", 100.0, top, rate)
        frame(axes, "% training errors", "epoch", (0.0, top), endings)
        return finish(made, f"{net}: training error of thinned nets against epochs. At the end: {_spoken(endings)}.")


def loss(figure: str, run: Run, net: str, *, wide: bool = True) -> str:
    """Cross-entropy of judged or of training cases, `test_loss` or `train_loss`, against epochs."""
    ends = [value for arms in final_means(run, figure).values() for value in arms.values()]
    with style():
        made, axes = drawing(*(WIDE if wide else NARROW))
        top = max([1.6 * value for value in (*ends, 1e-3)] + _settled(run, figure))
        endings = _curves(axes, run, net, figure, 1.0, top, "{:.2f}".format)
        frame(axes, "cross-entropy", "epoch", (0.5 * min(ends, default=0.0), top), endings)
        return finish(made, f"{net}: cross-entropy ({figure}) against epochs. At the end: {_spoken(endings)}.")


def sampled(run: Run, rows: Sequence[Mapping[str, Any]], *, wide: bool = True) -> str:
    """Errors of 1, 2, 3 … sampled nets, averaged in two ways, beside the mean network's; `rows` are one arm's seeds."""
    net, arm = rows[0]["net"], rows[0]["arm"]
    colour = arm_colour(run.arms, arm)
    counts = np.array(rows[0]["counts"], float)
    arithmetic = np.mean([row["arithmetic"] for row in rows], axis=0)
    geometric = np.mean([row["geometric"] for row in rows], axis=0)
    target = float(np.mean([row["mean_network"] for row in rows]))
    with style():
        made, axes = drawing(*(WIDE if wide else NARROW))
        axes.axhline(target, color=INK, linewidth=2)
        axes.plot(counts, arithmetic, color=colour, linewidth=2.2)
        axes.plot(counts, geometric, color=colour, linewidth=2.2, dashes=(3, 1.5))
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks([c for c in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if c <= counts[-1]])
        endings = [
            Ending("mean network", short(target), target, INK),
            Ending("arithmetic", short(arithmetic[-1]), arithmetic[-1], colour),
            Ending("geometric", short(geometric[-1]), geometric[-1], colour),
        ]
        every = [target, *arithmetic, *geometric]
        limits = 0.5 * min(every), 1.1 * max(every)
        unit = f"{run.cases} errors of {rows[0]['n_test']:,}"
        frame(axes, unit, "sampled nets averaged", limits, endings, whole=True, locate=False)
        return finish(made, f"{net}, {arm}: {unit} against the number of sampled nets. {_spoken(endings)}.")


def crowded(run: Run) -> bool:
    return len(run.arms) > LINES


def paper_line(run: Run) -> float | None:
    """The paper's figure without dropout, where it is a count of test errors."""
    for claim in run.experiment.claims:
        if claim.arm == "backprop" and run.n_test and run.cases == "test":
            counted = claim.counted(run.n_test)
            return counted.value if counted.unit == ERRORS else None
    return None


def error_limits(run: Run) -> tuple[float, float]:
    """Where the axis of errors starts and ends: a logistic net's slow start at 90 % would flatten all that matters."""
    scale, _ = _counted(run)
    finals = [scale * value for value in _learned(run, "test_error")]
    shown = [1.6 * value for value in (*finals, paper_line(run) or 0.0, 1e-3 * scale)]
    settled = [scale * value for value in _settled(run, "test_error") if value < CHANCE]
    return 0.5 * min(finals, default=0.0), max(shown + settled)


def training_limit(run: Run) -> float:
    settled = [value for value in _settled(run, "train_error") if value < CHANCE]
    return min(100.0, 100 * max([1.6 * value for value in (*_learned(run, "train_error"), 0.003)] + settled))


def _learned(run: Run, figure: str) -> list[float]:
    """Where the arms end, without those that learned nothing, unless none did."""
    finals = [value for arms in final_means(run, figure).values() for value in arms.values()]
    return [value for value in finals if value < CHANCE] or finals


def _settled(run: Run, figure: str) -> list[float]:
    """Where the arms were after a third of the record, and a little above: what the end must not hide."""
    curves = (run.mean_curve(net, arm, figure)[1] for net in run.nets for arm in run.arms)
    return [1.1 * float(values[len(values) // 3]) for values in curves if len(values)]


def _counted(run: Run) -> tuple[float, str]:
    """What a fraction of the cases is multiplied by, and the name of that: counts once their number is known."""
    return (run.n_test, f"{run.cases} errors of {run.n_test:,}") if run.n_test else (100.0, f"% {run.cases} errors")


def _curves(
    axes: Axes, run: Run, net: str, figure: str, scale: float, top: float, written: Callable[[float], str]
) -> list[Ending]:
    """Draw each arm's seeds and their mean, a cross where a net was stopped; returns what to write at the ends."""
    endings = []
    for arm in run.arms:
        colour = arm_colour(run.arms, arm)
        stopped = run.stopped(net, arm)
        for seed, curve in run.curves(net, arm, figure).items():
            epochs, values = fewer(*curve)
            if not crowded(run):
                axes.plot(epochs, scale * values, color=colour, linewidth=0.8, alpha=0.35)
            if seed in stopped:
                last = np.fmin(scale * values[-1:], top)  # on the edge, if the net was stopped beyond it
                axes.plot(epochs[-1:], last, "x", color=colour, markersize=8, markeredgewidth=2.2, clip_on=False)
        epochs, values = fewer(*run.mean_curve(net, arm, figure))
        if len(epochs):
            marker = "o" if len(epochs) == 1 else None  # a line needs two
            axes.plot(epochs, scale * values, color=colour, linewidth=1.2 if crowded(run) else 2.4, marker=marker)
            endings.append(Ending(arm, written(scale * values[-1]), scale * values[-1], colour))
    if crowded(run):
        best = {ending.colour: ending for ending in sorted(endings, key=lambda ending: -ending.at)}
        endings = list(best.values())
    return endings


def fewer(epochs: Array, values: Array) -> tuple[Array, Array]:
    step = -(-len(epochs) // POINTS) or 1
    kept = slice((len(epochs) - 1) % step if len(epochs) else 0, None, step)
    return epochs[kept], values[kept]


def frame(
    axes: Axes,
    unit: str,
    across: str,
    limits: tuple[float, float],
    endings: list[Ending],
    *,
    whole: bool = False,
    locate: bool = True,
) -> None:
    """Limits, few ticks, the unit on top, and the names at the ends of the lines, moved apart where they touch."""
    width, height = axes.bbox.width, axes.bbox.height
    left, bottom, over = 48, 44, 30
    texts = [_fitting(ending, 0.42 * width) for ending in endings]
    right = 14 + max((_width(text) for text in texts), default=0)
    axes.set_position((left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + over) / height))
    axes.set_ylim(*limits)
    steps = [1, 2, 2.5, 5, 10]
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole, steps=steps))
    plain = FuncFormatter(lambda value, _: f"{value:,.6g}")
    axes.yaxis.set_major_formatter(plain)
    axes.xaxis.set_major_formatter(plain)
    axes.margins(x=0.01)
    if locate:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5 if width > 500 else 4, integer=True, steps=steps))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(across, loc="right")
    axes.annotate(unit, (0, 1), (-left, 14), "axes fraction", "offset pixels", color=SOFT)
    pixels = height - bottom - over
    wanted = [(ending.at - limits[0]) / (limits[1] - limits[0]) * pixels for ending in endings]
    for ending, text, place in zip(endings, texts, _apart(wanted, 17.0, pixels), strict=True):
        axes.annotate(
            text, (1, 0), (8, place), "axes fraction", "offset pixels", color=ending.colour, weight="bold", va="center"
        )


def _fitting(ending: Ending, limit: float) -> str:
    """The ending's text, its name shortened until it is no wider than `limit`."""
    if _width(ending.text) <= limit:
        return ending.text
    kept = len(ending.name)
    while kept and _width(f"{ending.name[:kept]}… {ending.value}") > limit:
        kept -= 1
    return f"{ending.name[:kept]}… {ending.value}"


@cache
def _width(text: str) -> float:
    """In the widest font that a browser is likely to choose."""
    outline = TextPath((0, 0), text, size=13, prop=FontProperties(family="DejaVu Sans", weight="bold"))
    return float(np.max(outline.vertices[:, 0]))


def _apart(wanted: list[float], gap: float, top: float) -> list[float]:
    """The places nearest to those wanted, by sweeping up and then down, that keep `gap` between neighbours."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed = list(wanted)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    ceiling = top
    for k in reversed(order):
        placed[k] = min(placed[k], ceiling)
        ceiling = placed[k] - gap
    return placed


def _spoken(endings: list[Ending]) -> str:
    return ", ".join(ending.text for ending in endings) or "nothing on record"
