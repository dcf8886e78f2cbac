"""Image nets on a GPU: images resident in bfloat16, the forward pass compiled, many updates in one CUDA graph.

Each net has a graph and a stream of its own, so that nets fill what another leaves idle. A graph begins where the last
one ended: it reads its place in the batch order from memory and moves it on.
"""

import copy
import gc
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from meannet.core import philox
from meannet.images import Forward, Learner, Stepped, Watched, stepped_, tally
from meannet.nn.convfleet import ConvFleet
from meannet.nn.dropout import Dropout
from meannet.train import Tally

MOST_IN_A_GRAPH = 40
WARM_UPS = 3
CHANNELS = 8  # of bfloat16 that a GPU's products take at a time: three of colour, and zeros


class Captured:
    """Runs epochs by replaying graphs; weights and velocities stay float32, convolutions and products are bfloat16.

    With `products` of float32, which is slower, all that differs from the plain version is the order of sums: so tests
    tell rounding from mistakes. On other devices the same updates run one by one, uncompiled, in float32.
    """

    name = "fast"

    def __init__(
        self,
        fleet: ConvFleet,
        inputs: Tensor,
        targets: Tensor,
        batch: int,
        limit: Sequence[float],
        *,
        compiled: bool = True,
        side_by_side: bool = True,
        products: torch.dtype = torch.bfloat16,
    ):
        self.fleet, self.cases, self.on_gpu = fleet, len(inputs), fleet.device.type == "cuda"
        self.batch = min(batch, self.cases)
        self.products = products if self.on_gpu else torch.float32
        self.precision = f"{str(self.products).removeprefix('torch.')} products, float32 weights"
        self.targets = targets
        self.images = torch.cat([self.resident(part) for part in inputs.split(1000)])  # (cases, rows, columns, 8)
        forwards = _forwards(fleet) if compiled and self.on_gpu else [Watched(net) for net in fleet.nets]
        whole, rest = divmod(self.cases, self.batch)
        self.lanes = []
        stream = torch.cuda.Stream() if self.on_gpu else None
        for net, bound in enumerate(limit):
            if self.on_gpu and side_by_side:
                stream = torch.cuda.Stream()
            lane = _Lane(self, Learner(fleet, net, bound), stream)
            stepped = compiled_step() if compiled and self.on_gpu else stepped_
            lane.pieces.append(_Piece(lane, self.batch, whole, forwards[net], stepped))
            if rest:  # one update an epoch: not worth a compilation of its own
                lane.pieces.append(_Piece(lane, rest, 1, Watched(fleet.nets[net]), stepped_))
            self.lanes.append(lane)

    def resident(self, images: Tensor) -> Tensor:
        centred = self.fleet.centred(images).permute(0, 2, 3, 1)
        spare = max(0, CHANNELS - centred.shape[-1])
        return F.pad(centred, (0, spare)).to(self.products)

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        order = philox.order(self.fleet.seeds, epoch, self.cases)
        for net, lane in enumerate(self.lanes):
            lane.begin(order[net], epoch * -(-self.cases // self.batch), step[net], momentum)
        try:
            for piece in range(len(self.lanes[0].pieces)):
                for _ in range(self.lanes[0].pieces[piece].replays):
                    if stop():
                        return None
                    for lane in self.lanes:
                        lane.pieces[piece].replay()
        finally:  # whatever comes next must find the updates done
            for lane in self.lanes:
                lane.join()
        return tally([lane.learner for lane in self.lanes])


class _Lane:
    """One net: what its updates read from memory, and the stream that they are on."""

    def __init__(self, engine: Captured, learner: Learner, stream: Any):
        device = engine.fleet.device
        self.engine, self.learner, self.stream = engine, learner, stream
        self.order = torch.zeros(engine.cases, dtype=torch.int64, device=device)
        self.first = torch.zeros(1, dtype=torch.int64, device=device)  # the next update's first place in the order
        self.step = torch.zeros((), device=device)
        self.momentum = torch.zeros((), device=device)
        self.pieces: list[_Piece] = []

    def begin(self, order: Tensor, update: int, step: float, momentum: float) -> None:
        for piece in self.pieces:
            piece.prepare()
        self.order.copy_(order)
        self.first.zero_()
        self.step.fill_(step)
        self.momentum.fill_(momentum)
        self.learner.begin(update)
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())

    def join(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


class _Piece:
    """A run of updates on mini-batches of one size, and its graph."""

    def __init__(self, lane: _Lane, cases: int, updates: int, forward: Forward, stepped: Stepped):
        self.lane, self.cases, self.forward, self.stepped = lane, cases, forward, stepped
        self.updates = max(n for n in range(1, min(updates, MOST_IN_A_GRAPH) + 1) if updates % n == 0)
        self.replays = updates // self.updates
        self.places = torch.arange(cases, device=lane.order.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def replay(self) -> None:
        if self.graph is None:
            for _ in range(self.updates):
                self.update_()
            return
        with torch.cuda.stream(self.lane.stream):
            self.graph.replay()

    def update_(self) -> None:
        engine, lane = self.lane.engine, self.lane
        chosen = lane.order[lane.first + self.places]
        x = engine.images.index_select(0, chosen).permute(0, 3, 1, 2)
        targets = engine.targets.index_select(0, chosen)
        low = engine.products != torch.float32
        precision = torch.autocast("cuda", engine.products, cache_enabled=False) if low else nullcontext()

        def forward(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
            with precision:
                return self.forward(images, targets)

        lane.learner.update_(forward, x, targets, lane.step, lane.momentum, self.stepped)
        lane.first += self.cases

    def prepare(self) -> None:
        """On a GPU: choose algorithms, compile and capture, once, leaving no trace in what training changes."""
        if self.graph is not None or self.lane.stream is None:
            return
        lane = self.lane
        lane.learner.net.train()
        changed = [*lane.learner.changed(), lane.first]
        before = [tensor.clone() for tensor in changed]
        gc.collect()  # a graph that is thrown away while another is captured spoils it
        graph = torch.cuda.CUDAGraph()
        stream = lane.stream
        stream.wait_stream(torch.cuda.current_stream())
        searches, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    lane.first.zero_()
                    self.update_()
                lane.first.zero_()
            torch.cuda.synchronize()
            # On the lane's own stream, since libraries keep a workspace for each stream they have seen.
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(self.updates):
                    self.update_()
        finally:
            torch.backends.cudnn.benchmark = searches
        torch.cuda.synchronize()
        for tensor, old in zip(changed, before, strict=True):
            tensor.copy_(old)
        self.graph = graph


def inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """torch's own compiler, which has nothing to tell those who only train a net.

    What is left in float32 is to be float32, not TF32. Online softmax, of which it may say that it had to do without,
    is of no use for these few outputs.
    """
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def quietly(*given: Any, **named: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
            return compile_fx_inner(*given, **named)

    return compile_fx(graph, inputs, inner_compile=quietly, config_patches={"online_softmax": False})


def compiled(function: Callable[..., Any], backend: Any = inductor) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False, fullgraph=True, backend=backend)


@cache
def compiled_step(backend: Any = inductor) -> Stepped:
    """A step with decay and momentum in one pass over all weights; one compilation for nets of one shape."""
    return compiled(stepped_, backend)


def _forwards(fleet: ConvFleet, backend: Any = inductor) -> list[Forward]:
    """The compiled forward pass of each net; one compilation for all of them.

    What is compiled omits units of every layer of which some net does: of a net that does not, at a rate of zero, which
    costs it less than a compilation of its own would. Its own tensors are never used: with those of one net in it,
    others would not fit.
    """
    common = copy.deepcopy(Watched(fleet.nets[0])).train()
    for k, layer in enumerate(common.net.weight_layers()):
        omitted = any(net.weight_layers()[k].dropout is not None for net in fleet.nets)
        layer.dropout = Dropout(0.0, layer=k).to(fleet.device) if omitted else None
    call = compiled(lambda tensors, x, targets: functional_call(common, tensors, (x, targets)), backend)
    return [_applied(call, copy.deepcopy(common), Watched(net)) for net in fleet.nets]


def _applied(call: Callable[..., Any], common: Watched, one: Watched) -> Forward:
    tensors = dict(common.named_buffers()) | dict(one.named_parameters()) | dict(one.named_buffers())
    return lambda x, targets: call(tensors, x, targets)
