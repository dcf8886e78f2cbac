"""Which net to predict with or to export: one of a finished run, or a saved estimator's; as its mean network (body)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meannet import __version__, checkpoint
from meannet.config import Experiment, nearest
from meannet.estimators import DropoutClassifier, DropoutRegressor
from meannet.estimators.cases import Scaling
from meannet.estimators.network import mean_module, pick, shape
from meannet.estimators.saved import described
from meannet.experiment import dense_rates, image_rates
from meannet.nn.convplain import filled
from meannet.nn.convplain import mean_module as image_module
from meannet.nn.dense import Fleet
from meannet.pretraining import check_settings
from meannet.runlog import RunFolder

Row = dict[str, Any]  # of result.json's arms
ESTIMATORS = {kind.__name__: kind for kind in (DropoutClassifier, DropoutRegressor)}


@dataclass(frozen=True)
class Trained:
    """A mean network of plain.py, what is known about it, and a line that says which one it is and why this one."""

    network: nn.Module
    facts: dict[str, Any]
    chosen: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which net of a run, where not the one that is chosen by itself, and the largest pixel where that is not 1."""

    net: str | None = None
    arm: str | None = None
    seed: str | None = None  # a number, or all
    divide: float | None = None


def open_trained(path: Path, choice: Choice) -> Trained:
    """The net in a run folder or in the file of an estimator."""
    if path.is_file():
        return _of_estimator(path, choice)
    if not path.exists():
        raise ValueError(f"there is no {path}; name a run folder or an estimator that was saved")
    return _of_run(RunFolder.open(path), choice)


def _of_estimator(path: Path, choice: Choice) -> Trained:
    for flag, value in vars(choice).items():
        if value is not None:
            raise ValueError(f"{path} is a file, and --{flag} is for run folders; drop it")
    try:
        kind = checkpoint.read(path)[1].get("estimator")
    except checkpoint.CheckpointError as error:
        raise ValueError(f"{path} is not an estimator that was saved: {error}") from None
    if kind not in ESTIMATORS:
        hint = "; a run is named by its folder" if path.name.startswith("state") else ""
        raise ValueError(f"{path} holds {kind or 'no estimator'}, which predicts nothing{hint}")
    estimator: Any = ESTIMATORS[kind].load(path)
    nets = len(estimator._fleet.seeds)
    return Trained(
        estimator.network_, described(estimator), f"the {kind} in {path}" + (f", {nets} nets averaged" * (nets > 1))
    )


def _of_run(folder: RunFolder, choice: Choice) -> Trained:
    result, experiment = folder.found(), folder.experiment()
    if experiment.patches is not None:
        raise ValueError(
            f"{folder.path} holds a net of H, which predict and export do not take; those of cifar10 they do"
        )
    if experiment.pretrain and experiment.pretrain.model == "dbm":
        raise ValueError(
            f"{folder.path} holds nets that see activities of their own deep Boltzmann machines beside the inputs; "
            "predict and export take runs of other recipes, such as mnist.a2_dbn"
        )
    try:
        arm, why = _arm(folder, experiment, result, choice)
        seeds = _seeds(arm, choice.seed)
        image, classes = result["data"]["image"], result["data"].get("classes")
        judged = f"{arm['n_test']:,} {'held-out' if result['data']['held_out'] else 'test'} cases"
        errors = [arm["errors"][arm["seeds"].index(seed)] for seed in seeds]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{folder.result} is broken ({error!r}); remove it, and resuming writes it anew") from None
    names = list(dict.fromkeys(each["net"] for each in result["arms"]))
    hidden, divisor = experiment.net.hidden[names.index(arm["net"])], _divisor(choice.divide)
    first = [each.name for each in experiment.arms].index(arm["name"]) * len(experiment.seeds)
    numbers = [first + experiment.seeds.index(seed) for seed in seeds]
    if experiment.conv is not None:
        network, known = _image_module(experiment, folder, hidden, numbers, tuple(image), divisor)
    else:
        fleet = pick(_dense_fleet(experiment, folder, hidden), numbers)
        inputs = Scaling(np.zeros(fleet.sizes[0]), np.full(fleet.sizes[0], divisor))
        network, known = mean_module(fleet, inputs, None), shape(fleet, inputs)
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds averaged"
    net = f"{arm['net']}, arm {arm['name']}, {which}"
    facts = known | {
        "meannet": __version__,
        "of": f"{experiment.recipe}: {net}",
        "answers": "single",
        "classes": [classes or [str(number) for number in range(known["sizes"][-1])]],
        "names": None,
        "image": image,
        "largest": divisor if image else None,
    }
    counted = f"{sum(errors) / len(errors):g} errors of {judged}" + (", mean of single nets" * (len(seeds) > 1))
    return Trained(network, facts, f"{net} ({counted}){why}")


