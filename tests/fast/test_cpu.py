"""The compiled CPU kernel against the plain version, on every instruction set this machine has."""

import math
import os
import subprocess

import pytest
import torch

from meannet import fast
from meannet.bench import comparison
from meannet.core.dropout import kept
from meannet.fast import build, cpu
from meannet.fast.cpu import SETS, Skipping, library, threads
from meannet.nn.dense import Fleet, initial_fleet
from meannet.train import Plain

if library() is None:
    pytest.skip("the CPU kernel was not built: no C++ compiler", allow_module_level=True)

BEST = library().meannet_best_set()
HERE = pytest.mark.parametrize("instruction_set", range(BEST + 1), ids=lambda n: SETS[n])


def fleet(sizes, units, rates=(0.2, 0.5), dtype=torch.float32, seeds=(3, 5, 2**40 + 7), sd=0.3, **more) -> Fleet:
    """Three nets: one without dropout, one with the rates given, one with uneven rates per unit."""
    layers = []
    for k, n in enumerate(sizes[:-1]):
        each = torch.zeros(len(seeds), n, dtype=torch.float64)
        each[1] = rates[0] if k == 0 else rates[1]
        each[2] = torch.linspace(0, 0.9, n, dtype=torch.float64)
        layers.append(each)
    return initial_fleet(sizes, seeds, layers, units=units, sd=sd, dtype=dtype, **more)


def cases(count, sizes, sparse=0.5):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(count, sizes[0], generator=generator)
    inputs *= torch.rand(count, sizes[0], generator=generator) > sparse
    return inputs, torch.randint(0, sizes[-1], (count,), generator=generator)


def far(one: Fleet, other: Fleet) -> float:
    """The largest relative distance between two fleets' tensors."""
    pairs = zip(one.state().values(), other.state().values(), strict=True)
    return max(float((a.double() - b.double()).norm() / (a.double().norm() + 1e-12)) for a, b in pairs)


LIMITS, STEPS = (1.5, math.inf, 3.0), (0.5, 0.3, 0.2)


def never():
    return False


@HERE
@pytest.mark.parametrize("units", ["rectified", "logistic"])
@pytest.mark.parametrize(
    ("sizes", "count", "batch"),
    [
        ((20, 33, 27, 10), 47, 10),  # a remainder of 7
        ((7, 1, 10), 12, 5),  # one unit
        ((130, 64, 65, 3), 30, 30),  # panels exactly full and just over
        ((5, 10), 20, 1),  # no hidden layer, one case at a time
        ((64, 200, 17), 150, 150),  # outputs in wide panels, a batch over 128
        ((9, 12, 11, 10, 4), 9, 100),  # three hidden layers, a batch larger than the data
        ((20, 33, 27, 10), 5, 1),  # one case at a time
        ((20, 33, 10), 1, 5),  # one case in all
        ((20, 33, 10), 11, 10),  # a remainder of one case
    ],
)
def test_kernel_agrees_with_the_plain_version_in_float64(instruction_set, units, sizes, count, batch):
    inputs, targets = cases(count, sizes)
    plain, skipping = fleet(sizes, units, dtype=torch.float64), fleet(sizes, units)
    reference = Plain(plain, inputs.double(), targets, batch, LIMITS)
    kernel = Skipping(skipping, inputs, targets, batch, LIMITS, instruction_set=instruction_set)
    for epoch in range(3):
        expected = reference.epoch(epoch, STEPS, 0.6, never)
        found = kernel.epoch(epoch, STEPS, 0.6, never)
    assert far(plain, skipping) < 1e-5
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-5, atol=1e-6)
    assert found.errors.tolist() == expected.errors.tolist()
    assert found.moved.tolist() == expected.moved.tolist()
    if units == "rectified":
        assert found.active.tolist() == expected.active.tolist()


class OnDemand:
    """Inputs that are made as they are asked for."""

    def __init__(self, inputs):
        self.inputs, self.asked = inputs, []

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, chosen):
        self.asked.append(chosen.shape[1])
        return self.inputs[chosen]


