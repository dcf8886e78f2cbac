"""Deep Boltzmann machines at a tiny scale: bound, expectation of an update, partition function, composition."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from tiny import agree, changes, copies, joint, logistic, machine, model_statistics, parts, samples

from meannet.pretrain import ais, dbm
from meannet.pretrain.dbm import DBM
from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import free_energy, initial_rbm, sample_hidden, sample_visible

V, H1, H2 = 4, 3, 2
ONE, NONE = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)


def tiny_dbm(nets=1, labels=0, scale=1.0, seed=0):
    folded = machine(visible=H1 + labels, hidden=V + H2, nets=nets, labels=labels, scale=scale, seed=seed)
    if labels:
        folded.weights[:, :V, H1:] = 0
    chains = torch.zeros(nets, 6, H1 + labels, dtype=torch.float64)
    return DBM(folded, V, chains, torch.full((nets, H1 + H2), 0.5, dtype=torch.float64))


def pieces(made):
    """W1 (first, visible), W2 (second, first), biases of visible, first and second units, by the paper's drawing."""
    folded = made.folded
    weights, between, outside = folded.weights[0].numpy(), folded.visible_biases[0].numpy(), folded.hidden_biases[0]
    return weights[:V, :H1].T, weights[V:, :H1], outside[:V].numpy(), between[:H1], outside[V:].numpy()


def biases(made):
    return made.folded.visible_biases, made.folded.hidden_biases


def log_probabilities(made):
    """Unnormalised logs of every (v, h1, h2), by the definition, as arrays of states and a table."""
    w1, w2, a, b, c = pieces(made)
    vs, firsts, seconds = (np.array(list(itertools.product((0.0, 1.0), repeat=n))) for n in (V, H1, H2))
    table = np.array([[[v @ a + f @ b + s @ c + f @ w1 @ v + s @ w2 @ f for s in seconds] for f in firsts] for v in vs])
    return vs, firsts, seconds, table


def test_the_bound_is_never_above_the_log_probability_and_rises_with_every_update_of_a_layer():
    made = tiny_dbm(scale=1.5)
    w1, w2, _, b, c = pieces(made)
    vs, _, _, table = log_probabilities(made)
    log_z = logsumexp(table)
    exact = logsumexp(table, axis=(1, 2)) - log_z
    visible, z = torch.from_numpy(vs)[None], torch.tensor([log_z])
    first = np.random.default_rng(0).random((len(vs), H1))
    second = np.random.default_rng(1).random((len(vs), H2))
    bounds = []
    for update in range(12):
        if update % 2:
            first = logistic(vs @ w1.T + second @ w2 + b)
        else:
            second = logistic(first @ w2.T + c)
        means = (torch.from_numpy(side)[None] for side in (first, second))
        bounds.append(dbm.bound(made, visible, *means, z)[0].numpy())
    assert (np.diff(bounds, axis=0) >= -1e-12).all() and (bounds[-1] > bounds[0]).all()
    assert (np.array(bounds) <= exact + 1e-12).all() and (exact - bounds[-1] < 1).all()
    swept = [dbm.bound(made, visible, *dbm.mean_field(made, visible, sweeps=n), z)[0].numpy() for n in range(8)]
    assert (np.diff(swept, axis=0) >= -1e-12).all()
    np.testing.assert_allclose(dbm.mean_field(made, visible, sweeps=300)[1][0], second, atol=0.02)


def test_mean_field_solves_its_equations_with_and_without_labels():
    made = tiny_dbm(labels=2)
    w1, w2, _, b, c = pieces(made)
    v = (np.random.default_rng(2).random((5, V)) > 0.5).astype(float)
    y = np.eye(2)[[0, 1, 1, 0, 1]]
    u = made.folded.weights[0, V:, H1:].numpy()
    for labels, extra in ((None, 0.0), (torch.from_numpy(y)[None], y @ u.T)):
        first, second = (m[0].numpy() for m in dbm.mean_field(made, torch.from_numpy(v)[None], labels, 400))
        np.testing.assert_allclose(first, logistic(v @ w1.T + second @ w2 + b), atol=1e-9)
        np.testing.assert_allclose(second, logistic(first @ w2.T + c + extra), atol=1e-9)


