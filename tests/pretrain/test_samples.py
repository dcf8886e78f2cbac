"""Samples of tiny stacks: their means and variances are those of visible means given hidden states of the model."""

import numpy as np
import pytest
import torch
from tiny import joint, logistic, machine, parts, states

from meannet.config import Pretrain
from meannet.pretrain import stack
from meannet.pretrain.dbm import DBM

COUNT = 20000


def drawn(made):
    """One sample from each of many chains, (COUNT, visible)."""
    start = torch.zeros(COUNT, made.sizes[0], dtype=torch.float64)
    return stack.samples(made, start, COUNT, 40)[0].numpy()


def layered(layers, visible="bernoulli"):
    sizes = (layers[0].sizes[0], *(layer.sizes[1] for layer in layers))
    made = stack.new_stack(Pretrain(softmax_epochs=0, visible=visible), sizes, 2, [0])
    made.layers = layers
    return made


def agree(found, share, means):
    """What was drawn has the moments of these means, (states, visible), of which each has its probability."""
    share = share / share.sum()
    expected = share @ means
    variance = share @ (means - expected) ** 2
    np.testing.assert_allclose(found.mean(0), expected, atol=4.5 * np.sqrt(variance.max() / COUNT))
    np.testing.assert_allclose(found.var(0), variance, rtol=0.06)
    return expected


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian"])
def test_samples_of_one_layer_are_visible_means_given_drawn_hidden_states(kind):
    made = machine(nets=1, kind=kind, seed=1, scale=1.5 if kind == "bernoulli" else 0.7)
    weights, a, b = parts(made)
    h = states(3)
    if kind == "gaussian":  # the visible units integrated out
        share = np.exp(h @ b + h @ weights @ a + 0.5 * ((h @ weights) ** 2).sum(1))
        agree(drawn(layered([made], kind)), share, h @ weights + a)
    else:
        v, _, p = joint(made)
        expected = agree(drawn(layered([made])), p.sum(0), logistic(h @ weights + a))
        np.testing.assert_allclose(expected, p.sum(1) @ v / p.sum(), rtol=1e-12)  # the model's mean


def test_samples_of_a_belief_net_come_down_from_its_top_layer_as_states():
    below, middle, top = (
        machine(visible=units, hidden=above, nets=1, seed=units, scale=1.5) for units, above in ((5, 4), (4, 3), (3, 3))
    )
    v, _, p = joint(top)
    chance = logistic(v @ parts(middle)[0] + parts(middle)[1])  # of the first hidden layer given the second
    first = states(4)
    share = p.sum(1) @ np.prod(np.where(first[None] > 0, chance[:, None], 1 - chance[:, None]), -1)
    agree(drawn(layered([below, middle, top])), share, logistic(first @ parts(below)[0] + parts(below)[1]))


@pytest.mark.parametrize("labels", [0, 2])
def test_samples_of_a_boltzmann_machine_are_visible_means_given_drawn_states_of_its_first_layer(labels):
    folded = machine(visible=3 + labels, hidden=4 + 2, nets=1, labels=labels)
    if labels:
        folded.weights[:, :4, 3:] = 0
    made = stack.new_stack(Pretrain(model="dbm", softmax_epochs=0), (4, 3, 2), max(labels, 1), [0])
    made.dbm = DBM(folded, 4, torch.zeros(0), torch.zeros(0))
    inside, outside, p = joint(folded)
    expected = agree(drawn(made), p.sum(1), logistic(inside @ folded.weights[0].numpy().T + parts(folded)[2])[:, :4])
    np.testing.assert_allclose(expected, (p.sum(0) @ outside / p.sum())[:4], rtol=1e-12)
