"""Arithmetic and renormalised geometric means, against numpy; enumeration of masks, against itertools."""

import itertools

import numpy as np
import pytest
import torch

from meannet.core.mean import all_masks, arithmetic_mean, geometric_mean, mask_probabilities


@pytest.fixture
def log_probs():
    """(networks, cases, classes), normalised over classes."""
    return (3 * torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).log_softmax(-1)


@pytest.fixture
def weights():
    return torch.tensor([0.05, 0.3, 0.1, 0.25, 0.2, 0.1], dtype=torch.float64)


def test_arithmetic_mean_is_numpys_mean_of_probabilities(log_probs):
    np.testing.assert_allclose(arithmetic_mean(log_probs).exp(), np.exp(log_probs.numpy()).mean(0), rtol=1e-12)


def test_arithmetic_mean_weighs_networks(log_probs, weights):
    expected = np.average(np.exp(log_probs.numpy()), axis=0, weights=weights.numpy())
    np.testing.assert_allclose(arithmetic_mean(log_probs, weights).exp(), expected, rtol=1e-12)


def test_geometric_mean_is_the_root_of_the_product_renormalised(log_probs):
    product = np.exp(log_probs.numpy()).prod(0) ** (1 / 6)
    expected = product / product.sum(-1, keepdims=True)
    np.testing.assert_allclose(geometric_mean(log_probs).exp(), expected, rtol=1e-12)


def test_geometric_mean_weighs_networks(log_probs, weights):
    product = (np.exp(log_probs.numpy()) ** weights.numpy()[:, None, None]).prod(0)
    expected = product / product.sum(-1, keepdims=True)
    np.testing.assert_allclose(geometric_mean(log_probs, weights).exp(), expected, rtol=1e-12)


def test_both_means_sum_to_one(log_probs, weights):
    for mean in (arithmetic_mean, geometric_mean):
        np.testing.assert_allclose(mean(log_probs, weights).exp().sum(-1), 1, rtol=1e-12)


def test_both_means_of_equal_networks_are_that_network(log_probs):
    same = log_probs[:1].expand(9, -1, -1)
    for mean in (arithmetic_mean, geometric_mean):
        np.testing.assert_allclose(mean(same), log_probs[0], rtol=1e-12, atol=1e-14)


def test_a_network_of_no_weight_does_not_count(log_probs):
    weights = torch.tensor([0.5, 0.5, 0, 0, 0, 0], dtype=torch.float64)
    for mean in (arithmetic_mean, geometric_mean):
        np.testing.assert_allclose(mean(log_probs, weights), mean(log_probs[:2]), rtol=1e-12)


def test_means_hold_where_probabilities_underflow():
    far = torch.tensor([[0.0, -2000.0], [-2000.0, 0.0]], dtype=torch.float64)
    np.testing.assert_allclose(arithmetic_mean(far).exp(), [0.5, 0.5], rtol=1e-12)
    np.testing.assert_allclose(geometric_mean(far).exp(), [0.5, 0.5], rtol=1e-12)


def test_all_masks_are_every_combination_once():
    masks = all_masks(5)
    assert masks.dtype == torch.bool
    assert sorted(map(tuple, masks.tolist())) == sorted(itertools.product((False, True), repeat=5))


@pytest.mark.parametrize("units", [0, 1, 14])
def test_there_are_two_to_the_n_masks(units):
    assert all_masks(units).shape == (2**units, units)


def test_too_many_masks_are_refused():
    with pytest.raises(ValueError, match="2\\^25"):
        all_masks(25)


def test_mask_probabilities_are_products_of_each_units_own():
    rates = torch.tensor([0.1, 0.5, 0.0, 0.9], dtype=torch.float64)
    found = mask_probabilities(all_masks(4), rates)
    for mask, probability in zip(all_masks(4).tolist(), found.tolist(), strict=True):
        expected = np.prod([1 - rate if keep else rate for keep, rate in zip(mask, rates.tolist(), strict=True)])
        assert probability == pytest.approx(expected, rel=1e-12)
    assert found.sum().item() == pytest.approx(1, rel=1e-12)


def test_mask_probabilities_average_to_one_minus_each_rate():
    rates = torch.linspace(0.05, 0.9, 10, dtype=torch.float64)
    masks = all_masks(10)
    np.testing.assert_allclose(mask_probabilities(masks, rates) @ masks.double(), 1 - rates, rtol=1e-12)