@HERE
@pytest.mark.parametrize("outputs", [3, 20], ids=["narrow", "wide"])
@pytest.mark.parametrize("kind", ["softmax", "softmaxes", "logistic", "linear"])
def test_kernel_has_every_kind_of_output_weights_of_cases_and_inputs_on_demand(
    instruction_set, kind, outputs, monkeypatch
):
    monkeypatch.setattr(cpu, "FLOATS_A_CALL", 3 * 3 * 10 * 20)  # three mini-batches of three nets
    sizes = (20, 33, outputs)
    inputs, targets = cases(47, sizes)
    groups = (outputs - 2, 2) if kind == "softmaxes" else ()
    if groups:
        targets = torch.stack((targets.clamp(max=groups[0] - 1), targets % 2), 1)
    elif kind != "softmax":
        targets = torch.randn(47, outputs, generator=torch.Generator().manual_seed(2))
        targets = (targets > 0).float() if kind == "logistic" else targets
    weights = torch.linspace(0.1, 3, 47)
    more = {"output": kind.removesuffix("es"), "groups": groups}
    plain, skipping = (fleet(sizes, "rectified", dtype=dtype, **more) for dtype in (torch.float64, torch.float32))
    exact = targets if kind.startswith("softmax") else targets.double()
    reference = Plain(plain, inputs.double(), exact, 10, LIMITS, weights.double())
    asked = OnDemand(inputs)
    kernel = Skipping(skipping, asked, targets, 10, LIMITS, weights, instruction_set)
    for epoch in range(3):
        expected, found = (engine.epoch(epoch, STEPS, 0.6, never) for engine in (reference, kernel))
    assert far(plain, skipping) < 1e-5
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-5, atol=1e-6)
    assert found.errors.tolist() == expected.errors.tolist()
    assert asked.asked == [30, 17] * 3


@pytest.mark.parametrize("units", ["rectified", "logistic"])
def test_any_number_of_threads_gives_the_same_bits(units):
    sizes = (400, 500, 300, 70)  # enough to do for three threads, and outputs of two panels
    inputs, targets = cases(80, sizes)
    states = []
    for count in (1, 2, 3, 5):  # three nets: one after another, and with three threads or more side by side
        trained = fleet(sizes, units)
        engine = Skipping(trained, inputs, targets, 40, LIMITS, use_threads=count)
        for epoch in range(3):
            engine.epoch(epoch, STEPS, 0.6, never)
        states.append(trained.state())
    for other in states[1:]:
        assert all(torch.equal(other[name], tensor) for name, tensor in states[0].items())


@HERE
@pytest.mark.parametrize("units", ["rectified", "logistic"])
def test_loss_of_300_updates_stays_within_one_per_cent_of_the_plain_version(instruction_set, units):
    sizes = (64, 100, 100, 10)
    inputs, targets = cases(500, sizes)
    plain, skipping = fleet(sizes, units, sd=0.05), fleet(sizes, units, sd=0.05)
    engines = (
        Plain(plain, inputs, targets, 25, LIMITS),
        Skipping(skipping, inputs, targets, 25, LIMITS, instruction_set=instruction_set),
    )
    for epoch in range(15):
        expected, found = (engine.epoch(epoch, STEPS, 0.6, never) for engine in engines)
    torch.testing.assert_close(found.loss, expected.loss, rtol=0.01, atol=0)


@HERE
def test_kernel_draws_the_masks_of_the_plain_version(instruction_set):
    # With one visible unit a case, weights of one and no biases, a net's first total inputs are its mask.
    units, count = 150, 40
    trained = fleet((units, 8, 3), "rectified", rates=(0.35, 0.0))
    inputs, targets = torch.ones(count, units), torch.zeros(count, dtype=torch.int64)
    for weight in trained.weights:
        weight.fill_(0.0)
    trained.weights[0].fill_(1.0)
    trained.rates[1] = None
    trained.weights[1][:, 0] = 1.0  # so that the derivative reaches below
    before = trained.weights[0].clone()
    engine = Skipping(trained, inputs, targets, count, [math.inf] * 3, instruction_set=instruction_set)
    engine.epoch(4, [1.0] * 3, 0.0, never)
    moved = trained.weights[0][:, 0] - before[:, 0]  # sum over cases of each visible unit's presence times a factor
    keep = kept(trained.seeds, 4, 0, trained.rates[0], range(count), units)
    counts = keep.double().sum(2)  # a case's total input: how many of its units are there
    outputs = torch.stack([8 * counts, torch.zeros_like(counts), torch.zeros_like(counts)], -1)
    # Which case a row of the mask belongs to does not matter, for all cases are alike.
    push = (outputs.softmax(-1)[..., 0] - 1) / count
    expected = -(push[..., None] * keep).sum(1)
    torch.testing.assert_close(moved.double(), expected, rtol=1e-4, atol=1e-7)


def test_stop_is_heard_between_calls():
    inputs, targets = cases(200, (10, 20, 10))
    engine = Skipping(fleet((10, 20, 10), "logistic"), inputs, targets, 1, LIMITS)
    asked = []
    assert engine.epoch(0, STEPS, 0.5, lambda: asked.append(1) or len(asked) > 2) is None
    assert len(asked) == 3


