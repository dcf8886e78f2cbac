"""Contrastive divergence: expectations by enumeration, persistent chains against the likelihood, the rule."""

import numpy as np
import pytest
import torch
from tiny import agree, changes, copies, joint, logistic, machine, model_statistics, parts, samples, states

from meannet.pretrain.divergence import contrastive_divergence_, step_
from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import free_energy, rounded_

ONE, NONE = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
NETS = 4000


def data(count=5, units=4):
    return (torch.rand(count, units, generator=torch.Generator().manual_seed(5)) > 0.5).double()


def chances(means, states):
    """Of each of these states, given independent units with each of these means; (means, states)."""
    return np.prod(np.where(states[None] > 0, means[:, None], 1 - means[:, None]), -1)


def expected_cd(made, v, steps, sample):
    """The update's expectation: every hidden state that the data may give, and on from there."""
    weights, a, b = parts(made)
    h, units = states(made.sizes[1]), made.sizes[0] - made.labels
    up = logistic(v @ weights.T + b)
    total = h @ weights + a
    theirs = np.exp(total[:, units:]) / np.exp(total[:, units:]).sum(1, keepdims=True)
    down = np.concatenate((logistic(total[:, :units]), theirs), 1)
    # What the visible units may become, and how probable each of that is given a hidden state.
    every, visible = down, np.eye(len(h))
    if sample:
        every = states(made.sizes[0], made.labels)
        visible = chances(down[:, :units], every[:, :units])
        if made.labels:
            visible *= theirs @ every[:, units:].T
    back = logistic(every @ weights.T + b)
    q = chances(up, h) @ visible
    for _ in range(steps - 1):
        q = q @ chances(back, h) @ visible
    model = np.einsum("nv,vj,vi->nji", q, back, every), q @ every, q @ back
    positive = np.einsum("nj,ni->nji", up, v), v, up
    return [(one - other).mean(0) for one, other in zip(positive, model, strict=True)]


@pytest.mark.parametrize("labels", [0, 2])
@pytest.mark.parametrize("kind", ["means", "samples"])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_mean_update_is_the_expectation_over_all_states(steps, kind, labels):
    made = machine(visible=4 + labels, labels=labels)
    v = torch.cat((data(), torch.eye(2, dtype=torch.float64)[[0, 1, 1, 0, 1], :labels]), 1)
    many = copies(made, NETS)
    contrastive_divergence_(many, v[None], Draws(many.seeds, 0, 0), step=ONE, momentum=NONE, steps=steps, states=kind)
    agree(changes(many, made), expected_cd(made, v.numpy(), steps, kind == "samples"))


@pytest.mark.parametrize("kind", ["means", "samples"])
def test_the_mean_update_of_gaussian_units_is_the_expectation_over_hidden_states_and_visible_ones(kind):
    made = machine(visible=2, kind="gaussian", scale=0.8)
    weights, a, b = parts(made)
    v, h, many = 2 * data(units=2) - 0.3, states(3), copies(made, NETS)
    contrastive_divergence_(many, v[None], Draws(many.seeds, 0, 0), step=ONE, momentum=NONE, states=kind)
    up = logistic(v.numpy() @ weights.T + b)
    p, down = chances(up, h).mean(0), h @ weights + a
    # Normal numbers around each mean by quadrature, or the mean alone.
    nodes, share = np.polynomial.hermite_e.hermegauss(40) if kind == "samples" else (np.zeros(1), np.ones(1))
    nodes = np.stack([side.ravel() for side in np.meshgrid(nodes, nodes)], 1)
    share = np.outer(share, share).ravel() / share.sum() ** 2
    fantasy = down[:, None] + nodes  # (hidden states, nodes, 2)
    again = logistic(fantasy @ weights.T + b)
    q = p[:, None] * share
    model = np.einsum("hn,hnj,hni->ji", q, again, fantasy), p @ down, np.einsum("hn,hnj->j", q, again)
    positive = up.T @ v.numpy() / len(v), v.numpy().mean(0), up.mean(0)
    agree(changes(many, made), [one - other for one, other in zip(positive, model, strict=True)])


@pytest.mark.parametrize("labels", [0, 2])
def test_persistent_chains_that_have_mixed_give_the_gradient_of_the_log_likelihood(labels):
    made = machine(visible=4 + labels, labels=labels)
    v = torch.from_numpy(samples(machine(visible=4 + labels, labels=labels, seed=9), 5))
    leaves = [t[:1].clone().requires_grad_() for t in (made.weights, made.visible_biases, made.hidden_biases)]
    alone = machine(visible=4 + labels, labels=labels, nets=1)
    alone.weights, alone.visible_biases, alone.hidden_biases = leaves
    every = torch.from_numpy(states(4 + labels, labels))[None]
    likelihood = (-free_energy(alone, v[None])).mean() - (-free_energy(alone, every)).logsumexp(1).mean()
    gradient = [g[0].numpy() for g in torch.autograd.grad(likelihood, leaves)]
    # The same by statistics of the enumerated machine.
    up = logistic(v.numpy() @ made.weights[0].numpy().T + made.hidden_biases[0].numpy())
    of_data = np.einsum("nj,ni->ji", up, v.numpy()) / len(v), v.numpy().mean(0), up.mean(0)
    for one, positive, negative in zip(gradient, of_data, model_statistics(made), strict=True):
        np.testing.assert_allclose(one, positive - negative, rtol=1e-9, atol=1e-12)
    many = copies(made, NETS)
    chains = torch.from_numpy(samples(made, NETS * 3)).view(NETS, 3, -1)
    before = chains.clone()
    contrastive_divergence_(many, v[None], Draws(many.seeds, 0, 0), step=ONE, momentum=NONE, steps=2, chains=chains)
    agree(changes(many, made), gradient)
    assert not chains.equal(before)
    share = [(chains.view(-1, 4 + labels).numpy() == row).all(1).mean() for row in every[0].numpy()]
    _, _, p = joint(made)
    np.testing.assert_allclose(share, p.sum(1) / p.sum(), atol=0.02)


