"""A fitted fleet as plain modules of PyTorch (the mean network, scaling included), and its thinned networks."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from meannet.core.dropout import kept
from meannet.core.philox import SAMPLE
from meannet.estimators.cases import FARTHEST, Scaling
from meannet.nn import dense
from meannet.nn.dense import Fleet


class Standardise(nn.Module):
    """(x - mean) / scale, after x is brought to their precision; then outliers are drawn in, as `Scaling` says."""

    def __init__(self, scaling: Scaling):
        super().__init__()
        self.reach = scaling.reach
        self.register_buffer("mean", torch.from_numpy(scaling.mean.copy()))
        self.register_buffer("scale", torch.from_numpy(scaling.scale.copy()))

    def forward(self, x: Tensor) -> Tensor:
        z = (x.to(self.scale.dtype) - self.mean) / self.scale
        if math.isinf(self.reach):
            return z
        z = z.clamp(-FARTHEST, FARTHEST)
        return z / (1 + (z / self.reach).square()).sqrt()


class Restore(Standardise):
    """From standardised targets back to their own scale."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.mean


class Softmaxes(nn.Module):
    """Several softmaxes side by side."""

    def __init__(self, groups: Sequence[int]):
        super().__init__()
        self.groups = list(groups)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part.softmax(-1) for part in x.split(self.groups, -1)], -1)


class Average(nn.Module):
    """The mean of what several networks give."""

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([network(x) for network in self.networks]).mean(0)


def mean_module(fleet: Fleet, inputs: Scaling, targets: Scaling | None) -> nn.Module:
    """The mean network from raw inputs to probabilities or predictions, in float64; several are averaged."""
    networks = [_one_network(fleet, net, inputs, targets) for net in range(len(fleet.seeds))]
    return (networks[0] if len(networks) == 1 else Average(networks)).requires_grad_(False).eval()


def _one_network(fleet: Fleet, net: int, inputs: Scaling, targets: Scaling | None) -> nn.Sequential:
    parts: list[nn.Module] = [Standardise(inputs)]
    for k, (size, units) in enumerate(pairwise(fleet.sizes)):
        rate = fleet.rates[k]
        keep = 1.0 if rate is None else 1 - rate[net].double()
        layer = nn.Linear(size, units, device="meta")  # so that nothing is drawn from the global random stream
        layer.weight = nn.Parameter(fleet.weights[k][net].double() * keep)
        layer.bias = nn.Parameter(fleet.biases[k][net].double())
        parts.append(layer)
        if k < len(fleet.weights) - 1:
            parts.append(nn.Sigmoid() if fleet.units == "logistic" else nn.ReLU())
    return nn.Sequential(*parts, output_module(fleet, targets))


def output_module(fleet: Fleet, targets: Scaling | None) -> nn.Module:
    """From the outputs' total inputs to probabilities, or to targets on their own scale."""
    if targets is not None:
        return Restore(targets)
    if fleet.groups:
        return Softmaxes(fleet.groups)
    return nn.Sigmoid() if fleet.output == "logistic" else nn.Softmax(-1)


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