def test_fast_path_is_chosen_on_a_cpu_and_plain_on_request():
    inputs, targets = cases(10, (4, 5, 3))
    made = fleet((4, 5, 3), "logistic")
    assert fast.engine(made, inputs, targets, 5, LIMITS).name == "fast"
    assert fast.engine(made, inputs, targets, 5, LIMITS, "plain").name == "plain"
    assert fast.engine(made, OnDemand(inputs), targets, 5, LIMITS, weights=torch.ones(10)).name == "fast"
    assert fast.engine(made, inputs, targets, 5, LIMITS, precision="float32").name == "fast"
    for path in fast.PATHS:
        with pytest.raises(ValueError, match="--precision tf32: only the fast path on a GPU"):
            fast.engine(made, inputs, targets, 5, LIMITS, path, precision="tf32")
    with pytest.raises(ValueError, match="--precision must be one of auto, bfloat16, tf32, float32, not 'half'"):
        fast.engine(made, inputs, targets, 5, LIMITS, precision="half")
    exact = fleet((4, 5, 3), "logistic", dtype=torch.float64)
    assert fast.engine(exact, inputs.double(), targets, 5, LIMITS).name == "plain"
    with pytest.raises(ValueError, match="float32 nets only"):
        fast.engine(exact, inputs.double(), targets, 5, LIMITS, "fast")


def test_threads_follow_the_environment(monkeypatch):
    threads.cache_clear()
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert threads() == 3
    threads.cache_clear()
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads() >= 1
    threads.cache_clear()


def test_without_a_compiler_the_build_says_so_and_leaves_nothing(monkeypatch, tmp_path):
    (tmp_path / "kernel.so").write_text("of an older version")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "no C++ compiler" in build.build(tmp_path / "kernel.so")
    monkeypatch.setenv("CXX", "/bin/false")
    assert "could not compile" in build.build(tmp_path / "kernel.so")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif("CI" not in os.environ, reason="compilers differ in what they warn of")
def test_the_compiler_has_nothing_to_warn_of():
    found = build.compiler()
    assert found is not None
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only"]
    for name, source in (("plain", "update.cpp"), ("avx512", "update.cpp"), ("", "dispatch.cpp")):
        flags = [*build.FLAGS, *build.X86_SETS.get(name, [])] if BEST else build.FLAGS
        command = [*found, *flags, *warnings, f"-DINSTRUCTION_SET={name}", str(build.HERE / source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_kernel_that_cannot_be_loaded_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu, "__file__", str(tmp_path / "cpu.py"))
    cpu._loaded.cache_clear()
    try:
        assert cpu.library() is None and "needs a C++ compiler" in cpu.why_no_library()
        assert comparison.describe(torch.device("cpu")).endswith("; no fast path was built")
        cpu._loaded.cache_clear()
        (tmp_path / build.LIBRARY).write_text("no library")
        assert cpu.library() is None and "cannot be loaded" in cpu.why_no_library()
    finally:
        cpu._loaded.cache_clear()


def test_the_compiler_may_have_words_before_and_after_it(monkeypatch, tmp_path):
    """As in CXX="ccache g++ -m64"."""
    found = build.compiler()
    assert found is not None
    monkeypatch.setenv("CXX", f"env {found[0]} -DWORDS")
    assert build.build(tmp_path / "kernel.so") == "" and (tmp_path / "kernel.so").is_file()


@HERE
@pytest.mark.parametrize("present", [1.0, 0.0])
def test_whether_there_was_a_gradient_does_not_depend_on_the_step(instruction_set, present):
    """Not even where it times the step is too small for a float32, as late in a decay."""
    sizes = (20, 33, 10)
    inputs, targets = cases(40, sizes)
    light = torch.full((40,), 1e-17)
    for steps, weights in (([1e-42, 1e-300, 0.1], None), ([1e-13, 1e-29, 1e-11], None), ([1e-29] * 3, light)):
        plain, fast = fleet(sizes, "rectified"), fleet(sizes, "rectified")
        expected = Plain(plain, present * inputs, targets, 10, LIMITS, weights).epoch(0, steps, 0.5, never)
        engine = Skipping(fast, present * inputs, targets, 10, LIMITS, weights, instruction_set)
        found = engine.epoch(0, steps, 0.5, never)
        assert found.moved.tolist() == expected.moved.tolist() == [present > 0] * 3
        assert far(fast, plain) < 1e-5
