"""The two update rules, unrolled by hand."""

import numpy as np
import pytest
import torch

from meannet.core.sgd import RULES, momentum_step_, step_size


def test_a1_multiplies_the_gradient_by_one_minus_momentum_times_the_learning_rate():
    assert step_size("a1", 10.0, 0.5) == pytest.approx(5.0)
    assert step_size("a1", 10.0, 0.745) == pytest.approx(2.55)
    assert step_size("a1", 10.0, 0.99) == pytest.approx(0.1)


def test_the_plain_rule_multiplies_it_by_the_learning_rate():
    assert step_size("plain", 0.01, 0.9) == 0.01


def test_an_unknown_rule_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="'adam'; the rules are a1, plain"):
        step_size("adam", 1.0, 0.5)


def test_three_steps_of_a1_by_hand():
    # v = p v - (1 - p) lr g; w = w + v, with p = 0.5, lr = 2 and so a step of 1
    weight, velocity = torch.tensor([1.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    trace = []
    for gradient in (1.0, -2.0, 0.5):
        momentum_step_(weight, velocity, torch.tensor([gradient], dtype=torch.float64), step_size("a1", 2.0, 0.5), 0.5)
        trace.append((velocity.item(), weight.item()))
    assert trace == [(-1.0, 0.0), (1.5, 1.5), (0.25, 1.75)]


def test_three_steps_of_the_plain_rule_by_hand():
    weight, velocity = torch.tensor([1.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    trace = []
    for gradient in (1.0, -2.0, 0.5):
        step = step_size("plain", 0.1, 0.9)
        momentum_step_(weight, velocity, torch.tensor([gradient], dtype=torch.float64), step, 0.9)
        trace += [velocity.item(), weight.item()]
    np.testing.assert_allclose(trace, [-0.1, 0.9, 0.11, 1.01, 0.049, 1.059], rtol=1e-12)


def test_under_a_constant_gradient_a1_comes_to_move_by_the_learning_rate_itself():
    # The sum of (1 - p) lr p^k over k is lr, whatever p: what the factor is for.
    for momentum in (0.5, 0.9, 0.99):
        weight, velocity = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        for _ in range(4000):
            momentum_step_(
                weight, velocity, torch.ones(1, dtype=torch.float64), step_size("a1", 3.0, momentum), momentum
            )
        assert velocity.item() == pytest.approx(-3.0, rel=1e-9)


def test_each_net_takes_its_own_step_and_all_happens_in_place():
    weight, velocity = torch.zeros(3, 2, 2), torch.ones(3, 2, 2)
    pointers = weight.data_ptr(), velocity.data_ptr()
    momentum_step_(weight, velocity, torch.ones(3, 2, 2), torch.tensor([0.0, 1.0, 2.0])[:, None, None], 0.5)
    assert velocity[:, 0, 0].tolist() == weight[:, 0, 0].tolist() == [0.5, -0.5, -1.5]
    assert pointers == (weight.data_ptr(), velocity.data_ptr())


def test_there_are_two_rules():
    assert RULES == ("a1", "plain")
