"""Pictures of kept results for README and docs, as SVG on a white card."""

import html
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from meannet.kept import Result, load, scattered
from meannet.kept.tables import TITLES
from meannet.report.written import count, short

PICTURED = "mnist.a1", "digits"
OMITTED = {"dropout": "omits hidden units", "dropout+input": "inputs too"}


def picture(results: Sequence[Result]) -> str:
    """The paper's Fig. 1 from kept results, as SVG on a white card: test errors by epoch, a band over seeds."""
    from meannet.report.figures import WIDE, Ending, frame
    from meannet.report.svg import INK, arm_colour, drawing, finish, style

    title, caption = picture_words(results)
    last, names = ends(results), [arm["name"] for arm in results[0]["arms"]]
    published = [claim["value"] for claim in results[0]["claims"] if claim["arm"] == "backprop"]
    with style():
        made, axes = drawing(*WIDE)
        for arm in (arm for result in results for arm in result["arms"] if arm["curve"]["epochs"]):
            colour, curve = arm_colour(names, arm["name"]), arm["curve"]
            axes.fill_between(curve["epochs"], curve["least"], curve["most"], color=colour, alpha=0.18, linewidth=0)
            axes.plot(curve["epochs"], curve["mean"], color=colour, linewidth=2.2)
        endings = [
            Ending(name, span_of(values), statistics.fmean(values), arm_colour(names, name))
            for name, values in last.items()
        ]
        for value in published:
            axes.axhline(value, color=INK, linewidth=1.2, dashes=(5, 4))
            endings.append(Ending("best published", short(value), value, INK))
        levels = [*map(statistics.fmean, last.values()), *published]
        # A logistic net's slow start at 90 % would flatten all that matters.
        limits = 0.5 * min(levels), 1.6 * max(levels)
        frame(axes, f"test errors of {count(results[0]['data']['n_test'])}", "epoch", limits, endings, whole=True)
        return card(finish(made, title), *WIDE, title, caption)


def pictured(folder: Path) -> list[Result]:
    """The kept results to draw: of the first recipe that has some, all with means that say something."""
    for recipe in PICTURED:
        results = load(recipe, folder)
        if results and not any(scattered(arm) for result in results for arm in result["arms"]):
            return results
    return []


def picture_words(results: Sequence[Result]) -> tuple[str, str]:
    """The picture's title, which is its finding, and what its lines and bands are."""
    last = ends(results)
    best = min(last, key=lambda arm: statistics.fmean(last[arm]))
    name = TITLES.get(results[0]["data"]["name"], results[0]["data"]["name"])
    judged = [pair for result in results for pair in result["comparisons"] if pair["arm"] == best]
    if judged and all(pair["beyond_spread"] and pair["difference"] < 0 for pair in judged):
        over = judged[0]["over"]
        title = f"Omitting units takes test errors on {name} from {span_of(last[over])} to {span_of(last[best])}"
    else:
        title = f"Test errors on {name}: " + ", ".join(f"{arm} {span_of(values)}" for arm, values in last.items())
    nets = list(dict.fromkeys(arm["net"] for result in results for arm in result["arms"]))
    seeds = max(len(arm["seeds"]) for result in results for arm in result["arms"])
    lines = f"{len(nets)} nets, a line each: mean" if len(nets) > 1 else f"{nets[0]}: mean"
    arms = [f"{name} {OMITTED[name]}" for name in last if name in OMITTED]
    return title, "; ".join((f"{lines} of {seeds} seeds", "bands: least to most", ", ".join(arms)))


def ends(results: Sequence[Result]) -> dict[str, list[float]]:
    """Errors after the last epoch by arm, averaged over seeds: one figure a net."""
    found: dict[str, list[float]] = {}
    for arm in (arm for result in results for arm in result["arms"] if arm["mean"] is not None):
        found.setdefault(arm["name"], []).append(arm["mean"])
    return found


def span_of(values: Sequence[float]) -> str:
    """One figure, or the least and the most of several."""
    return "–".join(dict.fromkeys((short(min(values)), short(max(values)))))


def ranks_picture(document: Result) -> str:
    """Mean ranks over small tables with their critical difference, as SVG on a white card."""
    from meannet.bench import standing, written

    return card(written.drawn(document), standing.WIDTH, standing.HEIGHT, *written.words(document))


def growth_picture(document: Result) -> str:
    """How time and memory grow, as `meannet bench --scaling` draws it, on a white card."""
    from meannet.bench.growth import DRAWN, Point, picture

    drawn = picture([Point(**row) for row in document["scaling"]], document["device"])
    return card(drawn, *DRAWN, "How time and memory of an update grow", document["device"])


def card(drawn: str, width: int, height: int, title: str, caption: str) -> str:
    """A drawing under its title on white, so that it reads on a dark page too; colours plain, not CSS variables."""
    from meannet.report.svg import FONT, INK, PAPER, RULE, SOFT

    around, head = 16, 62
    wide, high = width + 2 * around, height + head + around
    inner = re.sub(r"var\(--[\w-]+, (#\w+)\)", r"\1", drawn.strip())
    title, caption = html.escape(title), html.escape(caption)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'role="img" aria-label="{title}. {caption}." style="{FONT}">\n'
        f'<rect x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="6" fill="{PAPER}" stroke="{RULE}"/>\n'
        f'<text x="{around}" y="30" font-size="18" font-weight="bold" fill="{INK}">{title}</text>\n'
        f'<text x="{around}" y="51" font-size="13" fill="{SOFT}">{caption}</text>\n'
        f'<svg x="{around}" y="{head}" width="{width}" height="{height}">\n{inner}\n</svg>\n</svg>\n'
    )
