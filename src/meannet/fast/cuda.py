"""Dropout backpropagation on a GPU: the kernels of one update, many updates captured in one CUDA graph."""

from collections.abc import Callable, Sequence

import torch
import triton
from torch import Tensor

from meannet.core import philox
from meannet.core.dropout import thresholds
from meannet.fast import kernels
from meannet.nn.dense import Fleet
from meannet.train import Tally

MOST_IN_A_GRAPH = 200
# Rows, columns, warps and pipeline stages of a block of gradient_step, the fastest of those tried on an H200.
HIDDEN_STEP = (64, 32, 4, 3)
OUTPUT_STEP = (16, 256, 8, 1)
PRECISIONS = {"bfloat16": torch.bfloat16, "tf32": torch.float32, "float32": torch.float32}


class Captured:
    """Runs epochs by replaying graphs; weights and velocities stay float32, products are of `precision`."""

    name = "fast"

    def __init__(
        self,
        fleet: Fleet,
        inputs: Tensor,
        targets: Tensor,
        batch: int,
        limit: Sequence[float],
        precision: str = "bfloat16",
    ):
        self.fleet, self.batch, self.cases = fleet, min(batch, len(inputs)), len(inputs)
        device, nets = fleet.device, len(fleet.seeds)
        self.dtype = PRECISIONS[precision]
        self.precision = f"{precision} products, float32 weights"
        self.dot = "tf32" if precision == "tf32" else "ieee"
        self.inputs, self.targets = inputs.to(self.dtype).contiguous(), targets.contiguous()
        self.order = torch.zeros(nets, self.cases, dtype=torch.int64, device=device)
        self.first_case = torch.zeros(1, dtype=torch.int64, device=device)
        self.first_update = torch.zeros(1, dtype=torch.int64, device=device)
        self.steps = torch.zeros(nets, device=device)
        self.momentum = torch.zeros(1, device=device)
        self.limits = torch.tensor(list(limit), dtype=torch.float32, device=device)
        self.shadows = [weight.to(self.dtype) for weight in fleet.weights]
        self.active = torch.zeros(len(fleet.weights) - 1, nets, dtype=torch.int32, device=device)
        self.moved = torch.zeros(nets, dtype=torch.int32, device=device)
        whole, rest = divmod(self.cases, self.batch)
        self.pieces = [_Piece(self, self.batch, whole)] + ([_Piece(self, rest, 1)] if rest else [])

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        fleet = self.fleet
        self.order.copy_(philox.order(fleet.seeds, epoch, self.cases))
        self.steps.copy_(torch.tensor(list(step)))
        self.momentum.fill_(momentum)
        for shadow, weight in zip(self.shadows, fleet.weights, strict=True):
            shadow.copy_(weight)
        self.active.zero_()
        self.moved.zero_()
        update, case = epoch * -(-self.cases // self.batch), 0
        for piece in self.pieces:
            piece.loss.zero_()
            piece.wrong.zero_()
            for _ in range(piece.replays):
                if stop():
                    return None
                self.first_update.fill_(update)
                self.first_case.fill_(case)
                piece.replay()
                update, case = update + piece.updates, case + piece.updates * piece.cases
        return Tally(
            loss=torch.stack([piece.loss.double().sum(1) for piece in self.pieces]).sum(0),
            errors=torch.stack([piece.wrong.sum(1) for piece in self.pieces]).sum(0),
            active=self.active.T > 0,
            moved=self.moved > 0,
        )


class _Piece:
    """A run of updates on mini-batches of one size: its buffers and its graph."""

    def __init__(self, engine: Captured, cases: int, updates: int):
        self.engine, self.cases = engine, cases
        self.updates = max(n for n in range(1, min(updates, MOST_IN_A_GRAPH) + 1) if updates % n == 0)
        self.replays = updates // self.updates
        fleet, device, nets = engine.fleet, engine.fleet.device, len(engine.fleet.seeds)
        *hidden_sizes, outputs = fleet.sizes
        self.width = max(16, triton.next_power_of_2(outputs))
        self.activities = [torch.empty(nets, cases, n, dtype=engine.dtype, device=device) for n in hidden_sizes]
        self.slopes = [torch.empty_like(a) for a in self.activities[1:]]
        self.deltas = [torch.empty_like(a) for a in self.activities[1:]]
        self.deltas.append(torch.empty(nets, cases, self.width, dtype=engine.dtype, device=device))
        self.loss = torch.zeros(nets, cases, device=device)
        self.wrong = torch.zeros(nets, cases, dtype=torch.int32, device=device)
        self.masks = [
            None if rate is None else _Mask(rate, cases, units)
            for rate, units in zip(fleet.rates, hidden_sizes, strict=True)
        ]
        self.graph: torch.cuda.CUDAGraph | None = None

    def replay(self) -> None:
        if self.engine.fleet.device.type != "cuda":  # Triton's interpreter, in tests
            self.launch_all()
            return
        if self.graph is None:
            self.graph = self.capture()
        self.graph.replay()

    def launch_all(self) -> None:
        for offset in range(self.updates):
            self.launch(offset)

    def capture(self) -> torch.cuda.CUDAGraph:
        """Compile and capture without leaving a trace in what training changes."""
        engine = self.engine
        changed = [*engine.fleet.state().values(), *engine.shadows, self.loss, self.wrong, engine.active, engine.moved]
        before = [tensor.clone() for tensor in changed]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.launch(0)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.launch_all()
        torch._foreach_copy_(changed, before)
        return graph

    def launch(self, offset: int) -> None:
        """The kernels of one update: forward with gather and masks, softmax and its gradient, backward with steps."""
        engine, fleet, cases = self.engine, self.engine.fleet, self.cases
        nets, logistic = len(fleet.seeds), fleet.units == "logistic"
        sizes, shadows, last = fleet.sizes, engine.shadows, len(fleet.weights) - 1
        for layer, mask in enumerate(self.masks):
            if mask is not None:
                mask.draw(fleet.seeds, engine.first_update, offset, layer)
        bits, blocks = _bits(self.masks[0], self.wrong)
        kernels.gather[(cases, nets)](
            engine.inputs, engine.order, engine.first_case, offset, bits, self.activities[0],
            engine.cases, cases, sizes[0], blocks, MASKED=self.masks[0] is not None,
            BLOCK=min(1024, triton.next_power_of_2(sizes[0])),
        )  # fmt: skip
        for k in range(last):
            torch.bmm(self.activities[k], shadows[k].mT, out=self.activities[k + 1])
            bits, blocks = _bits(self.masks[k + 1], self.wrong)
            kernels.activate[(cases, nets)](
                self.activities[k + 1], self.slopes[k], fleet.biases[k], bits, engine.active[k],
                cases, sizes[k + 1], blocks, LOGISTIC=logistic, MASKED=self.masks[k + 1] is not None,
                BLOCK=min(1024, triton.next_power_of_2(sizes[k + 1])),
            )  # fmt: skip
        kernels.output_layer[(triton.cdiv(cases, 16), nets)](
            self.activities[-1], shadows[last], fleet.biases[last], engine.targets,
            engine.order, engine.first_case, offset, self.deltas[-1], self.loss, self.wrong,
            engine.cases, cases, sizes[-2], sizes[-1], PRECISION=engine.dot, CASES=16, OUT=self.width, BLOCK=64,
        )  # fmt: skip
        for k in range(last, -1, -1):
            self.step_back(k, nets)

    def step_back(self, k: int, nets: int) -> None:
        """Derivatives of the layer below weight layer k, taken before that layer is changed, and its change."""
        engine, fleet, cases = self.engine, self.engine.fleet, self.cases
        sizes, last = fleet.sizes, len(fleet.weights) - 1
        if k == last and k > 0:
            kernels.through_output[(triton.cdiv(sizes[k], 64), triton.cdiv(cases, 32), nets)](
                self.deltas[k], engine.shadows[k], self.slopes[k - 1], self.deltas[k - 1],
                cases, sizes[k], sizes[k + 1], PRECISION=engine.dot, CASES=32, OUT=self.width, BLOCK=64,
            )  # fmt: skip
        elif k > 0:
            torch.bmm(self.deltas[k], engine.shadows[k], out=self.deltas[k - 1])
            count = self.deltas[k - 1].numel()
            kernels.times_slope[(triton.cdiv(count, 1024),)](self.deltas[k - 1], self.slopes[k - 1], count, BLOCK=1024)
        rows, columns, warps, stages = OUTPUT_STEP if k == last else HIDDEN_STEP
        kernels.gradient_step[(triton.cdiv(sizes[k + 1], rows), nets)](
            self.deltas[k], self.activities[k], fleet.weights[k], fleet.weight_velocities[k], engine.shadows[k],
            fleet.biases[k], fleet.bias_velocities[k], engine.steps, engine.momentum, engine.limits, engine.moved,
            cases, sizes[k + 1], sizes[k], self.deltas[k].shape[2], BOUND=k < last, PRECISION=engine.dot,
            UNITS=rows, CASES=min(128, max(16, triton.next_power_of_2(cases))), BLOCK=columns,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip


class _Mask:
    """Which units of a layer are kept, eight to a byte."""

    def __init__(self, rate: Tensor, cases: int, units: int):
        self.blocks = -(-units // 8)
        self.cases = cases
        per_unit = torch.zeros(len(rate), self.blocks * 8, dtype=torch.float64, device=rate.device)
        per_unit[:, :units] = rate
        self.thresholds = thresholds(per_unit)
        self.bits = torch.empty(len(rate), cases, self.blocks, dtype=torch.uint8, device=rate.device)

    def draw(self, seeds: Tensor, first_update: Tensor, offset: int, layer: int) -> None:
        kernels.draw_masks[(triton.cdiv(self.cases * self.blocks, 256), len(seeds))](
            self.bits, self.thresholds, seeds, first_update, offset, layer, self.cases, self.blocks, BLOCK=256
        )


def _bits(mask: _Mask | None, unused: Tensor) -> tuple[Tensor, int]:
    return (unused, 0) if mask is None else (mask.bits, mask.blocks)
