"""Masks: fixed by hash for all time, met in their rates, and independent in everything that addresses them."""

import hashlib
import math

import numpy as np
import pytest
import torch

from meannet.core.dropout import LEVELS, kept, thresholds
from meannet.core.philox import MASK, SAMPLE

# seed, update, layer, rate, cases, units, purpose: sha256 of the mask, one byte a unit
GOLDEN = [
    ((0, 0, 0, 0.2, 4, 64, MASK), "823a47babb0df070"),
    ((0, 0, 1, 0.5, 3, 80, MASK), "8f271f9551701791"),
    ((0, 0, 2, 0.5, 3, 80, MASK), "57fda9bc6fc9c3d1"),
    ((1, 0, 1, 0.5, 3, 80, MASK), "92fffcf5bfe1295e"),
    ((2, 1, 1, 0.5, 7, 9, MASK), "d0859262216f17bc"),
    ((3, 599, 1, 0.5, 5, 7, MASK), "249a22feb810a89b"),
    ((3, 600, 1, 0.5, 5, 7, MASK), "ff2327c3359e36ab"),
    ((4, 1799999, 2, 0.5, 10, 33, MASK), "a20de6b5c01142b6"),
    ((5, 17, 3, 0.3, 1, 1000, MASK), "ccd5275eb4510308"),
    ((6, 17, 1, 0.1, 100, 1, MASK), "a0609f744607b8da"),
    ((7, 2**31 - 1, 0, 0.2, 6, 13, MASK), "75b343cd697cdf97"),
    ((11, 2**32 - 1, 0, 0.2, 6, 13, MASK), "7cd7c0f03c43acb4"),
    ((2**32 - 1, 5, 1, 0.5, 8, 15, MASK), "4cd4bc2ae98eed61"),
    ((2**32, 5, 1, 0.5, 8, 15, MASK), "191bb37a2ddde1b7"),
    ((2**40 + 7, 12, 1, 0.75, 9, 17, MASK), "d960297bec10bfe6"),
    ((2**63 - 1, 3, 2, 0.99, 20, 31, MASK), "9ebd346dd6285a80"),
    ((123456789, 1000, 0, 0.0001, 50, 785, MASK), "af56f732485586f9"),
    ((42, 0, 1, 0.5, 100, 800, MASK), "e8e9bd3ec74e07bc"),
    ((42, 7, 0, 0.2, 100, 784, MASK), "fc86a6b6281b21b0"),
    ((42, 0, 1, 0.5, 11, 25, SAMPLE), "ed17026f952b4af4"),
]


def mask_of(seed, update, layer, rate, cases, units, purpose=MASK):
    return kept(torch.tensor([seed]), update, layer, torch.tensor([[rate]]), range(cases), units, purpose)[0]


@pytest.mark.parametrize(("address", "digest"), GOLDEN)
def test_golden_masks_never_change(address, digest):
    assert hashlib.sha256(mask_of(*address).numpy().tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("address", [address for address, _ in GOLDEN if address[4] * address[5] <= 1000])
def test_golden_masks_are_what_a_loop_over_python_integers_gives(address, draw16):
    seed, update, layer, rate, cases, units, purpose = address
    expected = [[draw16(seed, purpose, layer, update, case, unit) for unit in range(units)] for case in range(cases)]
    # Unsigned draws become signed ones by their bits: 0..32767 stay, 32768..65535 are -32768..-1.
    signed = (np.array(expected).reshape(cases, units) + 32768) % 65536 - 32768
    assert np.array_equal(mask_of(*address).numpy(), signed >= round(rate * 65536) - 32768)


def test_the_twenty_golden_masks_differ():
    assert len({digest for _, digest in GOLDEN}) == len(GOLDEN) == 20


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.2, 0.5, 0.8, 0.99])
def test_units_are_omitted_at_the_rate_within_binomial_error(rate):
    mask = mask_of(1, 2, 3, rate, 1000, 1000)
    omitted = 1 - mask.double().mean().item()
    assert abs(omitted - rate) <= 4 * math.sqrt(rate * (1 - rate) / mask.numel()) + 0.5 / LEVELS


