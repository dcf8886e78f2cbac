"""Dropout backpropagation on a CPU through the compiled kernel (update.cpp), which skips products with exact zeros."""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from meannet.core import philox
from meannet.core.dropout import thresholds
from meannet.core.metrics import OUTPUTS
from meannet.cores import cores
from meannet.fast.build import LIBRARY
from meannet.nn.dense import Fleet
from meannet.nn.own import OwnInputs
from meannet.nn.windows import Windows
from meannet.train import Rows, Tally

SETS = ("plain", "AVX2", "AVX-512")
BLOCK = 64  # units of a panel, and of a block of thresholds
LAYOUT = 3  # of the structures below, as in update.h
UPDATES_A_CALL = 32  # at most, and so many products, so that a request to stop is heard soon
PRODUCTS_A_CALL = 1 << 35  # a second's on two cores
MOST_THREADS = 1024
FLOATS_A_CALL = 1 << 24  # of inputs that are made as they are asked for

_Pointers = ctypes.POINTER(ctypes.c_void_p)


class _Shape(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int32) for name in ("nets", "layers", "batch", "logistic", "output", "softmaxes")],
        *[(name, ctypes.c_void_p) for name in ("sizes", "choices")],
    ]


class _Net(ctypes.Structure):
    _fields_ = [
        ("seed", ctypes.c_uint64),
        *[(name, ctypes.c_float) for name in ("step", "momentum", "limit", "unused")],
        *[(name, _Pointers) for name in ("weights", "velocities", "biases", "bias_velocities", "thresholds")],
    ]


class _Batch(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("inputs", "starts", "order", "answers", "numbers", "weights")],
        ("cases", ctypes.c_int32),
        ("update", ctypes.c_uint32),
    ]


class _Tally(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("loss", "errors", "active", "moved")]


def library() -> ctypes.CDLL | None:
    """The compiled kernel, where there is one."""
    return _loaded()[0]


def why_no_library() -> str:
    """Empty where there is one."""
    return _loaded()[1]


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    path = Path(__file__).with_name(LIBRARY)
    if not path.exists():
        return None, "its kernel was not built when meannet was installed; that needs a C++ compiler"
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"its kernel cannot be loaded ({error}); install meannet anew on this machine"
    if not hasattr(found, "meannet_turn_on") or found.meannet_layout() != LAYOUT:
        return None, "its kernel is of another version of meannet; install meannet anew"
    return found, ""


@cache
def threads() -> int:
    """As many as OMP_NUM_THREADS says or, where it is not set, as this process may use."""
    named = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(named), MOST_THREADS) if named.isdecimal() and int(named) > 0 else cores()


