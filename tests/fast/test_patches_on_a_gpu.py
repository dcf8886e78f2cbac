"""Captured updates of nets that learn from patches on a real GPU, against plain ones on the same GPU."""

import math

import numpy as np
import pytest
import torch

from meannet.config import Patches
from meannet.fast.patches import Fast, pinned
from meannet.nn.convfleet import conv_fleet
from meannet.nn.convnets import patch_net
from meannet.patches import Plain
from meannet.ranks import Ranks

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # what the compiler says of itself
]
DEVICE, SEED, SIDE, CASES, BATCH, UPDATES = "cuda", 5, 56, 37, 16, 3  # the last mini-batch of an epoch is of 5 cases
PATCHES = Patches(size=48, banks=(16, 16, 32, 32, 32), groups=(1, 2, 4, 4, 4))


@pytest.fixture(autouse=True)
def alike(monkeypatch):
    """What is float32 is float32, and no test meets what another has compiled."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.compiler.reset()


def pictures():
    """Bytes as workers decode them, (cases, rows, columns, 3); those of the second class are brighter."""
    random = np.random.default_rng(0)
    targets = random.integers(0, 2, CASES)
    pixels = random.integers(0, 206, (CASES, SIDE, SIDE, 3)) + 50 * targets[:, None, None, None]
    return pixels.astype(np.uint8), targets


def fleet():
    net = patch_net(PATCHES, (24,), 2, rate=0.5, seed=SEED)
    mean = torch.from_numpy(pictures()[0]).permute(0, 3, 1, 2).float().mean(0)
    settings = {"output_sd": 0.1, "bias": [1.0], "units": "rectified", "scale": 1 / 64, "decays": [(0.001, 0.001)]}
    spreads = (0.04, 0.04, 0.1, 0.08, 0.08, 0.1)
    return conv_fleet([net], [SEED], spreads, mean=mean, device=DEVICE, **settings)


def fast(made, limit, *, low, **settings):
    """The engine; its products are float32 instead of bfloat16 where they are told so before anything is captured."""
    engine = Fast(made, BATCH, limit, Ranks(), **settings)
    engine.plain.low = low
    return engine


def learn(engine, first, last, step=0.03, tally=None):
    """Updates from one to another of the run, which begin an epoch or take one up; what they add up to."""
    pixels, targets = pictures()
    engine.begin(first, step, 0.9, tally)
    for update in range(first, last):
        chosen = slice(BATCH * (update % UPDATES), BATCH * (update % UPDATES + 1))
        engine.take(pixels[chosen], targets[chosen], len(targets[chosen]))
        engine.update_()
    return engine.tally()


def assert_near(one, two, share):
    """Weights, biases and velocities are apart by no more than a share of how far updates have moved them."""
    start = fleet().state()
    for name, tensor in one.state().items():
        away, moved = (tensor - two.state()[name]).norm(), (tensor - start[name]).norm()
        assert moved > 0 and away < share * moved + 1e-6 * tensor.norm(), (name, away, moved)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("limit", [math.inf, 0.5])
@pytest.mark.parametrize(("low", "loss", "share"), [(False, 1e-3, 0.01), (True, 0.02, 0.5)])
def test_captured_updates_do_what_plain_ones_do_to_rounding(low, loss, share, compiled, limit):
    one, two = fleet(), fleet()
    engines = Plain(one, BATCH, limit, Ranks()), fast(two, limit, low=low, compiled=compiled)
    for epoch in range(2):
        found = [learn(engine, UPDATES * epoch, UPDATES * (epoch + 1)) for engine in engines]
        losses = [tally.loss for tally in found]
        assert torch.allclose(*losses, rtol=loss), losses
        assert all(tally.active.all() and tally.moved.all() for tally in found)
    assert engines[1].graph is not None
    assert_near(one, two, share)
    counters = [[int(dropout.updates) for dropout in made.nets[0].dropouts()] for made in (one, two)]
    assert counters == [[2 * UPDATES]] * 2 and int(engines[1].plain.update) == 2 * UPDATES
    longest = torch.stack([weight.square().sum(-1).max() for weight in two.weights[:-1]])
    assert longest.max() > 0.5 if limit == math.inf else 0.49 < longest.max() < 0.501


def test_captured_groups_are_the_joined_ones():
    together, apart = fleet(), fleet()
    found = [
        learn(fast(made, math.inf, low=False, compiled=False, groups=groups), 0, UPDATES)
        for made, groups in ((together, "joined"), (apart, "apart"))
    ]
    assert torch.allclose(found[0].loss, found[1].loss, rtol=1e-3)
    assert_near(together, apart, 0.01)


def test_capturing_leaves_no_trace_and_updates_without_step_change_nothing():
    made = fleet()
    before = {name: tensor.clone() for name, tensor in made.state().items()}
    engine = fast(made, math.inf, low=True)
    tally = learn(engine, 0, UPDATES, step=0.0)
    assert engine.graph is not None and 0 <= int(tally.errors) <= CASES
    assert all(tensor.equal(before[name]) for name, tensor in made.state().items())


def test_an_epoch_that_another_engine_takes_up_is_the_unbroken_one():
    whole, broken = fleet(), fleet()
    unbroken = learn(fast(whole, math.inf, low=False, compiled=False), 0, UPDATES)
    part = learn(fast(broken, math.inf, low=False, compiled=False), 0, 1)
    rest = learn(fast(broken, math.inf, low=False, compiled=False), 1, UPDATES, tally=part)
    assert part.loss < rest.loss and torch.allclose(rest.loss, unbroken.loss, rtol=1e-3)
    assert_near(whole, broken, 0.01)


def test_memory_may_be_written_to_as_soon_as_its_pictures_were_taken():
    one, two, (pixels, targets) = fleet(), fleet(), pictures()
    expected = learn(Plain(one, BATCH, math.inf, Ranks()), 0, UPDATES)
    engine, slot = fast(two, math.inf, low=False, compiled=False), np.zeros((BATCH, SIDE, SIDE, 3), np.uint8)
    engine.begin(0, 0.03, 0.9)
    with pinned(slot, torch.device(DEVICE)):
        for first in range(0, CASES, BATCH):
            own = len(targets[first : first + BATCH])
            slot[:own] = pixels[first : first + BATCH]
            engine.take(slot[:own], targets[first : first + BATCH], own)
            slot[:] = 255 - slot  # as workers do that decode the next pictures into it
            engine.update_()
    assert torch.allclose(engine.tally().loss, expected.loss, rtol=1e-3)
    assert_near(one, two, 0.01)
