"""Restricted Boltzmann machines (A.2, B.1), many at once: parameters have a leading axis of nets, as in nn/dense.py.

Visible units are Bernoulli, or Gaussian of variance 1. The last ones may be labels, one of which is on. States and
means are (nets, cases, units); inputs that all nets share may have 1 in place of nets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from meannet.core import philox
from meannet.fast.units import fused, logistic, logistic_states
from meannet.pretrain.draws import Draws

VISIBLE = ("bernoulli", "gaussian")


@dataclass
class RBM:
    """Parameters and velocities of machines of one shape.

    `up` and `down` multiply the total inputs of hidden and of visible units, biases included, labels excepted: a layer
    that a deep Boltzmann machine will use from above as well is trained with its input doubled (see dbm.py).
    """

    seeds: Tensor  # (nets,) int64
    weights: Tensor  # (nets, hidden, visible)
    visible_biases: Tensor  # (nets, visible)
    hidden_biases: Tensor  # (nets, hidden)
    weight_velocities: Tensor
    visible_velocities: Tensor
    hidden_velocities: Tensor
    visible: str = "bernoulli"
    labels: int = 0
    up: float = 1.0
    down: float = 1.0
    chains: Tensor | None = None  # (nets, particles, visible), where persistent ones are kept
    rounded: Tensor | None = None  # weights in the precision of products, where that is not their own

    @property
    def sizes(self) -> tuple[int, int]:
        return self.weights.shape[2], self.weights.shape[1]

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training changes, by name; the tensors themselves, not copies."""
        names = ("weights", "visible_biases", "hidden_biases")
        velocities = ("weight_velocities", "visible_velocities", "hidden_velocities")
        found = {name: getattr(self, name) for name in (*names, *velocities)}
        return found if self.chains is None else found | {"chains": self.chains}


