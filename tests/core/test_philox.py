"""The counter-based generator, against Random123's known answers and a loop over Python integers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from meannet.core import philox
from meannet.core.philox import INITIAL, MASK, ORDER, SAMPLE

ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
word = st.integers(0, ONES)


def tensors(*numbers):
    return tuple(torch.tensor(number) for number in numbers)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN, ids=("zeros", "ones", "pi"))
def test_random123_known_answers(counter, key, answer, integers):
    assert tuple(int(w) for w in philox.philox(tensors(*counter), tensors(*key))) == answer
    assert integers(counter, key) == answer


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.tuples(word, word, word, word), st.tuples(word, word))
def test_every_counter_and_key_gives_what_python_integers_give(integers, counter, key):
    assert tuple(int(w) for w in philox.philox(tensors(*counter), tensors(*key))) == integers(counter, key)


def test_counters_and_keys_of_any_shapes_broadcast_together(integers):
    counter = torch.arange(3)[:, None], torch.arange(5), torch.tensor(7), torch.tensor(9)
    key = torch.arange(2)[:, None, None], torch.tensor(11)
    found = torch.stack(philox.philox(counter, key))
    assert found.shape == (4, 2, 3, 5)
    for net, i, j in np.ndindex(2, 3, 5):
        assert tuple(found[:, net, i, j].tolist()) == integers((i, j, 7, 9), (net, 11))


def test_philox_leaves_its_arguments_alone():
    counter, key = [torch.arange(6) for _ in range(4)], [torch.arange(6) for _ in range(2)]
    philox.philox(counter, key)
    assert all(tensor.equal(torch.arange(6)) for tensor in counter + key)


@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1, 2**32, 2**40 + 7, 2**63 - 1])
@pytest.mark.parametrize(("purpose", "layer", "update"), [(MASK, 0, 0), (SAMPLE, 3, 1_800_000), (ORDER, 0, 2**31)])
def test_words_are_addressed_by_block_row_purpose_layer_update_and_seed(seed, purpose, layer, update, integers):
    found = torch.stack(philox.words(torch.tensor([1, seed]), purpose, layer, update, range(5, 8), 4))
    assert found.shape == (4, 2, 3, 4)
    for row, block in np.ndindex(3, 4):
        counter = (block, 5 + row, purpose << 24 | layer, update)
        assert tuple(found[:, 1, row, block].tolist()) == integers(counter, (seed & ONES, seed >> 32))


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 30])
def test_uniform16_puts_eight_draws_in_a_counter_low_half_first(columns, draw16):
    found = philox.uniform16(torch.tensor([2**40 + 7, 5]), MASK, 2, 11, range(3, 6), columns)
    assert found.shape == (2, 3, columns) and found.dtype == torch.int16
    for net, row, column in np.ndindex(2, 3, columns):
        unsigned = draw16((2**40 + 7, 5)[net], MASK, 2, 11, 3 + row, column)
        assert int(found[net, row, column]) & 0xFFFF == unsigned


def test_uniform16_is_uniform_over_all_sixteen_bits():
    draws = philox.uniform16(torch.tensor([1]), MASK, 0, 0, range(1000), 1024).flatten().numpy()
    assert (draws.min(), draws.max()) == (-32768, 32767)
    counts = np.bincount((draws.astype(int) + 32768) // 256, minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert all(abs((draws.astype(int) >> bit & 1).mean() - 0.5) < 4 * 0.5 / 1012 for bit in range(16))


def test_normal_is_box_and_muller_of_the_generators_words(integers):
    found = philox.normal(2**40 + 7, 3, 5)
    assert found.dtype == torch.float64 and found.shape == (5,)
    for i in range(5):
        w0, w1, w2, w3 = integers((i // 2, 0, INITIAL << 24 | 3, 0), (7, 2**8))
        radius = math.sqrt(-2 * math.log(((w0 << 20 | w1 >> 12) + 1) / 2**52))
        angle = 2 * math.pi * (w2 << 20 | w3 >> 12) / 2**52
        assert found[i].item() == pytest.approx(radius * (math.sin if i % 2 else math.cos)(angle), rel=1e-12, abs=1e-15)


def test_normal_has_a_normals_moments_and_distribution():
    drawn = philox.normal(0, 0, 200_001).numpy()
    assert len(drawn) == 200_001
    spread = 1 / math.sqrt(len(drawn))
    assert abs(drawn.mean()) < 4 * spread
    assert abs(drawn.var() - 1) < 4 * spread * math.sqrt(2)
    assert abs(stats.skew(drawn)) < 4 * spread * math.sqrt(6)
    assert abs(stats.kurtosis(drawn)) < 4 * spread * math.sqrt(24)
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[0:-1:2], drawn[1::2])[0, 1]) < 4 * spread * math.sqrt(2)


def test_normal_differs_between_seeds_and_layers_and_starts_alike_at_any_count():
    first = philox.normal(4, 1, 1000)
    assert philox.normal(4, 1, 7).equal(first[:7])
    for other in (philox.normal(5, 1, 1000), philox.normal(4, 2, 1000), philox.normal(4 + 2**32, 1, 1000)):
        assert abs(np.corrcoef(first.numpy(), other.numpy())[0, 1]) < 4 / math.sqrt(1000)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4), st.integers(0, 3000), st.integers(1, 300))
def test_order_is_a_permutation_for_every_net(seeds, epoch, cases):
    found = philox.order(torch.tensor(seeds), epoch, cases)
    assert found.shape == (len(seeds), cases)
    assert all(sorted(row) == list(range(cases)) for row in found.tolist())


def test_order_sorts_cases_by_keys_from_the_generator(integers):
    keys = []
    for case in range(11):
        four = integers((case // 2, 0, ORDER << 24, 6), (8, 0))
        high, low = four[2:] if case % 2 else four[:2]
        keys.append(high << 31 ^ low)
    assert philox.order(torch.tensor([8]), 6, 11)[0].tolist() == sorted(range(11), key=keys.__getitem__)


def test_order_differs_by_epoch_and_by_seed_and_not_by_companions():
    alone = philox.order(torch.tensor([3]), 5, 1000)[0]
    among = philox.order(torch.arange(10), 5, 1000)
    assert among[3].equal(alone)
    assert not any(among[net].equal(alone) for net in range(10) if net != 3)
    later = [philox.order(torch.tensor([3]), epoch, 1000)[0] for epoch in range(6, 30)]
    assert not any(other.equal(alone) for other in later)
    shared = [(other == alone).sum().item() for other in later]  # a random permutation shares one place on average
    assert sum(shared) / len(shared) < 2


def test_every_order_is_equally_likely():
    found = philox.order(torch.arange(24_000), 1, 4)
    codes = (found * torch.tensor([64, 16, 4, 1])).sum(1)
    _, counts = codes.unique(return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_masks_orders_initial_weights_and_samples_never_share_bits():
    blocks = [
        torch.stack(philox.words(torch.tensor([0]), p, 0, 0, range(4), 64)) for p in (MASK, ORDER, INITIAL, SAMPLE)
    ]
    assert len(torch.cat(blocks).flatten().unique()) > 4 * 4 * 4 * 64 - 5
