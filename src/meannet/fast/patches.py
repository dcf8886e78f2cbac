"""H's nets on a GPU: bfloat16 products, the forward pass compiled, groups joined, one update in a CUDA graph.

Pictures are copied while the update before is at work. With several ranks updates are compiled but not captured, since
their gradients leave the GPU in the middle of them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from meannet.fast.images import CHANNELS, WARM_UPS, compiled_step, inductor
from meannet.nn.conv import RandomGroupConv2d, TwoInputConv2d
from meannet.nn.convfleet import ConvFleet
from meannet.nn.convnets import ConvNet
from meannet.patches import Plain
from meannet.ranks import Ranks
from meannet.train import Tally

STAGES = 2  # mini-batches on the GPU that wait to be learned from


class Fast:
    """As patches.Plain; on other devices the same updates run one by one, which is how tests hold them to it."""

    name, precision = "fast", "bfloat16 products, float32 weights"

    def __init__(
        self,
        fleet: ConvFleet,
        batch: int,
        limit: float,
        ranks: Ranks,
        *,
        compiled: bool = True,
        groups: str = "joined",
    ):
        self.on_gpu = fleet.device.type == "cuda"
        join_(fleet.nets[0], groups == "joined")
        backend = inductor if compiled and self.on_gpu else None
        self.plain = Plain(fleet, batch, limit, ranks, channels=CHANNELS, low=self.on_gpu, backend=backend)
        if backend:
            self.plain.stepped = compiled_step()
        self.captured = self.on_gpu and ranks.world == 1
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stages = [_Stage(self.plain) for _ in range(STAGES)] if self.on_gpu else []
        self.taken = 0

    def begin(self, update: int, step: float, momentum: float, tally: Tally | None = None) -> None:
        if self.captured and self.graph is None:
            self.prepare()
        self.plain.begin(update, step, momentum, tally)

    def take(self, pixels: np.ndarray, targets: np.ndarray, cases: int) -> None:
        if not self.on_gpu:
            self.plain.take(pixels, targets, cases)
            return
        stage = self.stages[self.taken % STAGES]
        self.taken += 1
        stage.take(pixels, targets)
        self.plain.weigh(len(targets), cases)

    def update_(self) -> None:
        if self.graph is None:
            self.plain.update_()
        else:
            self.graph.replay()

    def tally(self) -> Tally:
        return self.plain.tally()

    def prepare(self) -> None:
        """Choose algorithms, compile and capture, once, leaving no trace in what training changes."""
        plain, learner = self.plain, self.plain.learner
        learner.net.train()
        changed = [*learner.changed(), plain.update, plain.weights]
        before = [tensor.clone() for tensor in changed]
        gc.collect()  # a graph that is thrown away while another is captured spoils it
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        searches, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    plain.update_()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                plain.update_()
        finally:
            torch.backends.cudnn.benchmark = searches
        torch.cuda.synchronize()
        for tensor, old in zip(changed, before, strict=True):
            tensor.copy_(old)
        self.graph = graph


class _Stage:
    """Memory on the GPU into which pictures are copied beside an update, on a stream of its own."""

    def __init__(self, plain: Plain):
        self.plain, self.stream = plain, torch.cuda.Stream()
        self.images, self.targets = torch.zeros_like(plain.images), torch.zeros_like(plain.targets)
        self.copied, self.free = torch.cuda.Event(), torch.cuda.Event()

    def take(self, pixels: np.ndarray, targets: np.ndarray) -> None:
        own = len(targets)
        found = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        self.free.synchronize()  # so that the host is never more than the stages ahead
        with torch.cuda.stream(self.stream):
            self.images[:own].copy_(found, non_blocking=True)
            self.targets[:own].copy_(torch.from_numpy(np.ascontiguousarray(targets)), non_blocking=True)
            self.copied.record()
        self.copied.synchronize()  # the pixels' memory is the workers' again after this
        torch.cuda.current_stream().wait_event(self.copied)
        self.plain.images.copy_(self.images)
        self.plain.targets.copy_(self.targets)
        self.free.record()


def join_(net: ConvNet, joined: bool) -> None:
    """Have layers in groups computed as one group, or as the groups that they are."""
    for layer in net.weight_layers():
        if isinstance(layer.layer, (RandomGroupConv2d, TwoInputConv2d)):
            layer.layer.joined = joined


@contextmanager
def pinned(memory: np.ndarray, device: torch.device) -> Iterator[None]:
    """Let a GPU copy from this memory by itself; where that cannot be, copies take longer and nothing else changes."""
    if device.type != "cuda":
        yield
        return
    runtime: Any = torch.cuda.cudart()
    failed = runtime.cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)
    try:
        yield
    finally:
        if not int(failed):
            torch.cuda.synchronize()
            runtime.cudaHostUnregister(memory.ctypes.data)
