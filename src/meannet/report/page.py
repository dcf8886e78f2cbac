"""The page: everything the template shows, gathered from the runs."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any

import jinja2
from markupsafe import Markup

from meannet.report import features, figures, findings, svg, tables, written
from meannet.report.runs import Run


@dataclass(frozen=True)
class Picture:
    """An SVG for a wide page and, where a figure stands alone, one for a phone; `name` says which net it shows."""

    name: str
    narrow: Markup
    wide: Markup | None = None


def render(runs: list[Run]) -> str:
    """The page of these runs as HTML."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        name: getattr(written, name) for name in ("decimal", "plain", "signed", "percent", "duration", "several")
    }
    environment.globals |= {"spread": written.spread, "arm_number": _arm_number}
    template = environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(sections=[_section(run, k) for k, run in enumerate(runs, start=1)])


def _section(run: Run, number: int) -> dict[str, Any]:
    settings = tables.settings(run.experiment)
    rows = tables.claim_rows(run.result) if run.result else []
    shown = features.panels(run)
    return {
        "id": f"run-{number}",
        "run": run,
        "experiment": run.experiment,
        "rows": rows,
        "unit": tables.unit_of(run.result).replace("test errors", f"{run.cases} errors") if run.result else "",
        "any_paper": any(row.paper is not None for row in rows),
        "any_stopped": any(row.stopped for row in rows),
        "stops": _stops(run),
        "comparisons": tables.comparisons(run.result) if run.result else [],
        "verdict": findings.verdict(run.result) if run.result else "",
        "beside_paper": findings.beside_paper(run.result) if run.result else "",
        "standing": [] if run.result else tables.standing(run),
        "paper_line": figures.paper_line(run),
        "errors": _pictures(run, figures.mean_network) if run.metrics else [],
        "errors_finding": findings.errors_by_epoch(run),
        "error_limit": _cut(run, "test_error", figures.error_limit(run), run.n_test or 100),
        "training": _pictures(run, figures.training) if run.metrics else [],
        "training_finding": findings.training_by_epoch(run),
        "training_limit": _cut(run, "train_error", figures.training_limit(run), 100),
        "features_seed": shown[0] if shown else None,
        "features": shown[1] if shown else [],
        "features_finding": findings.features({p.arm: p.smoothness for p in shown[1]}) if shown else "",
        "sampled": _sampled(run),
        "settings": settings,
        "differing": [setting for setting in settings if setting.differs],
        "left_open": [setting for setting in settings if setting.left_open],
        "environment": tables.environment(run),
    }


def _pictures(run: Run, draw: Callable[..., str]) -> list[Picture]:
    """A figure that stands alone comes in two widths; several stand side by side as narrow ones."""
    if len(run.nets) == 1:
        net = run.nets[0]
        return [Picture(net, Markup(draw(run, net, wide=False)), Markup(draw(run, net)))]
    return [Picture(net, Markup(draw(run, net, wide=False))) for net in run.nets]


def _sampled(run: Run) -> list[tuple[str, Picture]]:
    """For each net and arm that omits units, what the figure says and the figure."""
    omitting = {arm.name for arm in run.experiment.arms if any(run.experiment.rates(arm))}
    rows = [row for row in (run.evaluation or {"rows": []})["rows"] if row["arm"] in omitting]
    rows.sort(key=lambda row: (run.nets.index(row["net"]), run.arms.index(row["arm"]), row["seed"]))
    found = []
    for (net, arm), group in groupby(rows, key=lambda row: (row["net"], row["arm"])):
        seeds = list(group)
        picture = Picture(f"{arm}, {net}", Markup(figures.sampled(run, seeds, wide=False)))
        found.append((findings.sampled(seeds), picture))
    return found


def _cut(run: Run, figure: str, limit: float, scale: float) -> float | None:
    """The end of an axis, if some curve goes beyond it."""
    beyond = any(scale * (line.get(figure) or 0) > limit for line in run.metrics)
    return limit if beyond else None


def _stops(run: Run) -> list[dict[str, Any]]:
    arms = run.result["arms"] if run.result else []
    return [{"net": arm["net"], "arm": arm["name"], **stop} for arm in arms for stop in arm.get("stopped", ())]


def _arm_number(run: Run, arm: str) -> int:
    return svg.ARMS.index(svg.arm_style(run.arms, arm)[0])