def statistics_of_means(made, labels):
    """Under the machine, of both layers' means: the first one's given the others' states, the second's given those."""
    w1, w2, _, b, c = pieces(made)
    u, e = made.folded.weights[0, V:, H1:].numpy(), made.folded.visible_biases[0, H1:].numpy()
    _, others, p = joint(made.folded)  # states of visible and second-layer units together
    p = p.sum(0) / p.sum()
    first, y = logistic(others[:, :V] @ w1.T + others[:, V:] @ w2 + b), np.zeros((len(p), 0))
    if labels:
        y = np.exp(others[:, V:] @ u + e)
        y /= y.sum(1, keepdims=True)
    inside = np.concatenate((first, y), 1)
    outside = np.concatenate((others[:, :V], logistic(first @ w2.T + y @ u.T + c)), 1)
    return np.einsum("s,so,si->oi", p, outside, inside), p @ inside, p @ outside


@pytest.mark.parametrize("states", ["samples", "means"])
@pytest.mark.parametrize("labels", [0, 2])
def test_the_mean_update_is_mean_field_minus_the_machines_own_statistics_once_chains_have_mixed(labels, states):
    nets = 4000
    made = tiny_dbm(labels=labels, scale=0.8)
    many = DBM(copies(made.folded, nets), V, torch.zeros(0), made.activities.repeat(nets, 1))
    many.chains = torch.from_numpy(samples(made.folded, nets * 3)).view(nets, 3, -1).clone()
    v = (torch.rand(5, V, generator=torch.Generator().manual_seed(3)) > 0.5).double()[None]
    y = torch.eye(2, dtype=torch.float64)[[0, 1, 1, 0, 1]][None] if labels else None
    first, second = (m[0].numpy() for m in dbm.mean_field(made, v, y, 20))
    draws = Draws(many.folded.seeds, 0, 0)
    dbm.joint_update_(many, v, y, draws, step=ONE, momentum=NONE, sweeps=20, steps=2, states=states)
    inside = first if y is None else np.concatenate((first, y[0].numpy()), 1)
    outside = np.concatenate((v[0].numpy(), second), 1)
    found = model_statistics(made.folded) if states == "samples" else statistics_of_means(made, labels)
    products, visible, hidden = found
    weights = outside.T @ inside / 5 - products
    if labels:
        weights[:V, H1:] = 0  # visible units and labels are not connected
        assert (many.folded.weights[:, :V, H1:] == 0).all()
    agree(changes(many.folded, made.folded), [weights, inside.mean(0) - visible, outside.mean(0) - hidden])


def test_the_update_with_states_is_the_gradient_of_the_bound_by_autograd():
    nets = 4000
    made = tiny_dbm(scale=0.8)
    v = (torch.rand(5, V, generator=torch.Generator().manual_seed(3)) > 0.5).double()[None]
    means = dbm.mean_field(made, v, sweeps=300)  # where they are best, so that they need no derivative
    leaves = [t.clone().requires_grad_() for t in (made.folded.weights, *biases(made))]
    leaf = replace(
        made, folded=replace(made.folded, weights=leaves[0], visible_biases=leaves[1], hidden_biases=leaves[2])
    )
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=H1)), dtype=torch.float64)[None]
    log_z = (-free_energy(leaf.folded, every)).logsumexp(1)
    gradient = torch.autograd.grad(dbm.bound(leaf, v, *means, log_z).mean(), leaves)
    many = DBM(copies(made.folded, nets), V, torch.zeros(0), made.activities.repeat(nets, 1))
    many.chains = torch.from_numpy(samples(made.folded, nets * 3)).view(nets, 3, -1).clone()
    draws = Draws(many.folded.seeds, 0, 0)
    dbm.joint_update_(many, v, None, draws, step=ONE, momentum=NONE, sweeps=300, states="samples")
    agree(changes(many.folded, made.folded), [one[0].numpy() for one in gradient])


