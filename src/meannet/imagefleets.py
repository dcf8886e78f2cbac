"""Fleets of image nets (G) as an experiment asks for them: new ones for a data set, or those of a saved state."""

from collections.abc import Sequence

import torch

from meannet import outcome
from meannet.config import Conv, Experiment
from meannet.data import Dataset
from meannet.nn.convfleet import ConvFleet, conv_fleet, pixel_mean
from meannet.nn.convnets import Rates, image_net, working_spreads

CASES_TO_TRY = 128  # when initial variances are tried


def make(
    experiment: Experiment, conv: Conv, hidden: Sequence[int], dataset: Dataset, where: torch.device | str
) -> ConvFleet:
    shape, classes = outcome.image_shape(dataset), len(dataset.classes)
    images = dataset.train.inputs.view(-1, *shape)
    mean = pixel_mean(images)
    spreads = conv.initial_sd
    if not spreads:
        few = (images[:CASES_TO_TRY].float() - mean) * conv.scale
        net = image_net(conv, hidden, classes, shape=shape, units=experiment.net.units)
        spreads = working_spreads(net, few, max(experiment.net.initial_bias, 0.5))
    return _fleet(experiment, conv, hidden, shape, classes, mean, spreads, where)


def restored(experiment: Experiment, conv: Conv, hidden: Sequence[int], tensors: dict[str, torch.Tensor]) -> ConvFleet:
    """The fleet whose state these tensors are; the mean of its pictures, (channels, rows, columns), is among them."""
    channels, rows, columns = tensors["mean"].shape
    layers = len(conv.banks) + len(conv.local) + len(hidden)
    classes = tensors[f"biases.{layers}"].shape[1]
    fleet = _fleet(experiment, conv, hidden, (channels, rows, columns), classes, tensors["mean"], [1.0] * layers, "cpu")
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
    spreads: Sequence[float],
    where: torch.device | str,
) -> ConvFleet:
    pairs = [(arm, seed) for arm in experiment.arms for seed in experiment.seeds]
    units = experiment.net.units
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
