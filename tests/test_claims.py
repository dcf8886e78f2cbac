"""The claims hold, for reasons a hand-made case confirms, and are seen to fail where the mean network is broken."""

import itertools
import json
import math
import time

import numpy as np
import pytest
import torch

from meannet import claims
from meannet.nn import dense

torch.set_num_threads(1)  # tests run side by side
MEASURED = 4  # two and three hidden layers, two kinds of units


@pytest.fixture(scope="module")
def found():
    return claims.check_all()


def test_every_claim_holds(found):
    assert len(found) == 7 + MEASURED
    assert [claim["name"] for claim in found if not claim["holds"]] == []


def test_a_claim_is_json_with_a_name_a_section_a_verdict_a_value_and_a_bound(found):
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for claim in found:
        assert set(claim) == {"name", "paper", "holds", "says", "value", "bound"}
        assert type(claim["holds"]) is bool and type(claim["value"]) is float and claim["paper"] == "body"
    assert len({claim["name"] for claim in found}) == len(found)


def test_what_is_exact_is_found_to_rounding_and_what_is_above_is_above(found):
    bounds = [claim["bound"] for claim in found]
    assert bounds == [1e-10] * 3 + [0.0, 1e-12] + [0.0, 1e-10] + [None] * MEASURED
    assert all(claim["value"] < 1e-12 for claim in found if claim["bound"])
    assert all(claim["value"] > 1e-4 for claim in found if claim["bound"] == 0)


def test_deeper_nets_are_near_the_geometric_mean_but_not_at_it(found):
    assert all(1e-4 < claim["value"] < 0.2 for claim in found[-MEASURED:])


def test_checking_takes_seconds_on_one_core():
    start = time.process_time()
    claims.check_all()
    assert time.process_time() - start < 10


def test_the_mean_network_is_the_geometric_mean_of_the_eight_networks_of_three_units():
    """The claim over again in numpy loops, weights and masks written out."""
    generator = np.random.default_rng(0)
    hidden, outgoing, bias = generator.normal(size=3), generator.normal(size=(2, 3)), generator.normal(size=2)
    rates = np.array([0.5, 0.2, 0.9])
    logs = np.zeros(2)
    for mask in itertools.product((0, 1), repeat=3):
        total = outgoing @ (hidden * mask) + bias
        probability = np.prod(np.where(mask, 1 - rates, rates))
        logs += probability * (total - np.log(np.exp(total).sum()))
    geometric = np.exp(logs) / np.exp(logs).sum()
    mean = np.exp(outgoing @ (hidden * (1 - rates)) + bias)
    np.testing.assert_allclose(mean / mean.sum(), geometric, rtol=1e-12)


def broken_scale(fleet, inputs):
    """As a network whose outgoing weights were not scaled."""
    return dense.activities(fleet, inputs, [None] * len(fleet.weights))[-1]


def broken_output(fleet, inputs):
    """One output a little off."""
    outputs = ORIGINAL(fleet, inputs)
    outputs[..., 0] += 1e-6
    return outputs


ORIGINAL, ALL_MASKS = dense.mean_network, claims.all_masks


@pytest.fixture
def few(monkeypatch):
    """Two nets for each claim are enough to see it fail."""
    monkeypatch.setattr(claims, "CASES", 2)


def verdicts(monkeypatch, mean_network=ORIGINAL):
    monkeypatch.setattr(dense, "mean_network", mean_network)
    return [claim["holds"] for claim in claims.check_all()]


def test_a_mean_network_without_the_scaling_fails(monkeypatch, few):
    holds = verdicts(monkeypatch, broken_scale)
    assert holds[:4] == [False] * 4 and holds[6] is False
    assert holds[-MEASURED:] == [True] * MEASURED


def test_a_mean_network_off_by_a_millionth_fails_where_equality_is_claimed(monkeypatch, few):
    holds = verdicts(monkeypatch, broken_output)
    assert [holds[i] for i in (0, 1, 2, 4, 6)] == [False] * 5


def test_a_mean_network_far_worse_than_the_thinned_ones_fails_where_it_should_be_better(monkeypatch, few):
    holds = verdicts(monkeypatch, lambda fleet, inputs: 10 * ORIGINAL(fleet, inputs))
    assert not holds[3] and not holds[5]


def test_a_mean_network_that_is_not_a_number_fails_every_claim(monkeypatch, few):
    holds = verdicts(monkeypatch, lambda fleet, inputs: ORIGINAL(fleet, inputs) * math.nan)
    assert holds[:-MEASURED] == [False] * 7


def test_masks_of_the_wrong_probability_fail(monkeypatch, few):
    monkeypatch.setattr(claims, "mask_probabilities", lambda masks, rates: torch.full((len(masks),), 1 / len(masks)))
    holds = verdicts(monkeypatch)
    assert holds[0] and not holds[1] and not holds[2]


def test_a_thinned_network_that_forgets_a_unit_fails(monkeypatch, few):
    def forgetful(masks):
        found = ALL_MASKS(masks)
        found[-1, 0] = False
        return found

    monkeypatch.setattr(claims, "all_masks", forgetful)
    assert not verdicts(monkeypatch)[0]
