"""A fitted fleet as plain modules of PyTorch (the mean network, scaling included), and its thinned networks."""

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


def shape(fleet: Fleet, inputs: Scaling) -> dict[str, Any]:
    """What plain.network must know to build networks like those of the fleet."""
    return {
        "reach": None if math.isinf(inputs.reach) else inputs.reach,
        "sizes": list(fleet.sizes),
        "units": fleet.units,
        "output": fleet.output,
        "groups": list(fleet.groups),
        "nets": len(fleet.seeds),
    }


def mean_module(fleet: Fleet, inputs: Scaling, targets: Scaling | None) -> nn.Module:
    """The mean network from raw inputs to probabilities or predictions, in float64; several are averaged."""
    return plain.network(shape(fleet, inputs), [_state(fleet, net, inputs, targets) for net in range(len(fleet.seeds))])


def _state(fleet: Fleet, net: int, inputs: Scaling, targets: Scaling | None) -> dict[str, Tensor]:
    """Parameters by their names in plain.network: scaling is part 0, layer k is part 2k + 1, then come the outputs."""
    state = dict(zip(("0.mean", "0.scale"), _tensors(inputs), strict=True))
    for k, (weight, bias) in enumerate(zip(fleet.weights, fleet.biases, strict=True)):
        rate = fleet.rates[k]
        keep = 1.0 if rate is None else 1 - rate[net].double()
        state[f"{2 * k + 1}.weight"] = weight[net].double() * keep
        state[f"{2 * k + 1}.bias"] = bias[net].double().clone()
    if targets is not None:
        last = 2 * len(fleet.weights)
        state |= zip((f"{last}.mean", f"{last}.scale"), _tensors(targets), strict=True)
    return state


def _tensors(scaling: Scaling) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(scaling.mean.copy()), torch.from_numpy(scaling.scale.copy())


def pick(fleet: Fleet, nets: Sequence[int], device: torch.device | str = "cpu") -> Fleet:
    """Some nets of a fleet, as copies on `device`."""

    def taken(tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensor[list(nets)].to(device, copy=True) for tensor in tensors]

    return Fleet(
        units=fleet.units,
        output=fleet.output,
        groups=fleet.groups,
        seeds=taken([fleet.seeds])[0],
        rates=[None if rate is None else taken([rate])[0] for rate in fleet.rates],
        weights=taken(fleet.weights),
        biases=taken(fleet.biases),
        weight_velocities=taken(fleet.weight_velocities),
        bias_velocities=taken(fleet.bias_velocities),
    )


class Thinned:
    """Thinned networks of a fitted fleet: number i is one network, the same for every case, of net i modulo nets."""

    def __init__(self, fleet: Fleet, inputs: Scaling, device: torch.device):
        nets = range(len(fleet.seeds))
        self.nets = [pick(fleet, [net], device) for net in nets]
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
