"""Deep Boltzmann machines with two hidden layers (A.2; Salakhutdinov and Hinton 2009): mean field, persistent chains.

Visible units and the second hidden layer are connected to the first hidden layer only, and labels, where there are
some, to the second. So the machine is a restricted one with the first hidden layer and the labels on one side, and the
visible units and the second hidden layer on the other. It is kept as that: Gibbs sampling, energy and update are those
of rbm.py.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from meannet.fast.units import fused, logistic
from meannet.pretrain.divergence import step_
from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import RBM, energy, sample_hidden, sample_visible, visible_means

DAMPING = 0.9  # of the running mean activities that the sparsity pull looks at


@dataclass
class DBM:
    """`folded` has (first hidden, labels) as its visible and (visible, second hidden) as its hidden side."""

    folded: RBM
    inputs: int  # visible units
    chains: Tensor  # (nets, particles, first hidden + labels)
    activities: Tensor  # (nets, first hidden + second hidden), running means

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Visible, first and second hidden units."""
        one, other = self.folded.sizes
        return self.inputs, one - self.folded.labels, other - self.inputs

    def state(self) -> dict[str, Tensor]:
        return self.folded.state() | {"chains": self.chains, "activities": self.activities}


def composed(first: RBM, second: RBM, particles: int, stage: int, targets: tuple[float, float] = (0.2, 0.1)) -> DBM:
    """From two layers that were trained with doubled inputs; the biases of the layer between them add up.

    Chains begin at the first hidden layer's states given random visible ones.
    """
    nets, hidden, inputs = first.weights.shape
    labels, top = second.labels, second.weights.shape[1]
    corner = first.weights.new_zeros(nets, inputs, labels)
    weights = torch.cat((torch.cat((first.weights.mT, corner), 2), second.weights), 1).contiguous()
    between = second.visible_biases.clone()
    between[:, :hidden] += first.hidden_biases
    outside = torch.cat((first.visible_biases, second.hidden_biases), 1)
    folded = RBM(
        seeds=first.seeds,
        weights=weights,
        visible_biases=between,
        hidden_biases=outside,
        weight_velocities=torch.zeros_like(weights),
        visible_velocities=torch.zeros_like(between),
        hidden_velocities=torch.zeros_like(outside),
        labels=labels,
    )
    draws = Draws(first.seeds, 128 + stage, 0)
    noise = draws.on(weights.new_full((nets, particles, inputs), 0.5))
    start = [draws.on((2 * _below(DBM(folded, inputs, noise, noise), noise)).sigmoid())]
    if labels:
        start.append(draws.one_of(weights.new_zeros(nets, particles, labels)))
    aim = weights.new_tensor([targets[0]] * hidden + [targets[1]] * top).repeat(nets, 1)
    return DBM(folded, inputs, torch.cat(start, -1), aim)


def mean_field(dbm: DBM, visible: Tensor, labels: Tensor | None = None, sweeps: int = 30) -> tuple[Tensor, Tensor]:
    """Means of both hidden layers given visible units, (nets, cases, units), and labels where they are known.

    Each sweep sets the first layer given the second, then the second given the first, which never lowers the bound. A
    fixed number of sweeps needs no look at how far the means moved. It begins with one pass up, the input doubled.
    """
    below, between, above = _below(dbm, visible), _parts(dbm)[1], _above(dbm, labels)
    units = logistic if fused(between) else _logistic
    first = (2 * below).sigmoid()
    second = units(first, between.mT, above)
    for _ in range(sweeps):
        first = units(second, between, below)
        second = units(first, between.mT, above)
    return first, second


def bound(dbm: DBM, visible: Tensor, first: Tensor, second: Tensor, log_partition: Tensor) -> Tensor:
    """A lower bound on each case's log probability, (nets, cases), whatever the means are; without labels.

    `log_partition` is (nets,), from ais.py or by enumeration.
    """
    if dbm.folded.labels:
        raise ValueError("the bound is for machines without labels")
    outside = torch.cat((visible.expand(len(second), -1, -1), second), -1)
    entropy = sum(
        torch.special.entr(means).sum(-1) + torch.special.entr(1 - means).sum(-1) for means in (first, second)
    )
    return entropy - energy(dbm.folded, first, outside) - log_partition[:, None]


