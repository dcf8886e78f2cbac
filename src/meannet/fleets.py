"""The nets of an experiment as a fleet (A.1): made anew, as a run last saved them, or out of a finished run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from meannet import checkpoint, imagefleets, pretraining
from meannet.checkpoint import check_settings, check_unchanged
from meannet.config import Experiment
from meannet.data import Dataset
from meannet.nn.dense import Fleet, initial_fleet
from meannet.pretrain.unrolled import seen
from meannet.runlog import RunFolder
from meannet.train import Fault
from meannet.typed import resume_command


def make_fleet(experiment: Experiment, hidden: Sequence[int], dataset: Dataset, where: torch.device | str) -> Fleet:
    """All arms and seeds of one architecture, in the order of `experiment.pairs()`."""
    if experiment.conv is not None:
        return imagefleets.make(experiment, experiment.conv, hidden, dataset, where)
    pairs, sizes = experiment.pairs(), (dataset.train.inputs.shape[1], *hidden, len(dataset.classes))
    fleet = initial_fleet(
        sizes,
        [seed for _, seed in pairs],
        _rates(experiment, sizes[:-1]),
        units=experiment.net.units,
        sd=experiment.net.initial_sd,
        bias=[experiment.initial_bias(arm) for arm, _ in pairs],
        device=where,
    )
    fleet.adapting = experiment.adapt is not None
    if any(arm.weight_decay for arm in experiment.arms):
        decays = [arm.weight_decay or 0.0 for arm, _ in pairs]
        fleet.decay = torch.tensor(decays, device=where)[:, None, None]
    return fleet


def load_fleet(
    experiment: Experiment, folder: RunFolder, hidden: Sequence[int], dataset: Dataset, where: torch.device
) -> tuple[Fleet, list[Fault], Dataset]:
    """The fleet as a run last saved it, the nets that were stopped, and the cases as its nets see them.

    The run must have finished, and settings and data still be the same.
    """
    with of_finished(folder):
        if experiment.pretrain and experiment.pretrain.model == "dbm":
            stack = pretraining.prepare(experiment, hidden, dataset, where)
            pretraining.restore(stack, experiment, folder, hidden, dataset, whole=True)
            dataset = seen(stack, dataset, len(experiment.arms))
        fleet = make_fleet(experiment, hidden, dataset, where)
        facts = restore(fleet, experiment, folder, hidden, dataset, whole=True)
    return fleet, [Fault(**fault) for fault in facts["faults"]], dataset


def trained_fleet(experiment: Experiment, folder: RunFolder, hidden: Sequence[int]) -> Fleet:
    """The fleet of a finished run, for which its data is not needed; in the order of make_fleet."""
    path = folder.state(hidden, len(experiment.net.hidden))
    with of_finished(folder):
        tensors, facts = checkpoint.read_state(path)
    check_settings(facts, experiment, experiment.digest(), path)
    if experiment.conv is not None or experiment.patches is not None:
        if "mean" not in tensors:
            raise ValueError(f"{folder.path} was saved by an earlier version, without its pictures' mean; run it again")
        return imagefleets.restored(experiment, hidden, tensors)

    def group(name: str) -> list[torch.Tensor]:
        return [tensors[f"{name}.{k}"] for k in range(len(hidden) + 1)]

    return Fleet(
        units=experiment.net.units,
        output="softmax",
        seeds=torch.tensor([seed for _, seed in experiment.pairs()]),
        rates=[
            tensors.get(f"rates.{k}", rate) if rate.any() else None
            for k, rate in enumerate(_rates(experiment, (tensors["weights.0"].shape[2], *hidden)))
        ],
        weights=group("weights"),
        biases=group("biases"),
        weight_velocities=group("weight_velocities"),
        bias_velocities=group("bias_velocities"),
    )


@contextmanager
def of_finished(folder: RunFolder) -> Iterator[None]:
    """Says what to do about files of a finished run that cannot be read; states before them are of other epochs."""
    try:
        yield
    except checkpoint.Damaged as error:
        remedy = f"its nets are lost, and {folder.result} still tells what they did; run it again into another folder"
        if checkpoint.recoverable(folder.path):
            remedy = f"move {folder.result} elsewhere, and `{resume_command(folder.path)}` makes it anew"
        raise checkpoint.CheckpointError(f"{folder.path}: {error}; {remedy}") from None


def restore(
    fleet: Fleet,
    experiment: Experiment,
    folder: RunFolder,
    hidden: Sequence[int],
    dataset: Dataset,
    *,
    whole: bool = False,
) -> dict[str, Any]:
    """Put the saved state into the fleet, which must or may be there; returns what was saved beside it."""
    path = folder.state(hidden, len(experiment.net.hidden))
    if not whole and not path.exists():
        return {"epoch": 0, "faults": []}
    tensors, facts = checkpoint.read_state(path)
    check_unchanged(facts, experiment, experiment.digest(), path, dataset)
    for name, tensor in fleet.state().items():
        tensor.copy_(tensors[name])
    return facts


def _rates(experiment: Experiment, sizes: Sequence[int]) -> list[torch.Tensor]:
    """Of the visible units and of each hidden layer, (nets, 1); where arms adapt them a unit has its own."""
    layers = len(sizes) - 1
    each = torch.tensor([experiment.rates(arm, layers) for arm, _ in experiment.pairs()], dtype=torch.float64)
    own = sizes if experiment.adapt is not None else [1] * len(sizes)
    return [rates[:, None].repeat(1, units) for rates, units in zip(each.T, own, strict=True)]
