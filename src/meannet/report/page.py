"""The page: everything the template shows, gathered from the runs."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import groupby
from typing import Any

import jinja2
from markupsafe import Markup

from meannet import config
from meannet.report import examples, features, figures, findings, pretraining, speech, svg, tables, written
from meannet.report.runs import Run


@dataclass(frozen=True)
class Picture:
    """An SVG for a wide page and, where a figure stands alone, one for a phone; `name` says which net it shows."""

    name: str
    narrow: Markup
    wide: Markup | None = None


def render(runs: list[Run]) -> str:
    """The page of these runs as HTML."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        name: getattr(written, name) for name in ("count", "decimal", "plain", "signed", "percent", "duration")
    }
    template = environment.from_string(files("meannet.report").joinpath("page.html").read_text(encoding="utf-8"))
    sections = [_section(run, k) for k, run in enumerate(runs, start=1)]
    return template.render(sections=sections, spread=written.spread, arm_number=_arm_number)


def _section(run: Run, number: int) -> dict[str, Any]:
    settings = tables.settings(run.experiment)
    rows = tables.claim_rows(run.result) if run.result else []
    shown = features.panels(run)
    sampled = _sampled(run, f"s{number}")
    return {
        "id": f"run-{number}",
        "run": run,
        "experiment": run.experiment,
        "facts": _facts(run),
        "rows": rows,
        "rows_by_net": _by_net(rows),
        "unit": tables.unit_of(run.result).replace("test errors", f"{run.cases} errors") if run.result else "",
        "any_paper": any(row.paper is not None for row in rows),
        "any_stopped": any(row.stopped for row in rows),
        "stops": _stops(run),
        "comparisons_by_net": _by_net(tables.comparisons(run.result)) if run.result else [],
        "verdict": findings.verdict(run.result).replace(" ± ", "\u00a0±\u00a0") if run.result else "",
        "beside_paper": findings.beside_paper(run.result) if run.result else "",
        "standing": [] if run.result else tables.standing(run),
        "crowded": figures.crowded(run),
        "paper_line": figures.paper_line(run),
        "errors": _pictures(run, f"e{number}", figures.mean_network) if run.metrics else [],
        "errors_finding": findings.errors_by_epoch(run),
        "cases": run.cases,
        "error_limit": _cut(run, "test_error", figures.error_limits(run)[1], run.n_test or 100),
        "training": _pictures(run, f"t{number}", figures.training) if run.metrics else [],
        "training_finding": findings.training_by_epoch(run),
        "training_limit": _cut(run, "train_error", figures.training_limit(run), 100),
        "losses": _losses(run, f"l{number}"),
        "pretraining": pretraining.gather(run, f"p{number}"),
        "speech": speech.gather(run, f"h{number}"),
        "features_seed": shown[0] if shown else None,
        "features": shown[1] if shown else [],
        "features_finding": findings.features(run, {panel.arm: panel.smoothness for panel in shown[1]})
        if shown
        else "",
        "examples": examples.examples(run),
        "sampled": [(findings.sampled(rows), picture) for rows, picture in sampled],
        "sampled_finding": findings.all_sampled([rows for rows, _ in sampled]) if sampled else "",
        "arms": [(arm.name, *_numbers(run.experiment, arm)) for arm in run.experiment.arms],
        "settings": [one for one in settings if one.section or not one.path.startswith("arms.")],
        "differing": [setting for setting in settings if setting.differs],
        "left_open": [setting for setting in settings if setting.left_open],
        "resume": shlex.quote(str(run.folder)),
        "command": run.environment.get("command", ""),
        "environment": tables.environment(run),
    }


def _losses(run: Run, mark: str) -> list[tuple[str, str, list[Picture]]]:
    """Cross-entropy against epochs, where that of judged cases was recorded, as in Fig. 6."""
    if not any("test_loss" in line for line in run.metrics):
        return []
    says = {
        "test_loss": f"The mean network on {run.cases} cases, in nats a case.",
        "train_loss": "The thinned networks on training cases, as they are trained, in nats a case.",
    }
    return [
        (
            findings.loss_by_epoch(run, figure),
            text,
            _pictures(run, f"{mark}-{figure[:2]}", partial(figures.loss, figure)),
        )
        for figure, text in says.items()
    ]


