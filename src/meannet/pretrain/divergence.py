"""Contrastive divergence (A.2, B.1), from the data or with persistent chains: one update of a fleet of machines."""

import torch
from torch import Tensor

from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import RBM, hidden_means, sample_hidden, sample_visible, visible_means


@torch.no_grad()
def contrastive_divergence_(
    rbm: RBM,
    visible: Tensor,
    draws: Draws,
    *,
    step: Tensor,
    momentum: Tensor,
    decay: float = 0.0,
    steps: int = 1,
    states: str = "means",
    chains: Tensor | None = None,
) -> None:
    """One update from the cases `visible`, (nets or 1, cases, visible units).

    What the hidden units hand down is always sampled. What the visible ones hand up is their means, as in the authors'
    code for the deep belief net, or `states="samples"`. Statistics have the hidden units' probabilities. With `chains`,
    (nets, particles, visible), which are changed in place, the model's side comes from them instead of from the cases,
    and visible units are sampled. `step` multiplies the average gradient.
    """
    upwards = hidden_means(rbm, visible)
    if chains is None:
        fantasy = visible_after(rbm, draws.on(upwards), draws, states)
        steps -= 1
    else:
        fantasy = chains
    for _ in range(steps):
        hidden = sample_hidden(rbm, fantasy, draws)
        fantasy = visible_after(rbm, hidden, draws, "samples" if chains is not None else states)
    if chains is not None:
        chains.copy_(fantasy)
    step_(rbm, (visible, upwards), (fantasy, hidden_means(rbm, fantasy)), step=step, momentum=momentum, decay=decay)


def visible_after(rbm: RBM, hidden: Tensor, draws: Draws, states: str) -> Tensor:
    return visible_means(rbm, hidden) if states == "means" else sample_visible(rbm, hidden, draws)


@torch.no_grad()
def step_(
    rbm: RBM,
    data: tuple[Tensor, Tensor],
    model: tuple[Tensor, Tensor],
    *,
    step: Tensor,
    momentum: Tensor,
    decay: float,
    unconnected: tuple[int, int] = (0, 0),
) -> None:
    """velocity := momentum * velocity + step * (data - model statistics - decay * weight); parameter += velocity.

    Each side is visible and hidden activities of its cases, over which it is averaged. Biases have no decay. `step` and
    `momentum` are tensors without axes: what changes from epoch to epoch must not be part of a captured graph.
    `unconnected` names a corner of the weights that stays zero: the first so many hidden and the last so many visible
    units have none between them.
    """
    of_data, of_model = step / data[1].shape[1], -step / model[1].shape[1]
    visible = torch.cat((data[0].expand(len(rbm.weights), -1, -1), model[0]), 1)
    hidden = torch.cat((data[1] * of_data, model[1] * of_model), 1)
    velocity = rbm.weight_velocities.mul_(momentum).addcmul_(rbm.weights, step * decay, value=-1)
    if rbm.rounded is None:
        velocity.baddbmm_(hidden.mT, visible)
    else:
        velocity.add_(torch.bmm(hidden.to(rbm.rounded.dtype).mT, visible.to(rbm.rounded.dtype)))
    rbm.hidden_velocities.mul_(momentum).add_(hidden.sum(1))
    rbm.visible_velocities.mul_(momentum).add_(data[0].sum(1) * of_data + model[0].sum(1) * of_model)
    none, others = unconnected
    if others:
        velocity[:, :none, velocity.shape[2] - others :].zero_()
    rbm.weights.add_(velocity)
    rbm.visible_biases.add_(rbm.visible_velocities)
    rbm.hidden_biases.add_(rbm.hidden_velocities)
    if rbm.rounded is not None:
        rbm.rounded.copy_(rbm.weights)
