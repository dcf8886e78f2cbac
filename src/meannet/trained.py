"""Which net to predict with or to export: one of a finished run, or a saved estimator's; as its mean network (body)."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from meannet import __version__, checkpoint
from meannet.config import Experiment, nearest
from meannet.data.columns import Encoding
from meannet.estimators import DropoutClassifier, DropoutRegressor
from meannet.estimators.cases import Scaling
from meannet.estimators.network import mean_module, shape
from meannet.estimators.saved import described
from meannet.fleets import of_finished, trained_fleet
from meannet.lots import turns_of
from meannet.nn import convplain
from meannet.nn.convfleet import ConvFleet
from meannet.nn.dense import Fleet
from meannet.pretraining import trained_machines
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
        held = checkpoint.read(path)[1]
    except checkpoint.CheckpointError as error:
        raise ValueError(f"{path} is not an estimator that was saved: {error}") from None
    kind = held.get("estimator")
    if kind not in ESTIMATORS:
        hint = "; a run is named by its folder" if path.name.startswith("state") else ""
        raise ValueError(f"{path} holds {kind or 'no estimator'}, which predicts nothing{hint}")
    estimator: Any = ESTIMATORS[kind].load(path)
    nets = len(estimator._fleet.seeds)
    facts = described(estimator)
    if "table" in held:  # what `meannet fit` learned of its columns
        facts |= {"table": held["table"], "names": Encoding.from_json(held["table"]).inputs}
    return Trained(estimator.network_, facts, f"the {kind} in {path}" + (f", {nets} nets averaged" * (nets > 1)))


@dataclass(frozen=True)
class Picked:
    """Nets of a finished run, in the order of `seeds`, and what the run says of them."""

    experiment: Experiment
    folder: RunFolder  # that knows where the state of these nets is
    fleet: Fleet
    row: Row
    seeds: list[int]
    facts: dict[str, Any]  # the result's data
    name: str  # architecture, arm and seed
    chosen: str  # how many errors it made and why it was chosen, too


def pick_nets(folder: RunFolder, choice: Choice, where: torch.device | str = "cpu") -> Picked:
    """The nets of one architecture and arm that were chosen, or that are chosen by themselves, on a device."""
    result, experiment = folder.found(), folder.experiment()
    try:
        arm, why = _arm(folder, experiment, result, choice)
        seeds = _seeds(arm, choice.seed)
        cases = f"{'held-out' if result['data']['held_out'] else result['data'].get('judged_on', 'test')} cases"
        errors = statistics.fmean(arm["errors"][arm["seeds"].index(seed)] for seed in seeds)
        percent = result["data"].get("percent", False)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{folder.result} is broken ({error!r}); remove it, and resuming writes it anew") from None
    names = list(dict.fromkeys(each["net"] for each in result["arms"]))
    hidden = experiment.net.hidden[names.index(arm["net"])]
    turns = {seed: (fold, some) for fold, some in turns_of(experiment) for seed in some}
    fold, together = turns[seeds[0]]
    if any(turns[seed][0] != fold for seed in seeds):
        raise ValueError(f"seeds of {folder.path} learned from different speakers and cannot be averaged; choose one")
    lot = folder.turn(fold)
    part = replace(experiment, seeds=together)
    pairs = [(each.name, seed) for each, seed in part.pairs()]
    fleet = trained_fleet(part, lot, hidden).pick([pairs.index((arm["name"], seed)) for seed in seeds], where)
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds averaged"
    counted = f"{errors:.4g} % errors" if percent else f"{errors:g} errors of {arm['n_test']:,} {cases}"
    counted += ", mean of single nets" * (len(seeds) > 1)
    name = f"{arm['net']}, arm {arm['name']}, {which}"
    return Picked(experiment, lot, fleet, arm, seeds, result["data"], name, f"{name} ({counted}){why}")


def _of_run(folder: RunFolder, choice: Choice) -> Trained:
    picked = pick_nets(folder, choice)
    fleet, divisor = picked.fleet, _divisor(choice.divide)
    visible, machines, sweeps = fleet.sizes[0], [], 0
    pretrain = picked.experiment.pretrain
    if pretrain and pretrain.model == "dbm":
        hidden = fleet.sizes[1:-1]
        visible, sweeps = visible - hidden[-1], pretrain.joint.sweeps
        with of_finished(folder):
            every = trained_machines(picked.experiment, folder, hidden, visible, fleet.sizes[-1])
        machines = [every[picked.experiment.seeds.index(seed)] for seed in picked.seeds]
    if isinstance(fleet, ConvFleet):
        network, known = convplain.mean_module(fleet, divisor)
    else:
        inputs = Scaling(np.zeros(visible), np.full(visible, divisor))
        network, known = mean_module(fleet, inputs, None, machines, sweeps), shape(fleet, inputs)
    image, classes = picked.facts.get("image"), picked.facts.get("classes")
    facts = known | {
        "meannet": __version__,
        "of": f"{picked.experiment.recipe}: {picked.name}",
        "answers": "single",
        "classes": [classes or [str(number) for number in range(fleet.sizes[-1])]],
        "names": None,
        "image": image,
        "largest": divisor if image else None,
        "sweeps": sweeps,
    }
    return Trained(network, facts, picked.chosen)


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
        raise ValueError(f"seed {wanted} of arm {row['name']} {why}; there is {known}")
    return [int(wanted)]


def _divisor(given: float | None) -> float:
    if given is not None and not 0 < given < float("inf"):
        raise ValueError(f"--divide must be above 0, such as 255 for pixels from 0 to 255, not {given:g}")
    return 1.0 if given is None else given
