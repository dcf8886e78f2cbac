"""Dense nets with dropout (A.1), many at once: parameters have a leading axis of nets, and one net is a fleet of one.

This is the plain version, the truth that the fast ones are tested against.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from meannet.core import philox
from meannet.core.dropout import kept
from meannet.core.maxnorm import constrain_incoming_
from meannet.core.metrics import loss_gradient
from meannet.core.philox import MASK, SAMPLE

UNITS = ("logistic", "rectified")


@dataclass
class Fleet:
    """Parameters and velocities of nets of one shape, and what makes each its own: seed and rates."""

    units: str
    output: str  # softmax, logistic or linear
    seeds: Tensor  # (nets,) int64
    rates: list[Tensor | None]  # of the visible units, then of each hidden layer, (nets, units or 1); None: all kept
    weights: list[Tensor]  # (nets, units, inputs)
    biases: list[Tensor]  # (nets, units)
    weight_velocities: list[Tensor]
    bias_velocities: list[Tensor]
    groups: tuple[int, ...] = ()  # sizes of several softmaxes side by side; empty: the outputs are one
    adapting: bool = False  # whether training changes rates too, which are then (nets, units)
    decay: Tensor | None = None  # what multiplies half of the weights' squared lengths in the loss, (nets, 1, 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.weights[0].shape[2], *(weight.shape[1] for weight in self.weights))

    @property
    def device(self) -> torch.device:
        return self.weights[0].device

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training changes, by name; the tensors themselves, not copies."""
        groups = ("weights", "biases", "weight_velocities", "bias_velocities")
        found = {f"{group}.{k}": t for group in groups for k, t in enumerate(getattr(self, group))}
        rates = enumerate(self.rates) if self.adapting else ()
        return found | {f"rates.{k}": rate for k, rate in rates if rate is not None}

    @property
    def floats_a_case(self) -> int:
        """How many activities of one layer are held for each case that is tested."""
        return len(self.seeds) * max(self.sizes)

    def omits(self, net: int) -> bool:
        """Whether any unit of a net may be omitted."""
        return any(rate is not None and bool(rate[net].any()) for rate in self.rates)

    def pick(self, nets: Sequence[int], device: torch.device | str | None = None) -> "Fleet":
        """Some of the nets, as copies, where they are or on `device`."""
        chosen = list(nets)

        def taken(tensors: Sequence[Tensor]) -> list[Tensor]:
            return [tensor[chosen].to(device or tensor.device) for tensor in tensors]

        return replace(
            self,
            seeds=taken([self.seeds])[0],
            rates=[None if rate is None else taken([rate])[0] for rate in self.rates],
            weights=taken(self.weights),
            biases=taken(self.biases),
            weight_velocities=taken(self.weight_velocities),
            bias_velocities=taken(self.bias_velocities),
            decay=None if self.decay is None else taken([self.decay])[0],
        )

    def mean_outputs(self, inputs: Tensor) -> Tensor:
        """Of the mean network for inputs (nets or 1, cases, visible), before the softmax: (nets, cases, outputs)."""
        return mean_network(self, inputs)

    def sampled_outputs(self, inputs: Tensor, sample: int, cases: range) -> Tensor:
        """Of one thinned network a net, drawn for these numbers of test cases: (nets, cases, outputs)."""
        return activities(self, inputs, masks(self, sample, cases, SAMPLE))[-1]

    def sampler(self, inputs: Tensor, cases: range) -> Callable[[int], Tensor]:
        """`sampled_outputs` by the number of the sample; what samples of a net have in common may be computed once."""
        return lambda sample: self.sampled_outputs(inputs, sample, cases)