def test_a_rate_of_zero_keeps_every_unit_and_the_largest_still_keeps_some():
    assert mask_of(0, 0, 0, 0.0, 500, 800).all()
    assert thresholds(torch.tensor([0.0])).item() == -LEVELS // 2
    assert thresholds(torch.tensor([1 - 1e-12], dtype=torch.float64)).item() == LEVELS // 2 - 1
    assert 0 < mask_of(0, 0, 0, 1 - 1e-7, 2000, 800).sum() < 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_thresholds_divide_the_sixteen_bit_draws_at_the_rate(dtype):
    rates = torch.arange(0, 1, 1 / 977, dtype=dtype)
    share = (thresholds(rates).double() + LEVELS // 2) / LEVELS
    assert (share - rates.double()).abs().max() <= 0.5 / LEVELS


def test_per_unit_rates_are_each_met():
    rates = torch.linspace(0, 0.95, 40, dtype=torch.float64)[None]
    mask = kept(torch.tensor([9]), 0, 1, rates, range(20_000), 40)[0]
    deviation = (1 - mask.double().mean(0) - rates[0]).abs()
    assert (deviation <= 4.5 * (rates[0] * (1 - rates[0]) / 20_000).sqrt() + 0.5 / LEVELS).all()


def test_per_net_rates_are_each_met():
    rates = torch.tensor([[0.0], [0.2], [0.5], [0.9]], dtype=torch.float64)
    mask = kept(torch.arange(4), 0, 1, rates, range(500), 501)
    assert mask.shape == (4, 500, 501)
    deviation = (1 - mask.double().mean((1, 2)) - rates[:, 0]).abs()
    assert (deviation <= 4 * (rates[:, 0] * (1 - rates[:, 0]) / mask[0].numel()).sqrt() + 0.5 / LEVELS).all()


def test_one_rate_for_a_layer_equals_that_rate_for_each_of_its_units():
    one = kept(torch.tensor([3, 4]), 5, 1, torch.tensor([[0.3], [0.6]]), range(20), 13)
    each = kept(torch.tensor([3, 4]), 5, 1, torch.tensor([[0.3], [0.6]]).expand(2, 13), range(20), 13)
    assert one.equal(each)


def test_a_higher_rate_omits_a_superset():
    lower, higher = (mask_of(7, 1, 1, rate, 100, 100) for rate in (0.2, 0.5))
    assert (lower | ~higher).all() and (lower & ~higher).any()


def correlation(a, b):
    return abs(np.corrcoef(a.flatten().numpy(), b.flatten().numpy())[0, 1])


def test_masks_are_independent_between_updates_layers_nets_and_purposes():
    base = mask_of(3, 10, 1, 0.5, 300, 301)
    bound = 4.5 / math.sqrt(base.numel())
    others = [
        *(mask_of(3, update, 1, 0.5, 300, 301) for update in (0, 9, 11, 1000)),
        *(mask_of(3, 10, layer, 0.5, 300, 301) for layer in (0, 2, 3)),
        *(mask_of(seed, 10, 1, 0.5, 300, 301) for seed in (0, 2, 4, 3 + 2**32, 3 * 2**32)),
        mask_of(3, 10, 1, 0.5, 300, 301, SAMPLE),
    ]
    assert max(correlation(base, other) for other in others) < bound


def test_units_and_cases_are_independent_of_each_other():
    mask = mask_of(5, 4, 1, 0.5, 2000, 64).double().numpy()
    between_units = np.corrcoef(mask.T)[np.triu_indices(64, 1)]
    between_cases = np.corrcoef(mask[:64] - 0.5)[np.triu_indices(64, 1)]
    # The largest of 2016 correlations of n coin flips stays below 4.5 / sqrt(n), and their mean square is 1 / n.
    assert np.abs(between_units).max() < 4.5 / math.sqrt(2000)
    assert np.mean(between_units**2) * 2000 == pytest.approx(1, abs=0.15)
    assert np.mean(between_cases**2) * 64 == pytest.approx(1, abs=0.15)


def test_a_nets_mask_does_not_depend_on_its_companions():
    rates = torch.linspace(0.1, 0.8, 10, dtype=torch.float64)[:, None]
    among = kept(torch.arange(10), 77, 2, rates, range(30), 45)
    for net in range(10):
        assert among[net].equal(kept(torch.tensor([net]), 77, 2, rates[net : net + 1], range(30), 45)[0])


def test_masks_do_not_depend_on_the_number_of_threads():
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(mask_of(3, 10, 1, 0.5, 300, 1201))
    torch.set_num_threads(before)
    assert found[0].equal(found[1]) and found[0].equal(found[2])


def test_the_first_cases_of_a_longer_batch_have_the_masks_of_the_shorter():
    longer, shorter = mask_of(1, 8, 1, 0.5, 100, 51), mask_of(1, 8, 1, 0.5, 37, 51)
    assert longer[:37].equal(shorter)
    assert kept(torch.tensor([1]), 8, 1, torch.tensor([[0.5]]), range(37, 100), 51)[0].equal(longer[37:])


def test_the_first_units_of_a_wider_layer_have_the_masks_of_the_narrower():
    assert mask_of(1, 8, 1, 0.5, 20, 100)[:, :13].equal(mask_of(1, 8, 1, 0.5, 20, 13))
