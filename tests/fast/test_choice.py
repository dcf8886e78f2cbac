"""Which version of the update runs."""

import pytest
import torch

from meannet.fast import engine
from meannet.nn import dense
from meannet.train import Plain


def parts(output="softmax"):
    rates = [torch.full((1, 1), 0.5)] * 2
    fleet = dense.initial_fleet((4, 3, 2), [0], rates, units="rectified", output=output)
    return fleet, torch.rand(5, 4), torch.zeros(5, dtype=torch.int64), 5, [15.0]


def test_the_plain_version_runs_on_request_and_where_no_kernel_was_built(monkeypatch):
    assert isinstance(engine(*parts(), "plain"), Plain)
    monkeypatch.setattr(
        "meannet.fast.cpu.why_no_library", lambda: "its kernel was not built; that needs a C++ compiler"
    )
    assert isinstance(engine(*parts(), "auto"), Plain)


def test_a_fast_path_that_is_not_there_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(
        "meannet.fast.cpu.why_no_library", lambda: "its kernel was not built; that needs a C++ compiler"
    )
    with pytest.raises(ValueError, match=r"--path fast: its kernel was not built"):
        engine(*parts(), "fast")


def test_nets_whose_weights_decay_take_the_plain_version_and_no_other():
    fleet, *rest = parts()
    fleet.decay = torch.tensor([0.1])[:, None, None]
    assert isinstance(engine(fleet, *rest, "auto"), Plain)
    with pytest.raises(ValueError, match="--path fast: nets whose weights decay are for the plain path"):
        engine(fleet, *rest, "fast")


def test_an_unknown_path_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="auto, plain, fast, not 'quick'"):
        engine(*parts(), "quick")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_fast_version_runs_on_a_gpu_for_softmax_outputs():
    pytest.importorskip("triton", reason="Triton is not installed: the fast path has nothing to run on")
    fleet, inputs, targets, *rest = parts()
    rates = [torch.full((1, 1), 0.5)] * 2
    fleet = dense.initial_fleet((4, 3, 2), [0], rates, units="rectified", device="cuda")
    assert engine(fleet, inputs.cuda(), targets.cuda(), *rest).name == "fast"
    linear = dense.initial_fleet((4, 3, 2), [0], rates, units="rectified", output="linear", device="cuda")
    assert engine(linear, inputs.cuda(), targets.cuda(), *rest).name == "plain"