def test_chains_of_gaussian_units_that_have_mixed_give_the_gradient_of_the_log_likelihood():
    made = machine(visible=2, nets=1, kind="gaussian", scale=0.8)
    v = 2 * data(units=2) - 0.3
    leaves = [t.clone().requires_grad_() for t in (made.weights, made.visible_biases, made.hidden_biases)]
    w, a, b = (leaf[0] for leaf in leaves)
    h = torch.from_numpy(states(3))
    by_state = h @ b + h @ w @ a + 0.5 * (h @ w).square().sum(1)  # log exp(-energy), the visible units integrated out
    given = -0.5 * (v[:, None] - a).square().sum(-1) + (h @ b) + v @ (h @ w).T  # (cases, hidden states)
    likelihood = given.logsumexp(1).mean() - by_state.logsumexp(0)
    gradient = [g[0].numpy() for g in torch.autograd.grad(likelihood, leaves)]
    drawn, many = np.random.default_rng(0), copies(made, NETS)
    which = drawn.choice(8, NETS * 3, p=by_state.detach().softmax(0).numpy())
    means = states(3)[which] @ made.weights[0].numpy() + made.visible_biases[0].numpy()
    chains = torch.from_numpy(drawn.normal(means)).view(NETS, 3, 2)
    contrastive_divergence_(many, v[None], Draws(many.seeds, 0, 0), step=ONE, momentum=NONE, steps=2, chains=chains)
    agree(changes(many, made), gradient)


def test_gaussian_units_learn_the_mean_and_the_direction_of_their_data():
    made = machine(visible=2, hidden=1, nets=1, kind="gaussian", scale=0.1)
    drawn = np.random.default_rng(0)
    on = drawn.random(1000) < 0.5
    v = torch.from_numpy(drawn.normal(size=(1000, 2)) + [1.0, -2.0] + on[:, None] * [2.0, 1.0])
    for update in range(600):
        contrastive_divergence_(
            made, v[None, :], Draws(made.seeds, 0, update), step=0.05 * ONE, momentum=0.5 * ONE, states="samples"
        )
    direction = made.weights[0, 0].abs()  # the hidden unit may stand for either of the two groups
    np.testing.assert_allclose(direction, [2.0, 1.0], atol=0.35)
    signed = made.weights[0, 0] * made.hidden_biases.new_tensor([0.5])
    np.testing.assert_allclose(made.visible_biases[0] + signed, [2.0, -1.5], atol=0.4)


def test_the_step_has_momentum_and_decay_as_the_authors_code_has():
    made, cases = machine(), data()
    hidden = torch.rand(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    fantasy = torch.rand(2, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    theirs = torch.rand(2, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    weights, velocity = made.weights[1].numpy().copy(), np.zeros((3, 4))
    bias, slow = made.visible_biases[1].numpy().copy(), np.zeros(4)
    above, slower = made.hidden_biases[1].numpy().copy(), np.zeros(3)
    for _ in range(3):
        step_(made, (cases[None], hidden), (fantasy, theirs), step=0.1 * ONE, momentum=0.9 * ONE, decay=0.3)
        gradient = hidden[1].numpy().T @ cases.numpy() / 5 - theirs[1].numpy().T @ fantasy[1].numpy() / 7
        velocity = 0.9 * velocity + 0.1 * (gradient - 0.3 * weights)
        weights = weights + velocity
        slow = 0.9 * slow + 0.1 * (cases.numpy().mean(0) - fantasy[1].numpy().mean(0))
        bias = bias + slow
        slower = 0.9 * slower + 0.1 * (hidden[1].numpy().mean(0) - theirs[1].numpy().mean(0))
        above = above + slower
    np.testing.assert_allclose(made.weights[1], weights, rtol=1e-12)
    np.testing.assert_allclose(made.visible_biases[1], bias, rtol=1e-12)
    np.testing.assert_allclose(made.hidden_biases[1], above, rtol=1e-12)


def test_products_in_bfloat16_change_an_update_by_rounding_only():
    exact, rough = (machine(visible=40, hidden=30, scale=0.2) for _ in range(2))
    for made in (exact, rough):
        for name, tensor in made.state().items():
            setattr(made, name, tensor.float())
    rounded_(rough, torch.bfloat16)
    step, v = torch.tensor(0.1), data(100, 40).float()
    for made in (exact, rough):
        contrastive_divergence_(made, v[None], Draws(made.seeds, 0, 0), step=step, momentum=torch.tensor(0.5))
    difference = (exact.weight_velocities - rough.weight_velocities).norm() / exact.weight_velocities.norm()
    assert 0 < difference < 0.1
    assert rough.weights.dtype == torch.float32 and rough.rounded.equal(rough.weights.bfloat16())