def _pictures(run: Run, mark: str, draw: Callable[..., str]) -> list[Picture]:
    """A figure that stands alone comes in two widths; several stand side by side as narrow ones."""
    found = []
    for k, net in enumerate(run.nets):
        narrow = Markup(svg.within(f"{mark}-{k}", draw(run, net, wide=False)))
        wide = Markup(svg.within(f"{mark}-{k}-wide", draw(run, net))) if len(run.nets) == 1 else None
        found.append(Picture(net, narrow, wide))
    return found


def _sampled(run: Run, mark: str) -> list[tuple[list[dict[str, Any]], Picture]]:
    """For each net and arm that omits units, the rows of its seeds that were not stopped, and their figure."""
    omitting = run.experiment.omitting()
    rows = [
        row
        for row in (run.evaluation or {"rows": []})["rows"]
        if row["arm"] in omitting and row["net"] in run.nets and row["seed"] not in run.stopped(row["net"], row["arm"])
    ]
    rows.sort(key=lambda row: (run.nets.index(row["net"]), run.arms.index(row["arm"]), row["seed"]))
    found = []
    for (net, arm), group in groupby(rows, key=lambda row: (row["net"], row["arm"])):
        seeds = list(group)
        drawn = svg.within(f"{mark}-{len(found)}", figures.sampled(run, seeds, wide=False))
        found.append((seeds, Picture(f"{arm}, {net}", Markup(drawn))))
    return found


def _by_net(rows: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    return [(net, list(group)) for net, group in groupby(rows, key=lambda row: row.net)]


def _cut(run: Run, figure: str, limit: float, scale: float) -> float | None:
    """The end of an axis, if some curve goes beyond it."""
    beyond = any(scale * (line.get(figure) or 0) > limit for line in run.metrics)
    return limit if beyond else None


def _facts(run: Run) -> str:
    """The size of the run in a line."""
    experiment = run.experiment
    seeds = written.several(len(experiment.seeds), "seed")
    size = f"{written.several(len(experiment.arms), 'arm')} × {seeds}"
    nets = f" × {len(run.nets)} nets" if len(run.nets) > 1 else f" of {run.nets[0]}" if run.nets else ""
    epochs = written.several(experiment.optim.epochs, "epoch")
    found = [size + nets, f"{experiment.net.units} units", epochs]
    if run.result:
        found += [f"{run.result['data']['n_train']:,} training cases", written.duration(run.result["seconds"])]
    machine = run.environment.get("device_name")
    return ", ".join(found) + (f" on {machine}" if machine else "")


def _stops(run: Run) -> list[str]:
    """A sentence for each net that was stopped."""
    found = []
    for arm in run.result["arms"] if run.result else []:
        for stop in arm.get("stopped", ()):
            where = f"{arm['net']}, {arm['name']}, seed {stop['seed']}" + (
                f", layer {stop['layer']}" if stop.get("layer") else ""
            )
            rate = f" at learning rate {written.plain(stop['lr'])}" if stop.get("lr") else ""
            found.append(f"Stopped in epoch {stop['epoch']}{rate}: {where}: {stop['why']}. It counts in no mean.")
    return found


def _arm_number(run: Run, arm: str) -> int:
    return svg.ARMS.index(svg.arm_colour(run.arms, arm))


def _numbers(experiment: config.Experiment, arm: config.Arm) -> list[str]:
    """Rates of hidden and visible units, learning rate and bound that hold in this arm."""
    visible, *hidden = experiment.rates(arm, max(1, len(arm.hidden_rates)))
    return [config.text_of(value) for value in (tuple(hidden), visible, experiment.lr(arm), experiment.limit(arm))]