@pytest.mark.parametrize("states", ["samples", "means"])
def test_joint_training_raises_the_exact_log_likelihood_of_its_cases(states):
    cases = np.array([[1.0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 0]])
    made = dbm.composed(initial_rbm(V, H1, [0], sd=0.3), initial_rbm(H1, H2, [0], layer=1, sd=0.3), 50, 2)

    def likelihood():
        vs, _, _, table = log_probabilities(made)
        exact = dict(zip(map(tuple, vs), logsumexp(table, axis=(1, 2)) - logsumexp(table), strict=True))
        return np.mean([exact[tuple(case)] for case in cases])

    before, visible = likelihood(), torch.from_numpy(cases).float()[None]
    for update in range(600):
        dbm.joint_update_(
            made,
            visible,
            None,
            Draws(made.folded.seeds, 2, update),
            step=torch.tensor(0.05),
            momentum=torch.tensor(0.5),
            sweeps=10,
            states=states,
        )
    # One in sixteen each where nothing was learned, one in four at best.
    assert before < -np.log(15) and -np.log(8) < likelihood() < -np.log(4)


@pytest.mark.parametrize("steps", [1, 3])
def test_chains_go_on_from_where_they_were_by_as_many_gibbs_steps_as_asked(steps):
    made = tiny_dbm(scale=0.5)
    states, pictures = made.chains.clone(), torch.eye(V, dtype=torch.float64)[None]
    for number in range(3):
        dbm.joint_update_(
            made, pictures, None, Draws(made.folded.seeds, 2, number), step=NONE, momentum=NONE, steps=steps
        )
        draws = Draws(made.folded.seeds, 2, number)
        for _ in range(steps):
            states = sample_visible(made.folded, sample_hidden(made.folded, states, draws), draws)
        assert made.chains.equal(states)


def test_the_sparsity_pull_lowers_activities_that_are_above_their_target():
    made, pulled = tiny_dbm(), tiny_dbm()
    v = torch.ones(1, 5, V, dtype=torch.float64)
    for one, cost in ((made, 0.0), (pulled, 0.1)):
        draws = Draws(one.folded.seeds, 0, 0)
        dbm.joint_update_(one, v, None, draws, step=ONE, momentum=NONE, cost=cost, targets=(0.01, 0.01))
    first, second = dbm.mean_field(tiny_dbm(), v)
    means = torch.cat((first.mean(1), second.mean(1)), 1)[0] * 0.1 + 0.9 * 0.5
    change = pulled.folded.visible_biases - made.folded.visible_biases
    torch.testing.assert_close(change[0], -0.1 * (means[:H1] - 0.01), rtol=1e-10, atol=0)
    upper = (pulled.folded.hidden_biases - made.folded.hidden_biases)[0]
    torch.testing.assert_close(upper[V:], -0.1 * (means[H1:] - 0.01), rtol=1e-10, atol=0)
    assert (upper[:V] == 0).all()


@pytest.mark.parametrize("labels", [0, 2])
def test_annealed_importance_sampling_meets_the_partition_function_within_its_error_bar(labels):
    made = tiny_dbm(nets=3, labels=labels)
    found = ais.log_partition(made.folded, temperatures=300, particles=500)
    for net in range(3):
        _, _, p = joint(made.folded, net)
        assert found.low[net] < np.log(p.sum()) < found.high[net]
        assert found.high[net] - found.low[net] < 0.5
        assert found.log_partition[net].item() == pytest.approx(np.log(p.sum()), abs=0.12)


