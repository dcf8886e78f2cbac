"""The loop that contrastive divergence and joint training share: epochs of updates, on a GPU from a CUDA graph."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from meannet.core import philox
from meannet.pretrain.draws import Draws

# One update: which cases each net takes, (nets, cases), where to draw, step, momentum (tensors), number of Gibbs steps.
Update = Callable[[Tensor, Draws, Tensor, Tensor, int], None]


@dataclass(frozen=True)
class Rates:
    """What holds during one epoch."""

    step: float  # what multiplies the average gradient
    momentum: float
    steps: int  # Gibbs steps


class Updates:
    """Runs a stage's updates. Each net takes its cases in an order of its own, drawn anew each epoch.

    On a GPU one update is captured in a graph for each size of mini-batch and number of Gibbs steps, and replayed: the
    position in the order, the number of the update, step and momentum are numbers that the graph finds in memory, and
    the first two are counted up by the graph itself.
    """

    def __init__(
        self,
        update: Update,
        seeds: Tensor,
        cases: int,
        batch: int,
        stage: int,
        changed: Sequence[Tensor],
        dtype: torch.dtype,
    ):
        self.update, self.seeds, self.cases, self.stage = update, seeds, cases, stage
        self.batch = min(batch, cases)
        self.changed = list(changed)
        self.order = torch.zeros(len(seeds), cases, dtype=torch.int64, device=seeds.device)
        self.step, self.momentum = (torch.zeros((), dtype=dtype, device=seeds.device) for _ in range(2))
        self.position, self.number = (torch.zeros(1, dtype=torch.int64, device=seeds.device) for _ in range(2))
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def epoch(self, epoch: int, rates: Rates, stop: Callable[[], bool]) -> bool:
        """All updates of the epoch; False when `stop` said so before its end."""
        self.order.copy_(philox.order(self.seeds, epoch, self.cases, 1 + self.stage))
        self.step.fill_(rates.step)
        self.momentum.fill_(rates.momentum)
        first = epoch * -(-self.cases // self.batch)
        self.number.fill_(first)
        self.position.zero_()
        for start in range(0, self.cases, self.batch):
            if stop():
                return False
            size = min(self.batch, self.cases - start)
            if self.seeds.device.type == "cuda":
                self._replay(size, rates.steps)
            else:
                self._eager(start, size, first + start // self.batch, rates.steps)
        return True

    def _eager(self, start: int, size: int, number: int, steps: int) -> None:
        chosen, draws = self.order[:, start : start + size], Draws(self.seeds, self.stage, number)
        self.update(chosen, draws, self.step, self.momentum, steps)

    def _replay(self, size: int, steps: int) -> None:
        if (size, steps) not in self.graphs:
            self.graphs[size, steps] = self._capture(size, steps)
        self.graphs[size, steps].replay()

    def _launch(self, size: int, steps: int) -> None:
        """One update that finds its cases and its number in memory, and counts both up."""
        places = self.position + torch.arange(size, device=self.seeds.device)
        chosen = self.order.index_select(1, places)
        self.update(chosen, Draws(self.seeds, self.stage, self.number), self.step, self.momentum, steps)
        self.position.add_(size)
        self.number.add_(1)

    def _capture(self, size: int, steps: int) -> torch.cuda.CUDAGraph:
        """Compile and capture without leaving a trace in what training changes."""
        changed = [*self.changed, self.position, self.number]
        before = [tensor.clone() for tensor in changed]
        gc.collect()  # a graph that is thrown away while another is captured spoils it
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with _tf32():
            with torch.cuda.stream(side):
                self._launch(size, steps)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._launch(size, steps)
        torch._foreach_copy_(changed, before)
        return graph


@contextmanager
def _tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def train(
    updates: Updates,
    epochs: int,
    rates: Callable[[int], Rates],
    *,
    start: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[int]:
    """Train from epoch `start` on, in place, yielding how many epochs are done after each.

    When `stop` says so in the middle of an epoch, or an exception ends it, everything goes back to the end of the last
    whole epoch.
    """
    good = [tensor.clone() for tensor in updates.changed]
    for epoch in range(start, epochs):
        try:
            whole = updates.epoch(epoch, rates(epoch), stop)
        except BaseException:
            torch._foreach_copy_(updates.changed, good)
            raise
        if not whole:
            torch._foreach_copy_(updates.changed, good)
            return
        torch._foreach_copy_(good, updates.changed)
        yield epoch + 1
