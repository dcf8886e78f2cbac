"""From a pretrained stack to nets for finetuning (A.2): weights, and the extra inputs of a deep Boltzmann machine."""

from dataclasses import replace

import torch
from torch import Tensor

from meannet.data import Cases, Dataset
from meannet.nn.dense import Fleet
from meannet.nn.own import OwnInputs
from meannet.pretrain.dbm import mean_field
from meannet.pretrain.stack import Stack, chunk


@torch.no_grad()
def install_(fleet: Fleet, stack: Stack, *, scale_up: bool) -> None:
    """Put the stack's layers and its softmax layer into a fleet of arms x seeds, arm by arm.

    With `scale_up` weights that omitted units feed are divided by 1 - rate, so that on average a unit sees the input
    that it was pretrained with.
    """
    arms = len(fleet.seeds) // len(stack.seeds)
    for k, (weight, bias) in enumerate(layers(stack)):
        fleet.weights[k].copy_(weight.repeat(arms, 1, 1))
        fleet.biases[k].copy_(bias.repeat(arms, 1))
        rate = fleet.rates[k]
        if scale_up and rate is not None:
            fleet.weights[k].div_((1 - rate).to(weight.dtype)[:, None, :])


def layers(stack: Stack) -> list[tuple[Tensor, Tensor]]:
    """Weights (seeds, units, inputs) and biases of the unrolled net; the softmax layer's only where it was trained."""
    if stack.dbm is not None:
        folded, (inputs, hidden, _) = stack.dbm.folded, stack.dbm.sizes
        found = [
            (folded.weights[:, :, :hidden].mT, folded.visible_biases[:, :hidden]),
            (folded.weights[:, inputs:, :hidden], folded.hidden_biases[:, inputs:]),
        ]
    else:
        found = [(layer.weights, layer.hidden_biases) for layer in stack.layers]
    if stack.softmax is not None:
        found.append((stack.softmax.weights[0], stack.softmax.biases[0]))
    return found


def seen(stack: Stack, dataset: Dataset, arms: int) -> Dataset:
    """The cases as nets of arms x seeds see them: as they are, or with activities of each net's own machine."""
    if stack.dbm is None:
        return dataset
    which = torch.arange(len(stack.seeds)).repeat(arms)

    def extended(cases: Cases) -> Cases:
        return Cases(OwnInputs(with_activities(stack, cases.inputs), which), cases.targets)

    return replace(dataset, train=extended(dataset.train), test=extended(dataset.test))


@torch.no_grad()
def with_activities(stack: Stack, inputs: Tensor) -> Tensor:
    """Inputs, then mean-field activities of the second layer without labels, (seeds, cases, inputs + units)."""
    assert stack.dbm is not None
    visible = inputs.shape[1]
    found = torch.empty(len(stack.seeds), len(inputs), visible + stack.dbm.sizes[2])
    found[..., :visible] = inputs
    start = 0
    for part in inputs.split(chunk(stack)):
        activities = mean_field(stack.dbm, part[None].to(stack.device), sweeps=stack.settings.joint.sweeps)[1]
        found[:, start : start + len(part), visible:] = activities.cpu()
        start += len(part)
    return found
