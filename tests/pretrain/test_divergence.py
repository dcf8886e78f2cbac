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


def expected_cd(made, v, steps, sample):
    """The update's expectation: every hidden state that the data may give, and on from there."""
    weights, a, b = parts(made)
    h = states(made.sizes[1])
    every = states(made.sizes[0])
    up = logistic(v @ weights.T + b)
    # Of each case, the probability of each hidden state.
    p = np.prod(np.where(h[None] > 0, up[:, None], 1 - up[:, None]), -1)
    down = logistic(h @ weights + a)
    if not sample:
        assert steps == 1
        fantasy = down  # by hidden state
        again = logistic(fantasy @ weights.T + b)
        model = np.einsum("nh,hj,hi->nji", p, again, fantasy), p @ fantasy, p @ again
    else:
        visible = np.prod(np.where(every[None] > 0, down[:, None], 1 - down[:, None]), -1)  # given a hidden state
        back = logistic(every @ weights.T + b)
        hidden = np.prod(np.where(h[None] > 0, back[:, None], 1 - back[:, None]), -1)  # given a visible state
        q = p @ visible
        for _ in range(steps - 1):
            q = q @ hidden @ visible
        model = np.einsum("nv,vj,vi->nji", q, back, every), q @ every, q @ back
    positive = np.einsum("nj,ni->nji", up, v), v, up
    return [(one - other).mean(0) for one, other in zip(positive, model, strict=True)]


@pytest.mark.parametrize(("steps", "kind"), [(1, "means"), (1, "samples"), (3, "samples")])
def test_the_mean_update_is_the_expectation_over_all_states(steps, kind):
    made = machine()
    v, many = data(), copies(made, NETS)
    contrastive_divergence_(many, v[None], Draws(many.seeds, 0, 0), step=ONE, momentum=NONE, steps=steps, states=kind)
    agree(changes(many, made), expected_cd(made, v.numpy(), steps, kind == "samples"))


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
