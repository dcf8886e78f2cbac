"""What fitted estimators predict: the mean network and thinned networks, against numpy and enumeration."""

import itertools

import numpy as np
import pytest
import torch
from estimator_toys import classifier, forward, layers, regressor, softmax, standard, table

from meannet.estimators import parameters

X, Y = table()


def test_probabilities_are_those_of_the_mean_network_by_hand():
    fitted = classifier(dropout_visible=0.2).fit(X, Y)
    fleet = fitted._fleet
    raw = [(w[0].double().numpy(), b[0].double().numpy()) for w, b in zip(fleet.weights, fleet.biases, strict=True)]
    expected = softmax(forward(raw, standard(X), keep=[0.8, 0.5, 0.5]))
    np.testing.assert_allclose(fitted.predict_proba(X), expected, rtol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X), expected.argmax(1))


def test_the_module_is_the_mean_network_with_its_scaling():
    fitted = classifier(dropout_visible=0.2).fit(X, Y)
    expected = softmax(forward(layers(fitted.network_), standard(X)))
    np.testing.assert_allclose(fitted.network_(torch.from_numpy(X)), expected, rtol=1e-9)
    assert isinstance(fitted.network_, torch.nn.Module) and not fitted.network_.training
    assert all(type(part).__module__.startswith("torch.nn") for part in list(fitted.network_)[1:])


@pytest.mark.parametrize("make", [classifier, regressor])
def test_inputs_in_float32_are_predicted_in_float32(make):
    fitted = make(n_nets=2).fit(X, Y)
    predict = fitted.predict_proba if make is classifier else fitted.predict
    found = predict(X.astype(np.float32))
    assert found.dtype == np.float32 and predict(X).dtype == np.float64
    np.testing.assert_allclose(found, predict(X), rtol=1e-4, atol=1e-6)


def test_columns_too_small_for_float32_are_predicted_in_float64():
    cases = np.column_stack((X, 1e-60 * X[:, 0]))
    fitted, single = classifier().fit(cases, Y), cases.astype(np.float32)
    np.testing.assert_array_equal(fitted.predict_proba(single), fitted.predict_proba(single.astype(np.float64)))


@pytest.mark.parametrize("far", ["inputs", "targets"])
def test_columns_far_from_zero_are_predicted_in_float64(far):
    cases, numbers = (X + 1e6, Y) if far == "inputs" else (X, 1e9 + 30.0 * standard(X)[:, 0])
    fitted, single = regressor().fit(cases, numbers), cases.astype(np.float32)
    np.testing.assert_array_equal(fitted.predict(single), fitted.predict(single.astype(np.float64)))


def test_the_module_averages_the_nets_of_a_fleet():
    fitted = classifier(n_nets=3).fit(X, Y)
    each = [softmax(forward(layers(network), standard(X))) for network in fitted.network_.networks]
    np.testing.assert_allclose(fitted.predict_proba(X), np.mean(each, 0), rtol=1e-9)
    assert np.ptp([p[0, 0] for p in each]) > 0


def test_each_thinned_network_is_one_of_all_there_are_and_their_mean_is_right():
    fitted = classifier(hidden=(3,), epochs=30).fit(X, Y)
    fleet, inputs = fitted._fleet, standard(X)
    raw = [(w[0].double().numpy(), b[0].double().numpy()) for w, b in zip(fleet.weights, fleet.biases, strict=True)]
    masks = np.array(list(itertools.product((0, 1), repeat=3)))
    every = np.stack([softmax(forward(raw, inputs, keep=[1, mask])) for mask in masks])  # (8, cases, classes)
    found = fitted.sample_proba(X, 4000)
    assert found.shape == (4000, len(X), 3)
    distances = np.abs(found[:, None] - every[None]).max((2, 3))
    assert distances.min(1).max() < 1e-9  # the same thinned network for all cases
    counts = np.bincount(distances.argmin(1), minlength=8)
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500)
    np.testing.assert_allclose(found.mean(0), every.mean(0), atol=5 * every.std(0).max() / np.sqrt(4000))


def test_averages_are_those_of_the_sampled_networks():
    fitted = classifier(n_nets=2).fit(X, Y)
    found = fitted.sample_proba(X, 6)
    np.testing.assert_allclose(fitted.predict_proba(X, average="arithmetic", n=6), found.mean(0), rtol=1e-9)
    geometric = np.exp(np.log(found).mean(0))
    geometric /= geometric.sum(1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(X, average="geometric", n=6), geometric, rtol=1e-9)
    with pytest.raises(ValueError, match="average must be None or one of arithmetic, geometric"):
        fitted.predict_proba(X, average="harmonic")
    with pytest.raises(ValueError, match="n must be a whole number"):
        fitted.sample_proba(X, 0)


def test_sampled_networks_do_not_depend_on_the_other_cases():
    fitted = classifier(n_nets=2).fit(X, Y)
    np.testing.assert_allclose(fitted.sample_proba(X[5:9], 3), fitted.sample_proba(X, 3)[:, 5:9], rtol=1e-12)


def test_regression_spread_is_over_thinned_networks_on_the_scale_of_the_targets():
    y = 1e6 + 1e3 * standard(X)[:, 0]
    fitted = regressor(epochs=20).fit(X, y)
    found, spread = fitted.predict(X, return_std=True, n=50)
    samples = fitted.sample_predict(X, 50)
    assert samples.shape == (50, len(X))
    np.testing.assert_allclose(spread, samples.std(0), rtol=1e-9)
    np.testing.assert_array_equal(found, fitted.predict(X))
    expected = forward(layers(fitted.network_), standard(X))[:, 0] * y.std() + y.mean()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert 1e1 < spread.mean() < 1e4


def test_without_dropout_every_thinned_network_is_the_mean_network():
    fitted = regressor(dropout_hidden=0.0).fit(X, X[:, 0])
    np.testing.assert_allclose(fitted.sample_predict(X, 2)[1], fitted.predict(X), rtol=1e-9)


def test_net_k_of_a_fleet_is_the_net_that_its_seed_gives_alone(monkeypatch):
    fleet = classifier(n_nets=3).fit(X, Y)._fleet
    for net, seed in enumerate(fleet.seeds.tolist()):
        monkeypatch.setattr(parameters, "net_seeds", lambda first, nets, seed=seed: [seed])
        alone = classifier().fit(X, Y)._fleet
        assert all(a[net].equal(b[0]) for a, b in zip(fleet.weights, alone.weights, strict=True))
    assert fleet.seeds[0] == 3 and len(set(fleet.seeds.tolist())) == 3
