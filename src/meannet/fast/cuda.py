"""Dropout backpropagation on a GPU: the kernels of one update, many updates captured in one CUDA graph."""

import gc
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from meannet.core import philox
from meannet.core.dropout import thresholds
from meannet.core.maxnorm import constrain_incoming_
from meannet.fast import kernels
from meannet.nn.dense import Fleet
from meannet.nn.own import OwnInputs, apart
from meannet.nn.windows import Windows
from meannet.train import Rows, Tally

SIDE = kernels.SIDE.value
MOST_IN_A_GRAPH = 200
ROWS_AT_A_TIME = 8192  # of sparse inputs made dense


class Tile(NamedTuple):
    """What one block of threads takes on, and how: the fastest of those tried on an H200.

    `python -m meannet.bench.tiles` times others, and came after these had been chosen.
    """

    rows: int  # cases of a layer's product; units of a step
    columns: int  # units of a layer's product; inputs of a step
    inner: int  # taken at a time along the axis that is summed over; of a layer's product a multiple of SIDE
    warps: int
    stages: int  # of loads on their way
    registers: int | None = None  # of a thread of a step of split weights, at most; with fewer, more blocks fit


FEW_NETS = 3
LAYER_OF_FEW = Tile(64, 32, 128, 4, 3)
LAYER_OF_MANY = Tile(64, 64, 64, 4, 3)
HIDDEN_STEP = Tile(64, 64, 64, 4, 3, registers=128)
OUTPUT_STEP = Tile(16, 64, 32, 4, 3)
FLOAT32_INNER = 16  # of steps without tensor cores, whose sums are written out: with more, registers do not suffice
MOST_PARTS = 32  # of a row's squared length that are read at once
# Nets are trained in independent groups: while one waits on memory, another has products to do.
LANES = 3

# Velocities in float16 are multiples of the step, up to 2^HEADROOM of it: what a hundred gradients of 1 add up to.
HEADROOM, MOST_HALF = 8, torch.finfo(torch.float16).max

PRECISIONS = {"bfloat16": torch.bfloat16, "tf32": torch.float32, "float32": torch.float32}


