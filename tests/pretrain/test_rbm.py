"""Restricted Boltzmann machines against enumeration of all states, and against scikit-learn's formulas."""

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.special import logsumexp
from sklearn.neural_network import BernoulliRBM
from sklearn.utils import check_random_state
from tiny import joint, logistic, machine, parts, states

from meannet.pretrain import ais, rbm
from meannet.pretrain.draws import Draws

SHAPES = pytest.mark.parametrize("labels", [0, 3])


def every(made):
    """All visible states as cases of every net."""
    return torch.from_numpy(states(made.sizes[0], made.labels))[None]


@SHAPES
def test_free_energy_sums_hidden_states_out_and_gives_the_partition_function(labels):
    made = machine(visible=6, labels=labels)
    found = rbm.free_energy(made, every(made)).numpy()
    for net in range(2):
        _, _, p = joint(made, net)
        np.testing.assert_allclose(found[net], -np.log(p.sum(1)), rtol=1e-12)
        np.testing.assert_allclose(logsumexp(-found[net]), np.log(p.sum()), rtol=1e-12)


@SHAPES
def test_energy_is_that_of_the_definition(labels):
    made = machine(visible=6, labels=labels)
    v, h, p = joint(made, 1)
    pairs = [(x, y) for x in v for y in h]
    visible, hidden = (torch.from_numpy(np.array(side))[None] for side in zip(*pairs, strict=True))
    np.testing.assert_allclose(rbm.energy(made, visible, hidden)[1], -np.log(p).ravel(), rtol=1e-11, atol=1e-12)


@SHAPES
def test_means_are_the_conditional_expectations(labels):
    made = machine(visible=6, labels=labels)
    v, h, p = joint(made)
    hidden = rbm.hidden_means(made, torch.from_numpy(v)[None])[0]
    visible = rbm.visible_means(made, torch.from_numpy(h)[None])[0]
    np.testing.assert_allclose(hidden, (p / p.sum(1, keepdims=True)) @ h, rtol=1e-12)
    np.testing.assert_allclose(visible, (p / p.sum(0)).T @ v, rtol=1e-11)


def test_gaussian_free_energy_integrates_to_the_density_of_the_definition():
    made = machine(visible=1, hidden=3, kind="gaussian")
    weights, a, b = parts(made, 1)

    def density(x):
        by_state = [np.exp(-0.5 * (x - a[0]) ** 2 + h @ (b + weights[:, 0] * x)) for h in states(3)]
        return sum(by_state)

    at = torch.linspace(-4, 4, 9, dtype=torch.float64)
    found = rbm.free_energy(made, at[None, :, None])[1]
    np.testing.assert_allclose(found, [-np.log(density(x)) for x in at.tolist()], rtol=1e-12)
    # Given hidden states the units are normal of variance 1 around visible_means.
    h = states(3)[5]
    mean = rbm.visible_means(made, torch.from_numpy(h)[None, None])[1, 0, 0].item()
    moment = [
        integrate.quad(lambda x, k=k: x**k * np.exp(-0.5 * (x - a[0]) ** 2 + x * (h @ weights[:, 0])), -25, 25)[0]
        for k in range(3)
    ]
    assert moment[1] / moment[0] == pytest.approx(mean, rel=1e-9)
    assert moment[2] / moment[0] - mean**2 == pytest.approx(1, rel=1e-7)


def test_a_layer_with_doubled_inputs_has_no_partition_function():
    with pytest.raises(ValueError, match="has no energy"):
        ais.log_partition(rbm.initial_rbm(3, 2, [0], up=2.0), temperatures=5)


def test_doubled_inputs_are_those_of_two_copies_of_the_other_side():
    made = machine(visible=5, labels=2, up=2.0)
    weights, a, b = parts(made)
    v = torch.from_numpy(states(5, 2))
    np.testing.assert_allclose(rbm.hidden_means(made, v[None])[0], logistic(2 * (v.numpy() @ weights.T + b)))
    down = machine(visible=5, labels=2, down=2.0)
    h = states(3)
    total = h @ weights + a
    labels = np.exp(total[:, 3:]) / np.exp(total[:, 3:]).sum(1, keepdims=True)
    expected = np.concatenate((logistic(2 * total[:, :3]), labels), 1)
    np.testing.assert_allclose(rbm.visible_means(down, torch.from_numpy(h)[None])[0], expected)
    with pytest.raises(ValueError, match="has no energy"):
        rbm.free_energy(made, v[None])