class Skipping:
    """Runs epochs through the kernel; weights are in its panel layout during an epoch, in the fleet between epochs."""

    name = "fast"
    precision = "float32"

    def __init__(
        self,
        fleet: Fleet,
        inputs: Rows,
        targets: Tensor,
        batch: int,
        limit: Sequence[float],
        weights: Tensor | None = None,
        instruction_set: int | None = None,
        use_threads: int | None = None,
    ):
        kernel = library()
        assert kernel is not None
        self.kernel, self.fleet = kernel, fleet
        self.inputs = inputs.contiguous() if isinstance(inputs, Tensor) else inputs
        self.targets, self.weights = targets.contiguous(), None if weights is None else weights.contiguous()
        # What the kernel reads and does not check.
        assert targets.dtype == (torch.int64 if fleet.output == "softmax" else torch.float32)
        assert weights is None or weights.dtype == torch.float32
        if fleet.output == "softmax":
            largest = targets.view(len(targets), -1).amax(0).tolist()
            assert targets.min() >= 0 and all(map(int.__lt__, largest, fleet.groups or fleet.sizes[-1:]))
        self.batch = min(batch, len(inputs))
        self.limit = list(limit)
        self.set = kernel.meannet_best_set() if instruction_set is None else instruction_set
        self.threads = threads() if use_threads is None else use_threads
        layers = len(fleet.weights)
        self.widths = [BLOCK] * layers
        if fleet.sizes[-1] <= 16:
            self.widths[-1] = 16
        self.sizes = (ctypes.c_int32 * (layers + 1))(*fleet.sizes)
        choices = fleet.groups or fleet.sizes[-1:]
        self.choices = (ctypes.c_int32 * len(choices))(*choices)
        self.panels = [_Panels(fleet, k, width) for k, width in enumerate(self.widths)]
        self.thresholds: list[Tensor | None] = []

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        fleet, nets, cases = self.fleet, len(self.fleet.seeds), len(self.inputs)
        order = philox.order(fleet.seeds, epoch, cases).contiguous()
        self.thresholds = [  # anew in each epoch, since rates may be adapted
            None if rate is None else _padded_thresholds(rate, units)
            for rate, units in zip(fleet.rates, fleet.sizes, strict=False)
        ]
        for panels in self.panels:
            panels.fill()
        tally, active = Tally.zero(fleet), torch.zeros(nets, len(fleet.weights) - 1, dtype=torch.uint8)
        moved = torch.zeros(nets, dtype=torch.uint8)
        tallies = (_Tally * nets)(
            *(
                _Tally(*(t[net : net + 1].data_ptr() for t in (tally.loss, tally.errors, active, moved)))
                for net in range(nets)
            )
        )
        held: list[ctypes.Array] = []  # arrays of pointers that the kernel reads
        structures = (_Net * nets)(*(self._net(net, step[net], momentum, held) for net in range(nets)))
        shape = _Shape(
            nets,
            len(fleet.weights),
            self.batch,
            fleet.units == "logistic",
            OUTPUTS.index(fleet.output),
            len(self.choices),
            ctypes.addressof(self.sizes),
            ctypes.addressof(self.choices),
        )
        targets, weights = self.targets.data_ptr(), None if self.weights is None else self.weights.data_ptr()
        first = epoch * -(-cases // self.batch)
        for starts in self._calls(range(0, cases, self.batch)):
            if stop():
                return None
            inputs, begins = self._gathered(order[:, starts[0] : starts[-1] + self.batch])
            assert inputs.dtype == torch.float32 and inputs.is_contiguous()
            at = inputs.data_ptr(), begins.data_ptr(), order.data_ptr()
            batches = (_Batch * (nets * len(starts)))(
                *(
                    _Batch(
                        at[0],
                        at[1] + 8 * (net * begins.stride(0) + start - starts[0]),
                        at[2] + 8 * (net * cases + start),
                        targets,
                        targets,  # as one kind of output reads them or as the others do
                        weights,
                        min(self.batch, cases - start),
                        first + start // self.batch,
                    )
                    for net in range(nets)
                    for start in starts
                )
            )
            failed = self.kernel.meannet_run(
                ctypes.byref(shape), structures, batches, len(starts), tallies, self.threads, self.set
            )
            if failed:
                raise MemoryError
        for panels in self.panels:
            panels.empty()
        tally.active, tally.moved = active > 0, moved > 0
        return tally

    def _calls(self, starts: range) -> Iterator[range]:
        """The first cases of mini-batches, as many as one call to the kernel takes."""
        products = self.batch * sum(weight.numel() for weight in self.fleet.weights)
        most = max(1, min(UPDATES_A_CALL, PRODUCTS_A_CALL // products))
        if not isinstance(self.inputs, Tensor | OwnInputs | Windows):
            floats = len(self.fleet.seeds) * self.batch * self.fleet.sizes[0]
            most = min(most, max(1, FLOATS_A_CALL // floats))
        return (starts[at : at + most] for at in range(0, len(starts), most))

    def _gathered(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs that hold the chosen cases (nets, cases), and at which float each case begins."""
        width = self.fleet.sizes[0]
        if isinstance(self.inputs, Tensor):
            return self.inputs, chosen * width
        if isinstance(self.inputs, OwnInputs):
            versions = self.inputs.versions.contiguous()
            return versions.flatten(0, 1), (chosen + self.inputs.which[:, None] * len(self.inputs)) * width
        if isinstance(self.inputs, Windows):
            return self.inputs.table, self.inputs.starts[chosen] * self.inputs.table.shape[1]
        made = self.inputs[chosen].contiguous()  # (nets, cases, inputs)
        return made, torch.arange(chosen.numel()).view(chosen.shape) * width

    def _net(self, net: int, step: float, momentum: float, held: list[ctypes.Array]) -> _Net:
        def pointers(tensors: Sequence[Tensor | None]) -> ctypes.Array:
            held.append((ctypes.c_void_p * len(tensors))(*(None if t is None else t[net].data_ptr() for t in tensors)))
            return held[-1]

        return _Net(
            int(self.fleet.seeds[net]),
            step,
            momentum,
            self.limit[net],
            0.0,
            pointers([panels.weights for panels in self.panels]),
            pointers([panels.velocities for panels in self.panels]),
            pointers([panels.biases for panels in self.panels]),
            pointers([panels.bias_velocities for panels in self.panels]),
            pointers(self.thresholds),
        )


class _Panels:
    """One layer's parameters in the kernel's layout, (nets, panels, inputs, width); the last panel ends in zeros."""

    def __init__(self, fleet: Fleet, layer: int, width: int):
        self.fleet, self.layer, self.width = fleet, layer, width
        nets, self.units, inputs = fleet.weights[layer].shape
        panels = -(-self.units // width)
        self.weights = torch.zeros(nets, panels, inputs, width)
        self.velocities = torch.zeros_like(self.weights)
        self.biases = torch.zeros(nets, panels * width)
        self.bias_velocities = torch.zeros_like(self.biases)

    def fill(self) -> None:
        """Take over what the fleet holds."""
        for ours, theirs in self._matrices():
            for panel in range(ours.shape[1]):
                part = theirs[:, panel * self.width : (panel + 1) * self.width]
                ours[:, panel, :, : part.shape[1]] = part.mT
        for ours, theirs in self._vectors():
            ours[:, : self.units] = theirs

    def empty(self) -> None:
        """Give it back."""
        for ours, theirs in self._matrices():
            for panel in range(ours.shape[1]):
                part = theirs[:, panel * self.width : (panel + 1) * self.width]
                part.copy_(ours[:, panel, :, : part.shape[1]].mT)
        for ours, theirs in self._vectors():
            theirs.copy_(ours[:, : self.units])

    def _matrices(self) -> list[tuple[Tensor, Tensor]]:
        fleet, k = self.fleet, self.layer
        return [(self.weights, fleet.weights[k]), (self.velocities, fleet.weight_velocities[k])]

    def _vectors(self) -> list[tuple[Tensor, Tensor]]:
        fleet, k = self.fleet, self.layer
        return [(self.biases, fleet.biases[k]), (self.bias_velocities, fleet.bias_velocities[k])]


def _padded_thresholds(rate: Tensor, units: int) -> Tensor:
    """(nets, blocks of 64 units) int16; the padding is never omitted, being zero anyway."""
    whole = torch.zeros(len(rate), -(-units // BLOCK) * BLOCK, dtype=torch.float64)
    whole[:, :units] = rate
    return thresholds(whole)
