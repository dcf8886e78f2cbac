"""A fitted fleet as plain modules of PyTorch (the mean network, scaling included), and its thinned networks."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meannet import plain
from meannet.core.dropout import kept
from meannet.core.philox import SAMPLE
from meannet.estimators.cases import Scaling
from meannet.nn import dense
from meannet.nn.dense import Fleet

FARTHEST_MEAN = 1000.0  # in standard deviations, where float32 is to do for a column

Machine = Sequence[tuple[Tensor, Tensor]]  # weights and biases of a deep Boltzmann machine's two layers


def shape(fleet: Fleet, inputs: Scaling) -> dict[str, Any]:
    """What plain.network must know to build networks like those of the fleet."""
    return {
        "reach": None if math.isinf(inputs.reach) else inputs.reach,
        "sizes": [len(inputs.mean), *fleet.sizes[1:]],
        "units": fleet.units,
        "output": fleet.output,
        "groups": list(fleet.groups),
        "nets": len(fleet.seeds),
    }


def mean_module(
    fleet: Fleet, inputs: Scaling, targets: Scaling | None, machines: Sequence[Machine] = (), sweeps: int = 0
) -> nn.Module:
    """The mean network from raw inputs to probabilities or predictions, in float64; several are averaged.

    Where nets see activities of their own deep Boltzmann machines, there is a machine for each, and so many sweeps.
    """
    facts = shape(fleet, inputs) | {"sweeps": sweeps}
    states = [_state(fleet, net, inputs, targets, int(bool(machines))) for net in range(len(fleet.seeds))]
    for state, machine in zip(states, machines, strict=False):
        for name, (weight, bias) in zip(("first", "second"), machine, strict=True):
            state |= {f"1.{name}.weight": weight.double().contiguous(), f"1.{name}.bias": bias.double().contiguous()}
    return plain.network(facts, states)


def rounded(network: nn.Module) -> nn.Module:
    """The same in float32, which takes half the time; itself where float32 cannot hold its columns.

    It has 24 bits, so that numbers a thousand times as large as their spread keep 14 of them for it.
    """
    found = copy.deepcopy(network).float()
    scalings = [part for part in found.modules() if isinstance(part, plain.Standardise)]
    held = all((one.scale > 0).all() and one.scale.isfinite().all() for one in scalings)
    near = all((one.mean.abs() <= FARTHEST_MEAN * one.scale).all() for one in scalings)
    return found if held and near else network


def _state(fleet: Fleet, net: int, inputs: Scaling, targets: Scaling | None, after: int) -> dict[str, Tensor]:
    """Parameters by their names in plain.network: scaling is part 0, layer k is part 2k + 1, then come the outputs.

    All layers are so many parts later where there are parts `after` the scaling.
    """
    state = dict(zip(("0.mean", "0.scale"), _tensors(inputs), strict=True))
    for k, (weight, bias) in enumerate(zip(fleet.weights, fleet.biases, strict=True)):
        rate = fleet.rates[k]
        keep = 1.0 if rate is None else 1 - rate[net].double()
        state[f"{2 * k + 1 + after}.weight"] = weight[net].double() * keep
        state[f"{2 * k + 1 + after}.bias"] = bias[net].double().clone()
    if targets is not None:
        last = 2 * len(fleet.weights)
        state |= zip((f"{last}.mean", f"{last}.scale"), _tensors(targets), strict=True)
    return state


def _tensors(scaling: Scaling) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(scaling.mean.copy()), torch.from_numpy(scaling.scale.copy())


class Thinned:
    """Thinned networks of a fitted fleet: number i is one network, the same for every case, of net i modulo nets."""

    def __init__(self, fleet: Fleet, inputs: Scaling, device: torch.device):
        nets = range(len(fleet.seeds))
        self.nets = [fleet.pick([net], device) for net in nets]
        for net in self.nets:
            net.weights, net.biases = [w.double() for w in net.weights], [b.double() for b in net.biases]
        self.scaling, self.device = inputs, device

    @torch.no_grad()
    def outputs(self, x: np.ndarray, samples: range) -> Tensor:
        """Before the softmax, float64 (samples, cases, outputs)."""
        inputs = torch.from_numpy(self.scaling.apply(x)).to(self.device)[None]
        return torch.cat([self._one(inputs, sample) for sample in samples])

    def _one(self, inputs: Tensor, sample: int) -> Tensor:
        net = self.nets[sample % len(self.nets)]
        keep = [
            None if rate is None else kept(net.seeds, sample, k, rate, range(1), units, SAMPLE)
            for k, (rate, units) in enumerate(zip(net.rates, net.sizes, strict=False))
        ]
        return dense.activities(net, inputs, keep)[-1]