def test_formulas_agree_with_scikit_learns():
    made = machine(visible=6, hidden=4)
    peer = BernoulliRBM(n_components=4, random_state=3)
    peer.components_, peer.intercept_visible_, peer.intercept_hidden_ = parts(made)
    v = states(6)
    peer.n_features_in_ = 6
    cases = torch.from_numpy(v)[None]
    np.testing.assert_allclose(rbm.free_energy(made, cases)[0], peer._free_energy(v), rtol=1e-12)
    np.testing.assert_allclose(rbm.hidden_means(made, cases)[0], peer.transform(v), rtol=1e-12)
    flipped = torch.from_numpy(check_random_state(3).randint(0, 6, len(v)))
    np.testing.assert_allclose(rbm.pseudo_log_likelihood(made, cases, flipped)[0], peer.score_samples(v), rtol=1e-12)


def test_pseudo_likelihood_averages_to_the_log_probabilities_of_units_given_the_rest():
    made = machine()
    v, _, p = joint(made)
    p = p.sum(1)
    given = np.zeros(len(v))
    for i in range(4):
        other = v.copy()
        other[:, i] = 1 - other[:, i]
        twin = [int(np.flatnonzero((v == row).all(1))[0]) for row in other]
        given += np.log(p / (p + p[twin]))
    cases = torch.from_numpy(v)[None]
    found = [rbm.pseudo_log_likelihood(made, cases, torch.full((len(v),), i))[0].numpy() for i in range(4)]
    np.testing.assert_allclose(np.mean(found, 0), given, rtol=1e-11)


def test_reconstruction_is_once_up_and_down_without_a_draw():
    made = machine()
    weights, a, b = parts(made)
    v = states(4)
    expected = logistic(logistic(v @ weights.T + b) @ weights + a)
    cases = torch.from_numpy(v)[None]
    np.testing.assert_allclose(rbm.reconstruction(made, cases)[0], expected, rtol=1e-12)
    error = ((v - expected) ** 2).sum(1).mean()
    assert rbm.reconstruction_error(made, cases)[0].item() == pytest.approx(error, rel=1e-12)


@SHAPES
def test_long_chains_visit_states_as_often_as_the_machine_says(labels):
    made = machine(visible=4 + labels, labels=labels, nets=1, scale=0.7)
    v, _, p = joint(made)
    start = torch.zeros(1, 20000, made.sizes[0], dtype=torch.float64)
    found = rbm.gibbs(made, start, Draws(made.seeds, 0, 0), 30)[0].numpy()
    share = [(found == row).all(1).mean() for row in v]
    np.testing.assert_allclose(share, p.sum(1) / p.sum(), atol=0.015)


def test_biases_from_data_give_means_of_the_data_and_stay_finite_where_a_unit_never_changes():
    made = machine(visible=4)
    made.weights.zero_()
    rbm.data_biases_(made, torch.tensor([[0.0, 0.25, 1.0, 0.5]] * 2), 100)
    means = rbm.visible_means(made, torch.zeros(2, 1, 3, dtype=torch.float64))
    np.testing.assert_allclose(means[0, 0], [1 / 200, 0.25, 1 - 1 / 200, 0.5], rtol=1e-9)
    gaussian = machine(visible=2, kind="gaussian")
    rbm.data_biases_(gaussian, torch.tensor([[3.0, -1.0]] * 2), 100)
    assert gaussian.visible_biases.tolist() == [[3.0, -1.0]] * 2


def test_an_unknown_kind_of_units_is_refused():
    with pytest.raises(ValueError, match="bernoulli or gaussian, not 'poisson'"):
        rbm.initial_rbm(3, 2, [0], kind="poisson")
