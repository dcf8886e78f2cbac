"""Which version of the update runs is decided here, and nowhere else."""

from collections.abc import Sequence

from torch import Tensor

from meannet.nn.dense import Fleet
from meannet.train import Engine, Plain

PATHS = ("auto", "plain", "fast")
MOST_OUTPUTS = 256  # a block of the output kernel holds them all


def engine(
    fleet: Fleet, inputs: Tensor, targets: Tensor, batch: int, limit: Sequence[float], path: str = "auto"
) -> Engine:
    """The plain loop, or its fast twin where the device has one: Triton kernels in a CUDA graph."""
    if path not in PATHS:
        raise ValueError(f"--path must be one of {', '.join(PATHS)}, not {path!r}")
    reason = _why_not_fast(fleet)
    if path == "fast" and reason:
        raise ValueError(f"--path fast: {reason}")
    if path == "plain" or reason:
        return Plain(fleet, inputs, targets, batch, limit)
    from meannet.fast.cuda import Captured

    return Captured(fleet, inputs, targets, batch, limit)


def _why_not_fast(fleet: Fleet) -> str:
    """Empty where the fast path can run."""
    if fleet.device.type != "cuda":
        return "there is a fast path for CUDA devices only"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "Triton is not installed"
    if fleet.output != "softmax" or fleet.sizes[-1] > MOST_OUTPUTS:
        return f"the fast path trains softmax outputs only, {MOST_OUTPUTS} at most"
    return ""