@pytest.mark.parametrize("labels", [0, 2])
def test_annealed_importance_sampling_of_gaussian_units_meets_the_closed_form(labels):
    made = machine(visible=4 + labels, nets=3, kind="gaussian", labels=labels, scale=0.7)
    found = ais.log_partition(made, temperatures=300, particles=500)
    h = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    for net in range(3):
        weights, a, b = parts(made, net)
        total = h @ weights
        by_state = h @ b + total[:, :4] @ a[:4] + 0.5 * (total[:, :4] ** 2).sum(1) + 2 * np.log(2 * np.pi)
        if labels:
            by_state += logsumexp(total[:, 4:] + a[4:], axis=1)
        assert found.low[net] < logsumexp(by_state) < found.high[net]
        assert found.high[net] - found.low[net] < 0.2


def test_annealed_importance_sampling_is_exact_without_weights():
    for kind, labels in (("bernoulli", 2), ("gaussian", 0)):
        made = machine(visible=5, kind=kind, labels=labels)
        made.weights.zero_()
        found = ais.log_partition(made, temperatures=3, particles=10)
        a = made.visible_biases.numpy()
        if kind == "gaussian":
            visible = 2.5 * np.log(2 * np.pi) * np.ones(2)
        else:
            visible = np.log1p(np.exp(a[:, :3])).sum(1) + logsumexp(a[:, 3:], axis=1)
        hidden = np.log1p(np.exp(made.hidden_biases.numpy())).sum(1)
        np.testing.assert_allclose(found.log_partition, visible + hidden, rtol=1e-12)
        np.testing.assert_allclose(found.low, found.high)


def test_few_temperatures_do_where_biases_keep_most_units_off():
    made = initial_rbm(5, 300, seeds=[0, 1, 2], sd=1.0, dtype=torch.float64)
    made.hidden_biases.fill_(-4)  # most pixels of digits are off
    states = torch.tensor(list(itertools.product((0.0, 1.0), repeat=5)), dtype=torch.float64)
    exact = (-free_energy(made, states[None].expand(3, -1, -1))).logsumexp(1)
    found = ais.log_partition(made, temperatures=20, particles=200)
    torch.testing.assert_close(found.log_partition, exact, rtol=0, atol=0.1)


def test_a_composed_machine_has_both_layers_weights_and_the_sum_of_biases_between_them():
    one = machine(visible=V, hidden=H1, up=2.0)
    other = machine(visible=H1 + 2, hidden=H2, labels=2, down=2.0, seed=1)
    made = dbm.composed(one, other, particles=8, stage=2)
    w1, w2, a, b, c = pieces(made)
    np.testing.assert_array_equal(w1, one.weights[0])
    np.testing.assert_array_equal(w2, other.weights[0, :, :H1])
    np.testing.assert_array_equal(a, one.visible_biases[0])
    np.testing.assert_array_equal(b, one.hidden_biases[0] + other.visible_biases[0, :H1])
    np.testing.assert_array_equal(c, other.hidden_biases[0])
    assert made.sizes == (V, H1, H2) and (made.folded.weights[:, :V, H1:] == 0).all()
    assert made.chains.shape == (2, 8, H1 + 2) and (made.chains[..., H1:].sum(-1) == 1).all()
    assert set(made.chains.unique().tolist()) == {0.0, 1.0}


def test_seeds_of_one_fleet_train_as_they_would_alone():
    def layers(seeds):
        first = initial_rbm(V, H1, seeds, sd=0.5, up=2.0)
        return dbm.composed(first, initial_rbm(H1, H2, seeds, layer=1, sd=0.5, down=2.0), 5, 2)

    together, alone = layers([3, 8]), layers([8])
    v = (torch.rand(1, 6, V, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    step, momentum = torch.tensor(0.1), torch.tensor(0.5)
    for made in (together, alone):
        for update in range(4):
            dbm.joint_update_(
                made, v, None, Draws(made.folded.seeds, 2, update), step=step, momentum=momentum, cost=0.01
            )
    for name, tensor in alone.state().items():
        torch.testing.assert_close(together.state()[name][1:], tensor, rtol=1e-5, atol=1e-6)
