"""What a run's pretraining came to: curves of its stages, receptive fields, samples from the model (A.2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from safetensors import SafetensorError, safe_open

from meannet.report import features, svg
from meannet.report.figures import NARROW, Ending, fewer, frame
from meannet.report.runs import Array, Run
from meannet.report.svg import ARMS, drawing, finish, style
from meannet.report.written import short
from meannet.runlog import RunFolder

COLOUR = ARMS[3]  # none of the paper's three arms has it


@dataclass(frozen=True)
class Curve:
    """One stage: its name, what its figure did, and the figure."""

    name: str
    says: str
    picture: Markup


@dataclass(frozen=True)
class Pretraining:
    """All that the page shows of it; pictures are of the first architecture and the first seed."""

    finding: str
    model: str
    curves: list[Curve]
    fields: features.Panel | None
    samples: features.Panel | None
    steps: int
    seed: int


def gather(run: Run, mark: str) -> Pretraining | None:
    """None where the run did not pretrain, or has not begun to."""
    if not run.experiment.pretrain or not run.pretraining:
        return None
    net = run.pretraining[0]["net"]
    lines = [line for line in run.pretraining if line["net"] == net]
    stages = sorted({line["stage"] for line in lines})
    curves = [_curve([line for line in lines if line["stage"] == k], f"{mark}-{k}") for k in stages]
    weights, samples = _tensors(run)
    return Pretraining(
        finding=f"Pretraining, {curves[0].name}: {curves[0].says[0].lower()}{curves[0].says[1:]}",
        model={"dbn": "deep belief net", "dbm": "deep Boltzmann machine"}[run.experiment.pretrain.model],
        curves=curves,
        fields=_fields(run, weights),
        samples=_samples(run, samples),
        steps=run.experiment.pretrain.gibbs,
        seed=run.experiment.seeds[0],
    )


def _curve(lines: list[dict[str, Any]], mark: str) -> Curve:
    """A thin line a seed and a thick one their mean."""
    seeds: dict[int, dict[int, float]] = {}
    for line in lines:
        seeds.setdefault(line["seed"], {})[line["epoch"]] = line["value"]
    name, figure = lines[0]["name"], lines[0]["figure"]
    scale, unit = (100.0, "% training errors") if figure == "training error" else (1.0, figure)
    epochs = np.array(sorted(set.intersection(*(set(values) for values in seeds.values()))), float)
    every = scale * np.array([[values[int(epoch)] for epoch in epochs] for values in seeds.values()])
    mean = every.mean(0)
    with style():
        made, axes = drawing(*NARROW)
        for values in every:
            axes.plot(*fewer(epochs, values), color=COLOUR, linewidth=0.8, alpha=0.35)
        axes.plot(*fewer(epochs, mean), color=COLOUR, linewidth=2.4, marker="o" if len(epochs) == 1 else None)
        ending = Ending("mean", short(mean[-1]), float(mean[-1]), COLOUR)
        frame(axes, unit, "epoch", (0.0, 1.1 * float(every.max()) or 1.0), [ending])
        drawn = finish(made, f"{name}: {unit} against epochs, at the end {ending.value}")
    says = f"{figure.capitalize()} {_written(mean[0], scale)} after the first epoch"
    says += f", {_written(mean[-1], scale)} at the end" if len(epochs) > 1 else ""
    return Curve(name, says, Markup(svg.within(mark, drawn)))


def _written(value: float, scale: float) -> str:
    return f"{short(value)} %" if scale == 100 else short(value)


def _tensors(run: Run) -> tuple[Array | None, Array | None]:
    """Incoming weights of the first layer, (units, inputs), and samples, (count, inputs), of the first seed."""
    hidden = run.experiment.net.hidden
    path = RunFolder(run.folder).pretrained(hidden[0], len(hidden))
    if not path.is_file():
        return None, None
    try:
        with safe_open(path, framework="numpy") as state:
            held = set(state.keys())
            weights = state.get_slice("layers.0.weights")[0].astype(np.float64) if "layers.0.weights" in held else None
            if "dbm.weights" in held and weights is not None:
                units, inputs = weights.shape
                weights = state.get_slice("dbm.weights")[0][:inputs, :units].T.astype(np.float64)
            samples = state.get_slice("samples")[0].astype(np.float64) if "samples" in held else None
    except (SafetensorError, IndexError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}); remove it and the report goes without pictures") from None
    return weights, samples


def _fields(run: Run, weights: Array | None) -> features.Panel | None:
    shape = None if weights is None else features.shape_of(run, weights.shape[1])
    if weights is None or shape is None:
        return None
    return features.some_of("", weights, shape)


def _samples(run: Run, samples: Array | None) -> features.Panel | None:
    shape = None if samples is None else features.shape_of(run, samples.shape[1])
    if samples is None or shape is None:
        return None
    images = np.clip(np.nan_to_num(samples), 0, 1).reshape(len(samples), *shape)
    return features.panel("", features.grid(images[: features.SHOWN], ink=True), len(images), 0.0)