def initial_rbm(
    visible: int,
    hidden: int,
    seeds: Sequence[int],
    *,
    layer: int = 0,
    kind: str = "bernoulli",
    labels: int = 0,
    sd: float = 0.01,
    up: float = 1.0,
    down: float = 1.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> RBM:
    """Small random weights, those of a net's layer `layer` with the same seed but for `sd`; all else zero.

    `visible` counts the labels too.
    """
    if kind not in VISIBLE:
        raise ValueError(f"visible units must be {' or '.join(VISIBLE)}, not {kind!r}")
    drawn = [philox.normal(seed, layer, hidden * visible).view(hidden, visible) for seed in seeds]
    weights = (torch.stack(drawn) * sd).to(device, dtype)
    visible_biases, hidden_biases = weights.new_zeros(len(seeds), visible), weights.new_zeros(len(seeds), hidden)
    return RBM(
        seeds=torch.tensor(list(seeds), device=device),
        weights=weights,
        visible_biases=visible_biases,
        hidden_biases=hidden_biases,
        weight_velocities=torch.zeros_like(weights),
        visible_velocities=torch.zeros_like(visible_biases),
        hidden_velocities=torch.zeros_like(hidden_biases),
        visible=kind,
        labels=labels,
        up=up,
        down=down,
    )


def hidden_means(rbm: RBM, visible: Tensor) -> Tensor:
    """The probability that each hidden unit is on."""
    if fused(rbm.weights):
        return logistic(visible, rbm.weights.mT, rbm.hidden_biases[:, None], rbm.up)
    return _scaled(_total(rbm, visible, rbm.hidden_biases, upwards=True), rbm.up).sigmoid_()


def visible_means(rbm: RBM, hidden: Tensor) -> Tensor:
    """Probabilities of Bernoulli units and labels, means of Gaussian ones."""
    total = visible_totals(rbm, hidden)
    if not rbm.labels:
        return total if rbm.visible == "gaussian" else total.sigmoid_()
    units, labels = _apart(rbm, total)
    return torch.cat((units if rbm.visible == "gaussian" else units.sigmoid(), labels.softmax(-1)), -1)


def visible_totals(rbm: RBM, hidden: Tensor) -> Tensor:
    """Total inputs of visible units."""
    total = _total(rbm, hidden, rbm.visible_biases, upwards=False)
    _scaled(total[..., : total.shape[-1] - rbm.labels], rbm.down)
    return total


def sample_hidden(rbm: RBM, visible: Tensor, draws: Draws) -> Tensor:
    if fused(rbm.weights):
        return logistic_states(visible, rbm.weights.mT, rbm.hidden_biases[:, None], rbm.up, draws.next())
    return draws.on(hidden_means(rbm, visible))


def sample_visible(rbm: RBM, hidden: Tensor, draws: Draws) -> Tensor:
    if rbm.visible == "bernoulli" and fused(rbm.weights):
        return _sample_visible_fused(rbm, hidden, draws)
    total = visible_totals(rbm, hidden)
    if not rbm.labels:
        return _states(rbm, total, draws)
    units, labels = _apart(rbm, total)
    return torch.cat((_states(rbm, units.contiguous(), draws), draws.one_of(labels)), -1)


def _sample_visible_fused(rbm: RBM, hidden: Tensor, draws: Draws) -> Tensor:
    units, biases = rbm.sizes[0] - rbm.labels, rbm.visible_biases[:, None]
    states = hidden.new_empty(len(rbm.weights), hidden.shape[1], rbm.sizes[0])
    own = rbm.weights[..., :units], biases[..., :units], rbm.down
    logistic_states(hidden, *own, draws.next(), out=states[..., :units])
    if rbm.labels:
        totals = torch.baddbmm(biases[..., units:], hidden.expand(len(states), -1, -1), rbm.weights[..., units:])
        states[..., units:] = draws.one_of(totals)
    return states


def reconstruction(rbm: RBM, visible: Tensor) -> Tensor:
    """Means of the visible units given the means of the hidden ones: once up and down, without a draw."""
    return visible_means(rbm, hidden_means(rbm, visible))


def reconstruction_error(rbm: RBM, visible: Tensor) -> Tensor:
    """Squared, summed over units and averaged over cases, (nets,)."""
    return (visible - reconstruction(rbm, visible)).square().sum(-1).mean(-1)


def energy(rbm: RBM, visible: Tensor, hidden: Tensor) -> Tensor:
    """(nets, cases)"""
    need_one_machine(rbm)
    interaction = (torch.matmul(visible, rbm.weights.mT) * hidden).sum(-1)
    return _own(rbm, visible) - (hidden * rbm.hidden_biases[:, None]).sum(-1) - interaction


def free_energy(rbm: RBM, visible: Tensor) -> Tensor:
    """Minus the log of the sum over hidden states of exp(-energy), (nets, cases)."""
    need_one_machine(rbm)
    return _own(rbm, visible) - F.softplus(_total(rbm, visible, rbm.hidden_biases, upwards=True)).sum(-1)


def pseudo_log_likelihood(rbm: RBM, visible: Tensor, flipped: Tensor) -> Tensor:
    """An estimate for each case, (nets, cases), of the sum over units of the log probability of a unit given the rest.

    `flipped`, (cases,) int64, is the one unit that is looked at in each case; its log probability stands for all. Over
    units drawn uniformly the estimate is right on average. Bernoulli units only.
    """
    if rbm.visible != "bernoulli" or rbm.labels:
        raise ValueError("the pseudo-likelihood by flipping is for Bernoulli visible units without labels")
    place = F.one_hot(flipped, visible.shape[-1]).bool()
    other = torch.where(place, 1 - visible, visible)
    return visible.shape[-1] * F.logsigmoid(free_energy(rbm, other) - free_energy(rbm, visible))


@torch.no_grad()
def gibbs(rbm: RBM, visible: Tensor, draws: Draws, steps: int) -> Tensor:
    """Visible states after so many times up and down."""
    for _ in range(steps):
        visible = sample_visible(rbm, sample_hidden(rbm, visible, draws), draws)
    return visible


def data_biases_(rbm: RBM, means: Tensor, cases: int) -> None:
    """Visible biases log(p / (1 - p)) from the mean activities p of `cases` cases (B.1); Gaussian ones are p itself.

    Probabilities are kept within [1 / 2n, 1 - 1 / 2n], since B.1's formula has no value where a unit is always off.
    """
    if rbm.visible == "gaussian":
        rbm.visible_biases.copy_(means)
        return
    least = 1 / (2 * cases)
    bounded = means.double().clamp(least, 1 - least)
    units = bounded.shape[-1] - rbm.labels
    found = bounded.log()  # of labels: a softmax takes logs of probabilities
    found[..., :units] = (found[..., :units] - torch.log1p(-bounded[..., :units])) / rbm.down
    rbm.visible_biases.copy_(found)


def rounded_(rbm: RBM, dtype: torch.dtype) -> None:
    """Let products be taken in `dtype` from here on; parameters stay as precise as they are."""
    rbm.rounded = None if dtype == rbm.weights.dtype else rbm.weights.to(dtype)


def _total(rbm: RBM, given: Tensor, biases: Tensor, *, upwards: bool) -> Tensor:
    """Weighted sums over the other side's units, plus biases; a new tensor."""
    weights = rbm.weights if rbm.rounded is None else rbm.rounded
    given = given.expand(len(weights), -1, -1)
    matrix = weights.mT if upwards else weights
    if rbm.rounded is None:
        return torch.baddbmm(biases[:, None], given, matrix)
    return torch.bmm(given.to(weights.dtype), matrix) + biases[:, None]


def _scaled(total: Tensor, factor: float) -> Tensor:
    return total if factor == 1 else total.mul_(factor)


def _states(rbm: RBM, total: Tensor, draws: Draws) -> Tensor:
    return draws.around(total) if rbm.visible == "gaussian" else draws.on(total.sigmoid())


def _apart(rbm: RBM, visible: Tensor) -> tuple[Tensor, Tensor]:
    return visible[..., : -rbm.labels], visible[..., -rbm.labels :]


def _own(rbm: RBM, visible: Tensor) -> Tensor:
    """The part of the energy that is the visible units' alone, (nets, cases)."""
    biases = rbm.visible_biases[:, None]
    if rbm.visible == "bernoulli":
        return -(visible * biases).sum(-1)
    if not rbm.labels:
        return 0.5 * (visible - biases).square().sum(-1)
    (units, labels), (own, theirs) = _apart(rbm, visible), _apart(rbm, biases)
    return 0.5 * (units - own).square().sum(-1) - (labels * theirs).sum(-1)


def need_one_machine(rbm: RBM) -> None:
    if rbm.up != 1 or rbm.down != 1:
        raise ValueError("a layer trained with doubled inputs is part of a deep Boltzmann machine and has no energy")
