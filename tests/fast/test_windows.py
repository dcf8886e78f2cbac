"""Windows cut from a table of frames train every engine, and pretraining, as the same cases stored whole do."""

import math

import pytest
import torch

from meannet import evaluate
from meannet.config import Pretrain
from meannet.fast import cpu
from meannet.nn import dense
from meannet.nn.windows import Windows, padded
from meannet.pretrain.stack import new_stack, samples
from meannet.pretrain.stages import pretrain
from meannet.train import Plain

WIDTH, FEATURES, COUNTS = 5, 7, (13, 30, 1, 21)
SIZES = (WIDTH * FEATURES, 12, 9, 6)


@pytest.fixture
def both():
    """The cases as windows, in another order than that of their frames and without some, and stored whole."""
    frames = torch.randn(sum(COUNTS), FEATURES, generator=torch.Generator().manual_seed(3))
    table, starts = padded(frames, COUNTS, WIDTH)
    some = torch.randperm(len(starts), generator=torch.Generator().manual_seed(4))[:50]
    windows = Windows(table, starts[some], WIDTH)
    return windows, windows[torch.arange(50)], torch.arange(50) % 6


def fleet():
    rates = [torch.tensor([[0.0], [rate]], dtype=torch.float64) for rate in (0.2, 0.5, 0.5)]
    return dense.initial_fleet(SIZES, (1, 2), rates, units="logistic", sd=0.3)


def trained(engine, inputs, targets, **more):
    one = fleet()
    made = engine(one, inputs, targets, 8, [math.inf, 2.0], **more)
    tallies = [made.epoch(epoch, [0.5, 0.3], 0.5, lambda: False) for epoch in range(2)]
    return one.state(), [tally.loss for tally in tallies]


@pytest.mark.parametrize("engine", ["plain", "CPU kernel"])
def test_windows_train_to_the_same_bits_as_cases_stored_whole(both, engine):
    if engine != "plain" and cpu.library() is None:
        pytest.skip("the CPU kernel was not built")
    windows, whole, targets = both
    kind = Plain if engine == "plain" else cpu.Skipping
    (state, losses), (other, other_losses) = (trained(kind, inputs, targets) for inputs in (windows, whole))
    assert all(tensor.equal(other[name]) for name, tensor in state.items())
    assert all(one.equal(two) for one, two in zip(losses, other_losses, strict=True))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_windows_train_the_gpus_kernels_as_the_plain_version(both):
    pytest.importorskip("triton", reason="Triton is not installed")
    from meannet.fast.cuda import Captured

    windows, whole, targets = both
    if torch.cuda.is_available():
        pytest.skip("tests on a GPU are in test_kernels.py")
    state, losses = trained(Captured, windows, targets, precision="float32")
    other, other_losses = trained(Plain, whole, targets)
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(losses, other_losses, rtol=1e-5, atol=1e-5)


def test_windows_are_pretrained_on_and_judged_as_cases_stored_whole(both):
    windows, whole, targets = both
    settings = Pretrain(
        visible="gaussian", epochs=(2,), lr=(0.01,), data_biases="all", batch=9, softmax_epochs=1, gibbs=2
    )
    stacks = [new_stack(settings, SIZES[:-1], 6, (1, 2)) for _ in range(2)]
    figures = [
        [done.values for done in pretrain(stack, inputs, targets)]
        for stack, inputs in zip(stacks, (windows, whole), strict=True)
    ]
    assert figures[0] == figures[1]
    assert all(tensor.equal(stacks[1].state()[name]) for name, tensor in stacks[0].state().items())
    assert samples(stacks[0], windows, 5).equal(samples(stacks[1], whole, 5))
    one = fleet()
    assert evaluate.mean_network_figures(one, windows, targets) == evaluate.mean_network_figures(one, whole, targets)