@torch.no_grad()
def joint_update_(
    dbm: DBM,
    visible: Tensor,
    labels: Tensor | None,
    draws: Draws,
    *,
    step: Tensor,
    momentum: Tensor,
    decay: float = 0.0,
    sweeps: int = 30,
    steps: int = 5,
    states: str = "means",
    targets: tuple[float, float] = (0.2, 0.1),
    cost: float = 0.0,
) -> None:
    """One update of all layers: mean field for the data, chains for the model; `labels` are one-hot.

    Of the second layer the model's statistics have, as in the authors' code, its means given the means of the first
    layer and the labels; or, with `states="samples"`, the chains' states. The latter follow the bound's gradient, the
    former do not: units that are mostly off are on more often given states than given means. But mean field makes the
    same mistake on the data's side, and where it is on one side only the second layer falls silent.

    The sparsity pull takes `cost` times what a unit's running mean activity exceeds its target off its activities in
    the data's statistics.
    """
    hidden = dbm.sizes[1]
    first, second = mean_field(dbm, visible, labels, sweeps)
    if cost:
        dbm.activities.mul_(DAMPING).add_(torch.cat((first.mean(1), second.mean(1)), 1), alpha=1 - DAMPING)
        first = first - cost * (dbm.activities[:, None, :hidden] - targets[0])
        second = second - cost * (dbm.activities[:, None, hidden:] - targets[1])
    inside = first if labels is None else torch.cat((first, labels.expand(len(first), -1, -1)), -1)
    outside = torch.cat((visible.expand(len(second), -1, -1), second), -1)
    beyond = chain_(dbm, draws, steps)
    within = visible_means(dbm.folded, beyond)
    if states == "means":
        beyond = torch.cat((beyond[..., : dbm.inputs], _second_means(dbm, within)), -1)
    step_(
        dbm.folded,
        (inside, outside),
        (within, beyond),
        step=step,
        momentum=momentum,
        decay=decay,
        unconnected=(dbm.inputs, dbm.folded.labels),
    )


def chain_(dbm: DBM, draws: Draws, steps: int) -> Tensor:
    """Move the chains on by so many steps; returns the visible and second-layer states, (nets, particles, units).

    The first layer's means given these, not its states, go into the model's statistics.
    """
    states = dbm.chains
    for _ in range(steps):
        states = sample_hidden(dbm.folded, dbm.chains, draws)
        dbm.chains.copy_(sample_visible(dbm.folded, states, draws))
    return states


def reconstruction_error(dbm: DBM, visible: Tensor) -> Tensor:
    """Squared, of the visible means given the first layer's mean-field activities, averaged over cases, (nets,)."""
    first, _ = mean_field(dbm, visible)
    found = torch.baddbmm(dbm.folded.hidden_biases[:, None, : dbm.inputs], first, _parts(dbm)[0].mT).sigmoid_()
    return (visible - found).square().sum(-1).mean(-1)


def _logistic(given: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
    return (torch.matmul(given, weights) + biases).sigmoid_()


def _parts(dbm: DBM) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (nets, visible, first), (nets, second, first) and (nets, second, labels)."""
    weights, hidden = dbm.folded.weights, dbm.sizes[1]
    return weights[:, : dbm.inputs, :hidden], weights[:, dbm.inputs :, :hidden], weights[:, dbm.inputs :, hidden:]


def _second_means(dbm: DBM, within: Tensor) -> Tensor:
    """Of the second layer given the first one and the labels, (nets, cases, first + labels)."""
    hidden, between = dbm.sizes[1], _parts(dbm)[1]
    units = logistic if fused(between) else _logistic
    return units(within[..., :hidden], between.mT, _above(dbm, within[..., hidden:] if dbm.folded.labels else None))


def _above(dbm: DBM, labels: Tensor | None) -> Tensor:
    """The second layer's total input from labels, where they are known, and its biases."""
    biases = dbm.folded.hidden_biases[:, None, dbm.inputs :]
    return biases if labels is None else biases + torch.matmul(labels, _parts(dbm)[2].mT)


def _below(dbm: DBM, visible: Tensor) -> Tensor:
    """The first layer's total input from the visible units and its biases."""
    first = _parts(dbm)[0]
    biases = dbm.folded.visible_biases[:, None, : first.shape[2]]
    return torch.baddbmm(biases, visible.expand(len(first), -1, -1), first)