class Captured:
    """Runs epochs by replaying graphs; weights stay float32, products are of `precision`.

    With bfloat16 products velocities have the 11 bits of float16 within an epoch, else those of float32.
    """

    name = "fast"

    def __init__(
        self,
        fleet: Fleet,
        inputs: Rows,
        targets: Tensor,
        batch: int,
        limit: Sequence[float],
        precision: str = "bfloat16",
    ):
        self.fleet, self.batch, self.cases = fleet, min(batch, len(inputs)), len(inputs)
        device, nets = fleet.device, len(fleet.seeds)
        self.dtype = PRECISIONS[precision]
        velocities = ", float16 velocities" if self.dtype is torch.bfloat16 else ""
        self.precision = f"{precision} products, float32 weights{velocities}"
        self.dot = "tf32" if precision == "tf32" else "ieee"
        self.cut = isinstance(inputs, Windows)
        self.starts = inputs.starts if isinstance(inputs, Windows) else fleet.seeds  # or not read
        table = inputs.table if isinstance(inputs, Windows) else _dense(inputs, fleet, self.dtype)
        versions, which = apart(table, nets)
        self.inputs, self.which = versions.to(self.dtype).contiguous(), which.contiguous()
        self.targets = targets.contiguous()
        self.number = torch.zeros((), dtype=torch.int64, device=device)  # of the epoch
        self.order = torch.zeros(nets, self.cases, dtype=torch.int64, device=device)
        self.first_case = torch.zeros(1, dtype=torch.int64, device=device)
        self.first_update = torch.zeros(1, dtype=torch.int64, device=device)
        self.steps = torch.zeros(nets, device=device)
        self.momentum = torch.zeros(1, device=device)
        self.limits = torch.tensor(list(limit), dtype=torch.float32, device=device)
        # What an epoch changes. Products read `weights`; in bfloat16 that is one half of them, and `rests` the other.
        self.split = self.dtype is torch.bfloat16
        shapes = [in_blocks(weight).shape for weight in fleet.weights]
        self.weights = [torch.zeros(shape, dtype=self.dtype, device=device) for shape in shapes]
        self.rests = [torch.zeros_like(w, dtype=torch.int16) if self.split else w for w in self.weights]
        self.velocities = [torch.zeros_like(w, dtype=torch.float16 if self.split else None) for w in self.weights]
        self.powers = torch.ones(nets, device=device)  # of two, by which those are multiplied
        hidden = fleet.weights[:-1]
        self.scales = [torch.ones(weight.shape[:2], device=device) for weight in hidden]
        parts = [triton.cdiv(weight.shape[2], HIDDEN_STEP.columns) for weight in hidden]
        self.squares = [
            torch.zeros(nets, n, weight.shape[1], device=device) for n, weight in zip(parts, hidden, strict=True)
        ]
        self.thresholds = [
            None if rate is None else _thresholds(rate, units)
            for rate, units in zip(fleet.rates, fleet.sizes, strict=False)
        ]
        self.active = torch.zeros(nets, len(hidden), dtype=torch.int32, device=device)
        self.moved = torch.zeros(nets, max(fleet.sizes[1:]), dtype=torch.int32, device=device)
        each = -(-nets // LANES)
        self.lanes = [slice(first, first + each) for first in range(0, nets, each)]
        whole, rest = divmod(self.cases, self.batch)
        self.pieces = [_Piece(self, self.batch, whole)] + ([_Piece(self, rest, 1)] if rest else [])
        self.begin, self.end = _Repeated(self._begin, device), _Repeated(self._end, device)

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        self.number.fill_(epoch)
        self.steps.copy_(torch.tensor(list(step)))
        self.powers.copy_(torch.tensor([_power(one) for one in step]))
        self.momentum.fill_(momentum)
        self.begin()
        update, case = epoch * -(-self.cases // self.batch), 0
        for piece in self.pieces:
            for updates in piece.runs:
                if stop():
                    return None
                self.first_update.fill_(update)
                self.first_case.fill_(case)
                piece.replay(updates)
                update, case = update + updates, case + updates * piece.cases
        self.end()
        return Tally(
            loss=torch.stack([piece.loss.double().sum(1) for piece in self.pieces]).sum(0),
            errors=torch.stack([piece.wrong.sum(1) for piece in self.pieces]).sum(0),
            active=self.active > 0,
            moved=self.moved.any(1),
        )

    def _begin(self) -> None:
        fleet = self.fleet
        self.order.copy_(philox.order(fleet.seeds, self.number, self.cases))
        for whole, weight, rest in zip(fleet.weights, self.weights, self.rests, strict=True):
            if self.split:
                split_(in_blocks(whole), weight, rest)
            else:
                weight.copy_(in_blocks(whole))
        for whole, velocity in zip(fleet.weight_velocities, self.velocities, strict=True):
            if self.split:
                whole = (whole * self.powers[:, None, None]).clamp_(-MOST_HALF, MOST_HALF)
            velocity.copy_(in_blocks(whole))
        for figures in (*self.squares, self.active, self.moved):
            figures.zero_()
        for piece in self.pieces:
            piece.loss.zero_()
            piece.wrong.zero_()

    def _end(self) -> None:
        for whole, weight, rest in zip(self.fleet.weights, self.weights, self.rests, strict=True):
            whole.copy_(out_of_blocks(joined(weight, rest) if self.split else weight, whole.shape))
        for whole, velocity in zip(self.fleet.weight_velocities, self.velocities, strict=True):
            whole.copy_(out_of_blocks(velocity, whole.shape))
            if self.split:
                whole.div_(self.powers[:, None, None])
        for weight in self.fleet.weights[:-1]:
            constrain_incoming_(weight, self.limits[:, None, None])


class _Repeated:
    """Work that launches the same kernels each time: done as it is at first, then replayed as a CUDA graph."""

    def __init__(self, work: Callable[[], None], device: torch.device):
        self.work, self.on_gpu = work, device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        self.work()
        if self.on_gpu:
            gc.collect()  # a graph that is thrown away while another is captured spoils it
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.work()
            self.graph = graph


def runs(updates: int) -> list[int]:
    """How many updates each replay takes: the same number if one from half of the most on will do, else the most."""
    most = min(updates, MOST_IN_A_GRAPH)
    alike = max(n for n in range(1, most + 1) if updates % n == 0)
    if 2 * alike >= most:
        return [alike] * (updates // alike)
    return [most] * (updates // most) + [updates % most]


class _Piece:
    """Updates on mini-batches of one size: their buffers and graphs."""

    def __init__(self, engine: Captured, cases: int, updates: int):
        self.engine, self.cases, self.runs = engine, cases, runs(updates)
        fleet, device, nets = engine.fleet, engine.fleet.device, len(engine.fleet.seeds)
        *hidden_sizes, outputs = fleet.sizes
        self.width = max(16, triton.next_power_of_2(outputs))
        self.activities = [torch.empty(nets, cases, n, dtype=engine.dtype, device=device) for n in hidden_sizes]
        self.slopes = [torch.empty_like(a) for a in self.activities[1:]]
        self.deltas = [torch.empty_like(a) for a in self.activities[1:]]
        # Of the first layer nothing is asked for: there are no derivatives below it.
        self.scaled_deltas = [torch.empty_like(delta) if k else delta for k, delta in enumerate(self.deltas)]
        outer = torch.empty(nets, cases, self.width, dtype=engine.dtype, device=device)
        self.deltas.append(outer)
        self.scaled_deltas.append(outer)  # output units have no bound
        self.loss = torch.zeros(nets, cases, device=device)
        self.wrong = torch.zeros(nets, cases, dtype=torch.int32, device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by the number of updates

    def replay(self, updates: int) -> None:
        if self.engine.fleet.device.type != "cuda":  # Triton's interpreter, in tests
            for lane in self.engine.lanes:
                self.launch_all(updates, lane)
            return
        if updates not in self.graphs:
            self.graphs[updates] = self.capture(updates)
        self.graphs[updates].replay()

    def capture(self, updates: int) -> torch.cuda.CUDAGraph:
        """Compile and capture without leaving a trace in what training changes."""
        engine = self.engine
        changed = [*engine.weights, *(engine.rests if engine.split else ()), *engine.velocities, *engine.squares]
        changed += [*engine.scales, *engine.fleet.biases, *engine.fleet.bias_velocities]
        changed += [self.loss, self.wrong, engine.active, engine.moved]
        before = [tensor.clone() for tensor in changed]
        gc.collect()  # a graph that is thrown away while another is captured spoils it
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for lane in engine.lanes:
                self.launch(0, lane)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            main, joined = torch.cuda.current_stream(), []
            for lane in engine.lanes:
                # Steps wait on memory; products of another lane that are ready go before them.
                stream, side = torch.cuda.Stream(priority=-1), torch.cuda.Stream()
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    self.launch_all(updates, lane, side)
                joined.append(stream)
            for stream in joined:
                main.wait_stream(stream)
        torch._foreach_copy_(changed, before)
        return graph

    def launch_all(self, updates: int, lane: slice, side: torch.cuda.Stream | None = None) -> None:
        for offset in range(updates):
            self.launch(offset, lane, side)

    def launch(self, offset: int, lane: slice, side: torch.cuda.Stream | None = None) -> None:
        """The kernels of one update of some nets: forward with masks, softmax and its gradient, backward with steps.

        A layer's step need not wait for derivatives further down; with `side` it is taken on that stream.
        """
        fleet = self.engine.fleet
        last = len(fleet.weights) - 1
        tile = LAYER_OF_FEW if len(fleet.seeds[lane]) <= FEW_NETS else LAYER_OF_MANY
        assert tile.inner % SIDE == 0  # pointers to weights go from block to block
        self.gather(offset, lane)
        for k in range(last):
            self.forward(k, offset, lane, tile)
        self.outputs(offset, lane)
        for k in range(last, -1, -1):
            if k > 0:
                self.backward(k, lane, tile)
            if side is not None:
                side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.step(k, lane)
        if side is not None:
            torch.cuda.current_stream().wait_stream(side)

    def gather(self, offset: int, lane: slice) -> None:
        """The inputs of the next cases, masked."""
        engine, seeds, units, cases = self.engine, self.engine.fleet.seeds[lane], self.engine.fleet.sizes[0], self.cases
        at_least, padded = _of(engine.thresholds[0], lane, seeds)
        kernels.gather[(triton.cdiv(units, 256), triton.cdiv(cases, 4), len(seeds))](
            engine.inputs, engine.which[lane], engine.order[lane], engine.first_case, at_least, seeds,
            engine.first_update, offset, 0, self.activities[0][lane], engine.starts, engine.inputs.shape[2],
            engine.cases, cases, units, padded,
            MASKED=engine.thresholds[0] is not None, CUT=engine.cut, CASES=4, UNITS=256,
        )  # fmt: skip

    def forward(self, k: int, offset: int, lane: slice, tile: Tile) -> None:
        """Masked activities above weight layer k, and their slopes."""
        engine, fleet, cases = self.engine, self.engine.fleet, self.cases
        seeds, sizes, parts = fleet.seeds[lane], fleet.sizes, engine.squares[k].shape[1]
        at_least, padded = _of(engine.thresholds[k + 1], lane, seeds)
        grid = triton.cdiv(sizes[k + 1], tile.columns), triton.cdiv(cases, tile.rows), len(seeds)
        kernels.forward_layer[grid](
            self.activities[k][lane], engine.weights[k][lane], engine.squares[k][lane], engine.limits[lane],
            engine.scales[k][lane], fleet.biases[k][lane], at_least, seeds, engine.first_update, offset, k + 1,
            self.activities[k + 1][lane], self.slopes[k][lane], engine.active[lane, k],
            cases, sizes[k + 1], sizes[k], padded, parts, len(fleet.weights) - 1,
            LOGISTIC=fleet.units == "logistic", MASKED=engine.thresholds[k + 1] is not None, PRECISION=engine.dot,
            CASES=tile.rows, UNITS=tile.columns, BLOCK=tile.inner, PARTS=min(MOST_PARTS, triton.next_power_of_2(parts)),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def outputs(self, offset: int, lane: slice) -> None:
        """Softmax, loss and errors, and the derivatives by the total inputs of the output units."""
        engine, fleet, cases = self.engine, self.engine.fleet, self.cases
        kernels.output_layer[(triton.cdiv(cases, 16), len(fleet.seeds[lane]))](
            self.activities[-1][lane], engine.weights[-1][lane], fleet.biases[-1][lane], engine.targets,
            engine.order[lane], engine.first_case, offset, self.deltas[-1][lane], self.loss[lane], self.wrong[lane],
            engine.cases, cases, *fleet.sizes[-2:], PRECISION=engine.dot, CASES=16, OUT=self.width, BLOCK=128,
        )  # fmt: skip

    def backward(self, k: int, lane: slice, tile: Tile) -> None:
        """Derivatives of the layer below weight layer k, taken before that layer is changed."""
        engine, fleet, cases = self.engine, self.engine.fleet, self.cases
        sizes, outputs = fleet.sizes, k == len(fleet.weights) - 1
        grid = triton.cdiv(sizes[k], tile.columns), triton.cdiv(cases, tile.rows), len(fleet.seeds[lane])
        kernels.backward_layer[grid](
            self.scaled_deltas[k][lane], engine.weights[k][lane], self.slopes[k - 1][lane], engine.scales[k - 1][lane],
            self.deltas[k - 1][lane], self.scaled_deltas[k - 1][lane],
            cases, sizes[k + 1], sizes[k], self.deltas[k].shape[2], SCALED=k > 1, PRECISION=engine.dot,
            CASES=tile.rows, INPUTS=tile.columns, BLOCK=min(tile.inner, self.width) if outputs else tile.inner,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def step(self, k: int, lane: slice) -> None:
        """The change of weight layer k."""
        engine, fleet, cases = self.engine, self.engine.fleet, self.cases
        sizes, bound = fleet.sizes, k < len(fleet.weights) - 1
        tile = HIDDEN_STEP if bound else OUTPUT_STEP
        inner = tile.inner if engine.dot == "tf32" or engine.split else FLOAT32_INNER
        grid = triton.cdiv(sizes[k], tile.columns), triton.cdiv(sizes[k + 1], tile.rows), len(fleet.seeds[lane])
        scales, squares = (engine.scales[k], engine.squares[k]) if bound else (self.loss, self.loss)  # or not read
        kernels.gradient_step[grid](
            self.deltas[k][lane], self.activities[k][lane], engine.weights[k][lane], engine.rests[k][lane],
            engine.velocities[k][lane], engine.powers[lane], scales[lane], squares[lane], fleet.biases[k][lane],
            fleet.bias_velocities[k][lane], engine.steps[lane], engine.momentum, engine.moved[lane],
            cases, sizes[k + 1], sizes[k], self.deltas[k].shape[2], engine.moved.shape[1],
            BOUND=bound, SPLIT=engine.split, PRECISION=engine.dot, UNITS=tile.rows, BLOCK=tile.columns,
            CASES=min(inner, max(16, triton.next_power_of_2(cases))),
            num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers if engine.split else None,
        )  # fmt: skip


def _power(step: float) -> float:
    """The power of two by which velocities of that step fill float16, whose largest number is just under 2^16."""
    if not 0 < step < math.inf:
        return 1.0
    return 2.0 ** min(max(16 - HEADROOM - math.ceil(math.log2(step)), -120), 120)


def split_(weight: Tensor, high: Tensor, rest: Tensor) -> None:
    """Write float32 numbers as the nearest bfloat16 and what their bits differ by, as `kernels.gradient_step` does."""
    bits = weight.view(torch.int32)
    top = (bits + 0x8000).bitwise_and_(-0x10000)
    high.copy_(top.view(torch.float32))
    rest.copy_(bits - top)


def joined(high: Tensor, rest: Tensor) -> Tensor:
    """The numbers that `split_` was given, bit by bit."""
    return (high.float().view(torch.int32) + rest).view(torch.float32)


def in_blocks(weight: Tensor) -> Tensor:
    """Of (nets, units, inputs): (nets, blocks of units, blocks of inputs, SIDE, SIDE), zeros at the edges."""
    units, inputs = weight.shape[1:]
    padded = F.pad(weight, (0, -inputs % SIDE, 0, -units % SIDE))
    return padded.unflatten(2, (-1, SIDE)).unflatten(1, (-1, SIDE)).transpose(2, 3)


def out_of_blocks(blocks: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor of that shape that `in_blocks` was given."""
    return blocks.transpose(2, 3).flatten(3).flatten(1, 2)[:, : shape[1], : shape[2]]


def _dense(inputs: Rows, fleet: Fleet, dtype: torch.dtype) -> Tensor | OwnInputs:
    """Dense inputs as they are; all of sparse ones, some rows at a time, in the precision of the products."""
    if isinstance(inputs, Tensor | OwnInputs):
        return inputs
    whole = torch.empty(len(inputs), fleet.sizes[0], dtype=dtype, device=fleet.device)
    for rows in torch.arange(len(inputs), device=fleet.device).split(ROWS_AT_A_TIME):
        whole[rows] = inputs[rows].to(dtype)
    return whole


def _thresholds(rate: Tensor, units: int) -> Tensor:
    """(nets, units, and up to a multiple of eight) for `kernels._kept`."""
    per_unit = torch.zeros(len(rate), -(-units // 8) * 8, dtype=torch.float64, device=rate.device)
    per_unit[:, :units] = rate
    return thresholds(per_unit)


def _of(limits: Tensor | None, lane: slice, unused: Tensor) -> tuple[Tensor, int]:
    return (unused, 0) if limits is None else (limits[lane], limits.shape[1])
