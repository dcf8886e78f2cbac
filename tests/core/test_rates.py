"""Advantages of units by enumeration of every thinned network, and what they do to rates."""

import itertools

import numpy as np
import torch

from meannet.core.rates import Presence, adapted


def test_advantages_are_those_of_all_thinned_networks_where_each_is_there_once():
    """A function of three units, over its eight masks: the mean where a unit is present less the mean over all."""
    masks = np.array(list(itertools.product((0, 1), repeat=3)))
    values = 2.0 * masks[:, 0] - masks[:, 1] + 0.5 * masks[:, 0] * masks[:, 2]
    by_hand = [values[masks[:, unit] == 1].mean() - values.mean() for unit in range(3)]
    presence = Presence()
    for some in (slice(0, 3), slice(3, 8)):  # as if in two draws
        presence.add(torch.tensor(masks[some])[None], torch.tensor(values[some])[None])
    np.testing.assert_allclose(presence.advantages()[0], by_hand, rtol=1e-12)


def test_nets_do_not_mix_and_a_unit_that_is_nowhere_present_has_no_advantage():
    presence = Presence()
    present = torch.tensor([[[1, 0], [0, 0]], [[0, 1], [1, 1]]])
    presence.add(present, torch.tensor([[-1.0, -3.0], [-4.0, -2.0]], dtype=torch.float64))
    assert presence.advantages().tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_log_odds_of_omission_fall_by_the_advantage_times_the_pace():
    rates = torch.tensor([[0.5, 0.2, 0.7]], dtype=torch.float64)
    found = adapted(rates, torch.tensor([[1.0, -0.5, 0.0]]).double(), pace=0.4, least=0.01, most=0.99)
    before = rates.numpy()
    odds = np.log(before / (1 - before)) - 0.4 * np.array([[1.0, -0.5, 0.0]])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-odds)), rtol=1e-12)


def test_rates_stay_within_bounds_and_zero_stays_zero():
    rates = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    found = adapted(rates, torch.tensor([[1e9, -1e9, -1.0]]), pace=1.0, least=0.1, most=0.8)
    assert found.tolist() == [[0.1, 0.8, 0.0]]
