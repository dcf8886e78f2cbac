"""`meannet bench --images`: updates of the CIFAR-10 nets (G), ours beside the same net in plain eager PyTorch.

Images are random bytes, all on the device: this measures updates, neither disks nor decoding.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meannet import images
from meannet.bench.comparison import spread
from meannet.nn import convnets
from meannet.nn.convfleet import ConvFleet, conv_fleet
from meannet.nn.convnets import ConvNet

BATCH = 128
NETS: dict[str, Callable[[int], ConvNet]] = {
    "G without dropout": lambda seed: convnets.cifar10(dropout=False, seed=seed),
    "G with dropout": lambda seed: convnets.cifar10(dropout=True, seed=seed),
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured; less on a CPU."""

    updates: int
    repeats: int
    nets: tuple[int, ...]  # side by side


def size_for(where: torch.device) -> Size:
    if where.type == "cuda":
        return Size(updates=80, repeats=7, nets=(1, 5))
    return Size(updates=2, repeats=3, nets=(1,))


@dataclass
class Participant:
    who: str
    net: str
    nets: int
    path: str
    updates: int
    run: Callable[[], Any]


def measure(where: torch.device, say: Callable[[str], None], size: Size | None = None) -> list[dict[str, Any]]:
    """A row for each participant, all timed in turns; those that fail are told and left out."""
    size = size or size_for(where)
    taking_part = []
    for name, make in NETS.items():
        for one in _participants(name, make, where, size):
            say(f"preparing {one.who} {one.path}, {one.net}, {one.nets} net{'s' * (one.nets > 1)}")
            one.run()
            taking_part.append(one)
    seconds: dict[int, list[float]] = {k: [] for k in range(len(taking_part))}
    for _ in range(size.repeats):
        for k, one in enumerate(taking_part):
            seconds[k].append(timed(one.run, where))
    return [_row(one, seconds[k]) for k, one in enumerate(taking_part)]


def _participants(name: str, make: Callable[[int], ConvNet], where: torch.device, size: Size) -> list[Participant]:
    from meannet.fast.images import Captured

    one = make(0)
    generator = torch.Generator().manual_seed(0)
    cases = size.updates * BATCH
    inputs = torch.randint(256, (cases, *one.shape), generator=generator, dtype=torch.uint8).to(where)
    targets = torch.randint(_outputs(one), (cases,), generator=generator).to(where)
    found = [Participant("torch-eager", name, 1, "", size.updates, eager(one, inputs, targets, where))]
    if where.type == "cuda":
        for nets, compiled in [*((nets, True) for nets in size.nets), (1, False)]:
            fleet = _fleet(make, nets, where)
            engine = Captured(fleet, inputs, targets, BATCH, [math.inf] * nets, compiled=compiled)
            path = "fast" if compiled else "fast, not compiled"
            found.append(Participant("meannet", name, nets, path, size.updates, _epochs(engine)))
    fleet = _fleet(make, 1, where)
    plain = images.Plain(fleet, inputs, targets, BATCH, [math.inf])
    return [*found, Participant("meannet", name, 1, "plain", size.updates, _epochs(plain))]


def _fleet(make: Callable[[int], ConvNet], nets: int, where: torch.device) -> ConvFleet:
    made = [make(seed) for seed in range(nets)]
    spreads = [(1.0 / layer.weight[0].numel()) ** 0.5 for layer in made[0].weight_layers()[:-1]]
    settings: dict[str, Any] = {"output_sd": 0.01, "bias": [1.0] * nets, "units": "rectified"}
    return conv_fleet(made, range(nets), spreads, mean=118.0, scale=1 / 64, device=where, **settings)


def _epochs(engine: Any) -> Callable[[], Any]:
    nets = len(engine.fleet.nets)
    return lambda: engine.epoch(0, [1e-4] * nets, 0.9, lambda: False)


def eager(
    net: ConvNet, inputs: Tensor, targets: Tensor, where: torch.device, batch: int | None = None
) -> Callable[[], Any]:
    """The same layers from torch's own parts, SGD and autocast, as most people write it."""
    model = Eager(net).to(where)
    model.to(memory_format=torch.channels_last)  # pyrefly: ignore[no-matching-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=0.004)

    def run() -> None:
        for chosen in torch.randperm(len(inputs), device=where).split(batch or BATCH):
            x = ((inputs[chosen].float() - 118) / 64).contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            with torch.autocast(where.type, torch.bfloat16, enabled=where.type == "cuda"):
                loss = F.cross_entropy(model(x), targets[chosen])
            loss.backward()
            optimizer.step()

    return run


class Eager(nn.Module):
    """A net's layers with nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.LocalResponseNorm and nn.Dropout around them."""

    def __init__(self, net: ConvNet):
        super().__init__()
        self.subsampled = net.subsampled
        self.below = nn.ModuleList(layer.layer for layer in net.weight_layers())
        self.after = nn.ModuleList()
        for layer in net.weight_layers():
            parts: list[nn.Module] = [nn.ReLU()] if layer.units else []
            if layer.pool is not None:
                pool = nn.MaxPool2d if layer.pool.kind == "max" else nn.AvgPool2d
                parts.append(pool(layer.pool.size, layer.pool.stride, ceil_mode=True))
            if layer.norm is not None:
                parts.append(nn.LocalResponseNorm(layer.norm.size, layer.norm.alpha, layer.norm.beta, 1.0))
            if layer.dropout is not None:
                parts.append(nn.Dropout(float(layer.dropout.rates)))
            self.after.append(nn.Sequential(*parts))

    def forward(self, image: Tensor) -> Tensor:
        x = image
        for k, (below, after) in enumerate(zip(self.below, self.after, strict=True)):
            beside = (self.subsampled(image),) if k == 1 and self.subsampled is not None else ()
            x = after(below(x.flatten(1) if isinstance(below, nn.Linear) else x, *beside))
        return x


def _outputs(net: ConvNet) -> int:
    return len(net.weight_layers()[-1].bias)


def timed(run: Callable[[], Any], where: torch.device) -> float:
    if where.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    if where.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _row(one: Participant, seconds: list[float]) -> dict[str, Any]:
    speeds = median_spread([one.nets * one.updates / each for each in seconds])
    return {
        "who": one.who,
        "net": one.net,
        "nets": one.nets,
        "path": one.path,
        "batch": BATCH,
        "updates_per_s": speeds["median"],
        "spread": speeds["spread"],
        "images_per_s": round(speeds["median"] * BATCH, 1),
        "repeats": len(seconds),
    }


def median_spread(values: list[float]) -> dict[str, float]:
    """Median and interquartile range."""
    return {"median": round(statistics.median(values), 3), "spread": round(spread(values), 3)}
