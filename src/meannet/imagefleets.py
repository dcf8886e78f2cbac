"""Fleets of image nets (G, H) as an experiment asks for them: new ones for a data set, or those of a saved state."""

from collections.abc import Sequence

import torch

from meannet import outcome
from meannet.config import Conv, Experiment, Patches
from meannet.data import Dataset
from meannet.nn.convfleet import ConvFleet, conv_fleet, pixel_mean
from meannet.nn.convnets import Rates, image_net, patch_net, working_spreads

CASES_TO_TRY = 128  # when initial variances are tried


def make(
    experiment: Experiment, conv: Conv, hidden: Sequence[int], dataset: Dataset, where: torch.device | str
) -> ConvFleet:
    shape, classes = outcome.image_shape(dataset), len(dataset.classes)
    images = dataset.train.inputs.view(-1, *shape)
    mean = pixel_mean(images)
    layers, given = len(conv.banks) + len(conv.local) + len(hidden), conv.initial_sd
    if given:
        spreads = [*given, *given[-1:] * (layers - len(given))]
    else:
        few = (images[:CASES_TO_TRY].float() - mean) * conv.scale
        net = image_net(conv, hidden, classes, shape=shape, units=experiment.net.units)
        spreads = working_spreads(net, few, experiment.net.initial_bias)
    return _fleet(experiment, conv, hidden, shape, classes, mean, spreads, where)


def of_patches(
    experiment: Experiment,
    patches: Patches,
    classes: int,
    mean: torch.Tensor,
    spreads: Sequence[float] | None,
    where: torch.device | str,
) -> ConvFleet:
    """The one net of H that an experiment has, from its seed."""
    (arm,), (seed,), (hidden,), units = experiment.arms, experiment.seeds, experiment.net.hidden, experiment.net.units
    return conv_fleet(
        [patch_net(patches, hidden, classes, units=units, rate=experiment.rates(arm)[1], seed=seed)],
        [seed],
        spreads,
        output_sd=experiment.net.initial_sd,
        bias=[experiment.initial_bias(arm)],
        units=units,
        mean=mean,
        scale=patches.scale,
        decays=[(patches.weight_decay, patches.weight_decay)],
        device=where,
    )


def restored(
    experiment: Experiment, hidden: Sequence[int], tensors: dict[str, torch.Tensor], where: torch.device | str = "cpu"
) -> ConvFleet:
    """The fleet whose state these tensors are; the mean of its pictures, (channels, rows, columns), is among them."""
    mean, conv, patches = tensors["mean"], experiment.conv, experiment.patches
    last = max(int(name.partition(".")[2]) for name in tensors if name.startswith("biases."))
    classes = tensors[f"biases.{last}"].shape[1]
    if patches is not None:
        fleet = of_patches(experiment, patches, classes, mean, None, where)
    else:
        assert conv is not None
        channels, rows, columns = mean.shape
        fleet = _fleet(experiment, conv, hidden, (channels, rows, columns), classes, mean, None, where)
    for name, tensor in fleet.state().items():
        tensor.copy_(tensors[name])
    return fleet


def _fleet(
    experiment: Experiment,
    conv: Conv,
    hidden: Sequence[int],
    shape: tuple[int, int, int],
    classes: int,
    mean: torch.Tensor,
    spreads: Sequence[float] | None,
    where: torch.device | str,
) -> ConvFleet:
    pairs, units = experiment.pairs(), experiment.net.units
    rates = [Rates(conv.rate if arm.conv else 0.0, experiment.rates(arm)[1]) for arm, _ in pairs]
    return conv_fleet(
        [
            image_net(conv, hidden, classes, shape=shape, units=units, rates=own, seed=seed)
            for own, (_, seed) in zip(rates, pairs, strict=True)
        ],
        [seed for _, seed in pairs],
        spreads,
        output_sd=experiment.net.initial_sd,
        bias=[experiment.initial_bias(arm) for arm, _ in pairs],
        units=units,
        mean=mean,
        scale=conv.scale,
        decays=[experiment.decays(arm) for arm, _ in pairs],
        device=where,
    )
