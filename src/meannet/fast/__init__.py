"""Which version of the update runs is decided here.

What is not an update chooses for itself: states of units in pretraining (pretrain/draws.py) and best paths of phones
(speech/viterbi.py), which are the same from every version, and products of units in captured pretraining (units.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from meannet.fast.units import triton_is_there
from meannet.images import Plain as PlainImages
from meannet.nn.convfleet import ConvFleet
from meannet.nn.dense import Fleet
from meannet.nn.own import OwnInputs
from meannet.nn.windows import Windows
from meannet.train import Engine, Plain, Rows

if TYPE_CHECKING:
    from meannet import patches
    from meannet.fast.patches import Fast
    from meannet.ranks import Ranks

PATHS = ("auto", "plain", "fast")
ROUGH = ("bfloat16", "tf32")
PRECISIONS = ("auto", *ROUGH, "float32")
MOST_MOMENTUM = 0.995  # with more, velocities take longer to fade than the float16 that goes with bfloat16 can tell
MOST_OUTPUTS = 256  # a block of the GPU's output kernel holds them all


def engine(
    fleet: Fleet,
    inputs: Rows,
    targets: Tensor,
    batch: int,
    limit: Sequence[float],
    path: str = "auto",
    weights: Tensor | None = None,
    precision: str = "auto",
    momentum: float = 0.0,
) -> Engine:
    """The plain loop, or its fast twin: Triton kernels in a CUDA graph, or the compiled kernel of the CPU.

    `precision` is that of the GPU kernels' products. Unless told they are bfloat16, or TF32 where the `momentum`, the
    largest of the run, asks for velocities in float32; elsewhere than on a GPU they are of the weights'.
    """
    check_path(path, precision)
    if isinstance(fleet, ConvFleet):
        assert isinstance(inputs, Tensor)
        return _image_engine(fleet, inputs, targets, batch, limit, path, precision)
    check_path(path, precision, fleet.device)
    reason = why_not_fast(fleet)
    if fleet.device.type == "cuda" and weights is not None:
        reason = "on a GPU cases with weights are for the plain path"
    elif fleet.device.type == "cuda" and fleet.adapting:
        reason = "on a GPU rates that are adapted are for the plain path"
    elif fleet.device.type == "cuda" and not reason:
        reason = why_not_resident(fleet, inputs)
    if path == "fast" and reason:
        raise ValueError(f"--path fast: {reason}")
    if precision in ROUGH and reason:
        raise ValueError(f"--precision {precision} is of the fast path: {reason}")
    if path == "plain" or reason:
        return Plain(fleet, inputs, targets, batch, limit, weights)
    if fleet.device.type == "cpu":
        from meannet.fast.cpu import Skipping

        return Skipping(fleet, inputs, targets, batch, limit, weights)
    from meannet.fast.cuda import Captured

    if precision == "auto":
        precision = "bfloat16" if momentum <= MOST_MOMENTUM else "tf32"
    return Captured(fleet, inputs, targets, batch, limit, precision)


def products(device: torch.device, path: str = "auto") -> torch.dtype:
    """The precision of products in pretraining: bfloat16 on a CPU that has instructions for it, else float32.

    On a GPU float32 products of captured updates are taken as TF32.
    """
    check_path(path)
    rough = path != "plain" and device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if rough else torch.float32


def _image_engine(
    fleet: ConvFleet, inputs: Tensor, targets: Tensor, batch: int, limit: Sequence[float], path: str, precision: str
) -> Engine:
    if not _on_gpu(fleet, path, precision):
        return PlainImages(fleet, inputs, targets, batch, limit)
    from meannet.fast.images import Captured

    return Captured(fleet, inputs, targets, batch, limit)


def patch_engine(
    fleet: ConvFleet, batch: int, limit: float, ranks: "Ranks", path: str, precision: str = "auto"
) -> "patches.Plain | Fast":
    """What updates the net of pictures in shards."""
    check_path(path, precision)
    if not _on_gpu(fleet, path, precision):
        from meannet import patches

        return patches.Plain(fleet, batch, limit, ranks)
    from meannet.fast.patches import Fast

    return Fast(fleet, batch, limit, ranks)


def _on_gpu(fleet: ConvFleet, path: str, precision: str) -> bool:
    """Whether image nets take the fast path, which is for GPUs alone."""
    if precision != "auto":
        raise ValueError(f"--precision {precision}: image nets have no choice of it; leave it out")
    if path == "fast" and fleet.device.type != "cuda":
        raise ValueError("--path fast: image nets have a fast path for CUDA devices only")
    return path != "plain" and fleet.device.type == "cuda"


def check_path(path: str, precision: str = "auto", device: torch.device | None = None) -> None:
    """Refuse what there is not: by name, and on a device."""
    if path not in PATHS:
        raise ValueError(f"--path must be one of {', '.join(PATHS)}, not {path!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    if device is not None and not has_precision(device, path, precision):
        raise ValueError(f"--precision {precision}: only the fast path on a GPU has it; others multiply in float32")


def has_precision(device: torch.device, path: str, precision: str) -> bool:
    """Whether updates on this device, by this path, can have products of that precision."""
    return precision in PRECISIONS and (precision not in ROUGH or (device.type == "cuda" and path != "plain"))


def why_not_fast(fleet: Fleet) -> str:
    """Empty where the fast path can run."""
    if fleet.weights[0].dtype != torch.float32:
        return "the fast paths train float32 nets only"
    if fleet.decay is not None:
        return "nets whose weights decay are for the plain path"
    if fleet.device.type == "cpu":
        from meannet.fast.cpu import why_no_library

        return why_no_library()
    if fleet.device.type != "cuda":
        return "there are fast paths for CPUs and CUDA devices only"
    if fleet.output != "softmax" or fleet.groups:
        return "on a GPU it trains nets with one softmax only"
    if not triton_is_there():
        return "Triton is not installed"
    return "" if fleet.sizes[-1] <= MOST_OUTPUTS else f"on a GPU it takes {MOST_OUTPUTS} outputs at most"


def why_not_resident(fleet: Fleet, inputs: Rows) -> str:
    """Empty where the GPU can hold all inputs, dense; sparse ones are only made so if that leaves half of its memory.

    The kernel that gathers a mini-batch reads dense rows, and does so in a hundredth of an update's time.
    """
    if isinstance(inputs, Tensor | OwnInputs | Windows):
        return ""
    needed, free = 4 * len(inputs) * fleet.sizes[0], torch.cuda.mem_get_info(fleet.device)[0]
    return "" if needed < free // 2 else f"its inputs, dense, would take {needed >> 20} of {free >> 20} MiB"