def _dense_fleet(experiment: Experiment, folder: RunFolder, hidden: Sequence[int]) -> Fleet:
    """The fleet of a finished run, for which its data is not needed; in the order of make_fleet."""
    tensors = _last_state(experiment, folder, hidden)

    def group(name: str) -> list[Tensor]:
        return [tensors[f"{name}.{k}"] for k in range(len(hidden) + 1)]

    return Fleet(
        units=experiment.net.units,
        output="softmax",
        seeds=torch.tensor(experiment.seeds * len(experiment.arms)),
        rates=[rate if rate.any() else None for rate in dense_rates(experiment, hidden)],
        weights=group("weights"),
        biases=group("biases"),
        weight_velocities=group("weight_velocities"),
        bias_velocities=group("bias_velocities"),
    )


def _image_module(
    experiment: Experiment,
    folder: RunFolder,
    hidden: Sequence[int],
    numbers: Sequence[int],
    image: tuple[int, int],
    largest: float,
) -> tuple[nn.Module, dict[str, Any]]:
    """Some image nets of a finished run as one mean network of plain.py, and what is known of it."""
    conv, seeds = experiment.conv, len(experiment.seeds)
    assert conv is not None
    tensors = _last_state(experiment, folder, hidden)
    if "mean" not in tensors:
        raise ValueError(
            f"{folder.path} was saved without the mean of its pictures, by an earlier version; run it again"
        )
    nets = [
        filled(
            tensors, net, conv, hidden, image=image, units=experiment.net.units,
            rates=image_rates(experiment, conv, experiment.arms[net // seeds]),
        )
        for net in numbers
    ]  # fmt: skip
    return image_module(nets, tensors["mean"], conv.scale, largest)


def _last_state(experiment: Experiment, folder: RunFolder, hidden: Sequence[int]) -> dict[str, Tensor]:
    """Of a finished run, whose settings must still be the same."""
    path = folder.state(hidden, len(experiment.net.hidden))
    try:
        tensors, facts = checkpoint.read(path)  # the state before it is of another epoch
    except checkpoint.CheckpointError as error:
        again = f"train it again with `meannet run {folder.path / 'experiment.json'}`"
        raise checkpoint.CheckpointError(f"{folder.path}: {error}; {again}") from None
    check_settings(facts, experiment, experiment.digest(), path)
    return tensors


def _arm(folder: RunFolder, experiment: Experiment, result: dict[str, Any], choice: Choice) -> tuple[Row, str]:
    """The row of the result that was asked for; what is left open is chosen without a look at test cases."""
    rows = _matching(result["arms"], "net", choice.net)
    rows = _matching(rows, "name", choice.arm, called="arm")
    rows = [row for row in rows if row["seeds"]]
    if not rows:
        raise RuntimeError(f"every such net of {folder.path} was stopped in training; there is none to use")
    nets, arms = (list(dict.fromkeys(row[key] for row in rows)) for key in ("net", "name"))
    if result["data"]["held_out"] and len(rows) > 1:
        return min(rows, key=lambda row: row["mean"]), "; fewest held-out errors; --net, --arm, --seed choose others"
    if len(nets) > 1:
        raise ValueError(f"{folder.path} has several nets; choose one with --net: {', '.join(nets)}")
    if len(arms) == 1:
        return rows[0], ""
    headline = experiment.claims[0].arm if experiment.claims else ""
    row = next((row for row in rows if row["name"] == headline), rows[-1])
    why = "the arm of the paper's claim" if row["name"] == headline else "the last arm"
    return row, f"; {why}; --arm and --seed choose others"


def _matching(
    rows: Sequence[dict[str, Any]], key: str, wanted: str | None, called: str = "net"
) -> list[dict[str, Any]]:
    if wanted is None or any(row[key] == wanted for row in rows):
        return [row for row in rows if wanted in (None, row[key])]
    known = dict.fromkeys(row[key] for row in rows)
    raise ValueError(f"the run has no {called} {wanted!r}; {nearest(wanted, known)}")


def _seeds(row: Row, wanted: str | None) -> list[int]:
    """The first seed, the one that was asked for, or all of them."""
    if wanted == "all":
        return row["seeds"]
    if wanted is None:
        return row["seeds"][:1]
    if wanted not in map(str, row["seeds"]):
        stopped = {str(net["seed"]): net for net in row["stopped"]}
        why = f"was stopped in epoch {stopped[wanted]['epoch']}" if wanted in stopped else "is not in the run"
        known = ", ".join(map(str, row["seeds"]))
        raise ValueError(f"seed {wanted} of arm {row['name']} {why}; there is {known}, and all to average them")
    return [int(wanted)]


def _divisor(given: float | None) -> float:
    if given is not None and not 0 < given < float("inf"):
        raise ValueError(f"--divide must be above 0, such as 255 for pixels from 0 to 255, not {given:g}")
    return 1.0 if given is None else given
