"""The norm bound, against a numpy loop over units, in every memory layout."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from meannet.core.maxnorm import constrain_incoming_

INF = math.inf


def bounded_by_loop(weight, limits):
    """(nets, units, inputs) and a limit per net."""
    found = weight.copy()
    for net, unit in np.ndindex(weight.shape[:2]):
        squared = math.fsum(float(w) ** 2 for w in weight[net, unit])
        if squared > limits[net]:
            found[net, unit] = weight[net, unit] * math.sqrt(limits[net] / squared)
    return found


def random_weights(shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_incoming_vectors_are_shortened_as_a_numpy_loop_shortens_them(dtype, rounding):
    weight = random_weights((3, 7, 11), dtype)
    expected = bounded_by_loop(weight.numpy(), [8.0] * 3)
    assert 0 < (expected != weight.numpy()).any(-1).sum() < 21
    np.testing.assert_allclose(constrain_incoming_(weight, 8.0).numpy(), expected, rtol=rounding)


def test_the_limit_is_a_squared_length_and_the_direction_stays():
    weight = torch.tensor([[[3.0, 4.0], [0.3, 0.4]]], dtype=torch.float64)
    constrain_incoming_(weight, 4.0)
    np.testing.assert_allclose(weight[0].numpy(), [[1.2, 1.6], [0.3, 0.4]], rtol=1e-12)


def test_vectors_are_the_incoming_ones_and_not_the_outgoing_ones():
    weight = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]], dtype=torch.float64)  # 3 units, 2 inputs
    assert constrain_incoming_(weight.clone(), 2.0).equal(weight)  # an input's three outgoing weights are longer


def test_each_net_has_its_own_limit_and_infinity_is_none():
    weight, limits = random_weights((4, 6, 9)), [0.5, INF, 8.0, 1e-6]
    expected = bounded_by_loop(weight.numpy(), limits)
    given_limits = torch.tensor(limits, dtype=torch.float64)[:, None, None]
    found = constrain_incoming_(weight.clone(), given_limits)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    assert found[1].equal(weight[1])


def layouts(weight):
    """The same numbers in six layouts of memory."""
    nets, units, inputs = weight.shape
    spaced = torch.zeros(nets, units, 3 * inputs, dtype=weight.dtype)[:, :, ::3]
    return {
        "contiguous": weight.clone(),
        "transposed": weight.mT.contiguous().mT,
        "nets last": weight.permute(1, 2, 0).contiguous().permute(2, 0, 1),
        "units first": weight.transpose(0, 1).contiguous().transpose(0, 1),
        "strided": spaced.copy_(weight),
        "inside a larger one": torch.zeros(nets + 2, units + 3, inputs + 1, dtype=weight.dtype)[1:-1, 2:-1, 1:].copy_(
            weight
        ),
    }


@pytest.mark.parametrize("name", list(layouts(torch.zeros(1, 1, 1))))
def test_the_memory_layout_does_not_matter(name):
    weight = random_weights((3, 5, 8))
    laid_out = layouts(weight)[name]
    found = constrain_incoming_(laid_out, 6.0)
    assert found.data_ptr() == laid_out.data_ptr()
    np.testing.assert_allclose(laid_out.numpy(), bounded_by_loop(weight.numpy(), [6.0] * 3), rtol=1e-12)


def test_what_lies_around_a_view_is_left_alone():
    whole = random_weights((4, 6, 10))
    before = whole.clone()
    constrain_incoming_(whole[1:3, ::2, 1:9], 1.0)
    inside = torch.zeros_like(whole, dtype=torch.bool)
    inside[1:3, ::2, 1:9] = True
    assert whole[~inside].equal(before[~inside]) and not whole[inside].equal(before[inside])


def test_vectors_within_the_bound_keep_every_bit():
    weight = random_weights((2, 50, 20), torch.float32)
    squared = weight.square().sum(-1)
    found = constrain_incoming_(weight.clone(), 20.0)
    within = squared < 20 * (1 - 1e-5)
    assert 10 < within.sum() < 90
    assert found[within].equal(weight[within])
    assert (found[~within] != weight[~within]).any(-1).all()


def test_a_vector_exactly_at_the_bound_keeps_every_bit():
    weight = torch.tensor([[[3.0, 4.0]]])
    assert constrain_incoming_(weight, 25.0).tolist() == [[[3.0, 4.0]]]


@pytest.mark.parametrize("limit", [1e-30, 15.0, INF])
def test_a_vector_of_zeros_stays_zero(limit):
    assert constrain_incoming_(torch.zeros(2, 3, 4), limit).equal(torch.zeros(2, 3, 4))


def test_one_matrix_without_a_net_axis_works_too():
    weight = random_weights((5, 7))
    expected = bounded_by_loop(weight.numpy()[None], [3.0])[0]
    np.testing.assert_allclose(constrain_incoming_(weight, 3.0).numpy(), expected, rtol=1e-12)


def test_weights_that_require_gradients_are_changed_without_a_graph():
    weight = random_weights((1, 2, 3)).requires_grad_()
    constrain_incoming_(weight, 0.1)
    assert weight.is_leaf and weight.grad_fn is None and weight.detach().square().sum(-1).max() < 0.1 + 1e-12


def test_a_weight_that_is_not_a_number_does_not_spread_to_other_vectors():
    weight = random_weights((2, 3, 4))
    weight[0, 1, 2] = math.nan
    found = constrain_incoming_(weight.clone(), 1.0)
    assert found.isnan().sum(-1).count_nonzero() == 1 and found[0, 1].isnan().any()


numbers = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(numbers, min_size=1, max_size=12), st.one_of(st.just(INF), st.floats(1e-6, 1e6)))
def test_any_vector_ends_within_the_bound_in_its_own_direction_and_stays_there(numbers, limit):
    weight = torch.tensor(numbers, dtype=torch.float64)[None, None]
    once = constrain_incoming_(weight.clone(), limit)
    assert once.square().sum() <= limit * (1 + 1e-12)
    np.testing.assert_allclose(once.numpy(), bounded_by_loop(weight.numpy(), [limit]), rtol=1e-12)
    np.testing.assert_allclose(constrain_incoming_(once.clone(), limit).numpy(), once.numpy(), rtol=1e-12)