def initial_fleet(
    sizes: Sequence[int],
    seeds: Sequence[int],
    rates: Sequence[Tensor],
    *,
    units: str,
    output: str = "softmax",
    groups: Sequence[int] = (),
    sd: float | Sequence[float] = 0.01,
    bias: float | Sequence[float] = 0.0,
    bias_sd: float = 0.0,
    first_layer: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Fleet:
    """Small random weights, zero velocities; hidden biases start at `bias`, one or one a net, output biases at 0.

    `sd` is that of all weights, or one a layer; `bias_sd` that of hidden biases around `bias`. A net that is the upper
    part of another names the `first_layer` that it has of it, and draws the same weights.
    """
    weights, biases = [], []
    spread = [sd] * (len(sizes) - 1) if isinstance(sd, int | float) else sd
    for k, (inputs, outputs) in enumerate(pairwise(sizes)):
        drawn = [philox.normal(seed, first_layer + k, outputs * inputs).view(outputs, inputs) for seed in seeds]
        weights.append((torch.stack(drawn) * spread[k]).to(device, dtype))
        start = torch.tensor(bias if k < len(sizes) - 2 else 0.0, device=device, dtype=dtype)
        biases.append(start.reshape(-1, 1).expand(len(seeds), outputs).clone())
        if bias_sd and k < len(sizes) - 2:
            spread_out = [philox.normal(seed, first_layer + len(sizes) + k, outputs) for seed in seeds]
            biases[-1] += (torch.stack(spread_out) * bias_sd).to(device, dtype)
    return Fleet(
        units=units,
        output=output,
        groups=tuple(groups),
        seeds=torch.tensor(list(seeds), device=device),
        rates=[rate.to(device) if rate.any() else None for rate in rates],
        weights=weights,
        biases=biases,
        weight_velocities=[torch.zeros_like(w) for w in weights],
        bias_velocities=[torch.zeros_like(b) for b in biases],
    )


def activities(fleet: Fleet, inputs: Tensor, keep: Sequence[Tensor | None]) -> list[Tensor]:
    """What each layer passes on, and last the outputs before the softmax; inputs are (nets or 1, cases, visible).

    `keep[k]` multiplies layer k's activities: 0 and 1 give a thinned network, 1 - rate the mean network, whose
    outgoing weights are thereby scaled down as the body says. None keeps all.
    """
    below = inputs if keep[0] is None else inputs * keep[0]
    passed = [below]
    last = len(fleet.weights) - 1
    for k, (weight, bias) in enumerate(zip(fleet.weights, fleet.biases, strict=True)):
        below = below.expand(len(weight), -1, -1)
        below = torch.baddbmm(bias[:, None, :], below, weight.mT)  # (nets, cases, units)
        if k < last:
            below = below.sigmoid_() if fleet.units == "logistic" else below.relu_()
            factor = keep[k + 1]
            if factor is not None:
                below = below.mul_(factor)
        passed.append(below)
    return passed


def mean_network(fleet: Fleet, inputs: Tensor) -> Tensor:
    """Outputs, before the softmax, of the network that has all units, with outgoing weights scaled by 1 - rate."""
    if len(fleet.seeds) == 1:
        return _single_mean_network(fleet, inputs[0])[None]
    dtype = fleet.weights[0].dtype
    keep = [None if rate is None else (1 - rate).to(dtype)[:, None, :] for rate in fleet.rates]
    return activities(fleet, inputs, keep)[-1]


def _single_mean_network(fleet: Fleet, below: Tensor) -> Tensor:
    """The same for one net, faster: no batch of products, and a rate that all units of a layer share is part of one."""
    last = len(fleet.weights) - 1
    for k, (weight, bias, rate) in enumerate(zip(fleet.weights, fleet.biases, fleet.rates, strict=True)):
        keep = 1.0
        if rate is not None and rate.shape[1] == 1:
            keep = 1 - rate.item()
        elif rate is not None:
            below = below * (1 - rate).to(weight.dtype)
        below = torch.addmm(bias[0], below, weight[0].mT, alpha=keep)
        if k < last:
            below = below.sigmoid_() if fleet.units == "logistic" else below.relu_()
    return below


def masks(fleet: Fleet, update: int, cases: range, purpose: int = MASK) -> list[Tensor | None]:
    """Which units each case keeps, (nets, cases, units) for each layer; None where no net omits any."""
    return [
        None if rate is None else kept(fleet.seeds, update, k, rate, cases, units, purpose)
        for k, (rate, units) in enumerate(zip(fleet.rates, fleet.sizes, strict=False))
    ]


def deltas(fleet: Fleet, passed: Sequence[Tensor], targets: Tensor, weights: Tensor | None = None) -> list[Tensor]:
    """Derivatives of the mean loss of the cases by each layer's total inputs, for a thinned network.

    `weights`, (nets, cases), multiply the losses of their cases.

    A unit's derivative follows from its masked activity a alone: a (1 - a) for logistic and [a > 0] for rectified
    units are both 0 where the unit was omitted.
    """
    delta = loss_gradient(passed[-1], targets, fleet.output, fleet.groups) / passed[-1].shape[1]
    if weights is not None:
        delta = delta * weights.unsqueeze(-1)
    found = [delta]
    for k in range(len(fleet.weights) - 1, 0, -1):
        activity = passed[k]
        slope = activity * (1 - activity) if fleet.units == "logistic" else (activity > 0).to(activity.dtype)
        delta = torch.bmm(delta, fleet.weights[k]).mul_(slope)
        found.append(delta)
    return found[::-1]


@torch.no_grad()
def update_(
    fleet: Fleet, passed: Sequence[Tensor], found: Sequence[Tensor], step: Tensor, momentum: float, limit: Tensor
):
    """One step of momentum for every parameter, then the norm bound on hidden units (A.1).

    `step` and `limit` are (nets, 1, 1). The gradient product adds straight into the velocity.
    """
    last = len(fleet.weights) - 1
    for k, (below, delta) in enumerate(zip(passed, found, strict=False)):
        weight, velocity = fleet.weights[k], fleet.weight_velocities[k]
        scaled = delta * step  # (nets, cases, units)
        velocity.baddbmm_(scaled.mT, below.expand(len(weight), -1, -1), beta=momentum, alpha=-1)
        if fleet.decay is not None:
            velocity.sub_(step * fleet.decay * weight)
        weight.add_(velocity)
        fleet.biases[k].add_(fleet.bias_velocities[k].mul_(momentum).sub_(scaled.sum(1)))
        if k < last:
            constrain_incoming_(weight, limit)
