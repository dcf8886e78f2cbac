"""`meannet bench --imagenet`: updates of H's nets on random pictures that lie on the device, and ten views of one.

Neither disks nor decoding are in this; `--loader` measures those.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from meannet import device, recipes
from meannet.bench.images import eager, median_spread, timed
from meannet.config import Patches
from meannet.fast.patches import Fast, join_
from meannet.nn.convfleet import ConvFleet, conv_fleet
from meannet.nn.convnets import ConvNet, patch_net
from meannet.patches import Plain
from meannet.ranks import Ranks
from meannet.views import ten_views

PICTURE = 256
EPOCHS, CASES = 90, 1_300_000  # the run that hours are given for
SECONDS = 240.0  # after which nothing further is begun
VIEWS = "ten views"
BOUND = recipes.get("imagenet.h_dropout").optim.limit
NETS = {"H without dropout": ((), 0.0), "H with dropout": ((4096, 4096), 0.5)}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured; a toy on a CPU."""

    patches: Patches = Patches()  # noqa: RUF009, frozen
    classes: int = 1000
    width: int = 4096
    picture: int = PICTURE
    batch: int = 128
    smaller: int = 32  # another mini-batch, from which what an update costs whatever its size follows
    updates: int = 20
    repeats: int = 7


TOY = Size(
    patches=replace(Patches(), size=32, banks=(8,) * 5, filters=(7, 5, 3, 3, 3), groups=(1, 2, 2, 4, 4)),
    classes=10,
    width=16,
    picture=40,
    batch=8,
    smaller=4,
    updates=2,
    repeats=3,
)


def measure(
    where: torch.device, say: Callable[[str], None], size: Size | None = None, limit: float = SECONDS
) -> dict[str, Any]:
    """What matters most first, each prepared, timed and told; after `limit` seconds nothing further is begun."""
    size = size or (Size() if where.type == "cuda" else TOY)
    begun, rows, parameters = time.perf_counter(), [], {}
    fleets: dict[str, ConvFleet] = {}
    latencies: list[dict[str, Any]] = []

    def timed_out(what: str) -> bool:
        late = time.perf_counter() - begun > limit
        if late:
            say(f"not measured, {limit:.0f} s have gone: {what}")
        return late

    for net, who, how, batch in _participants(size, where):
        if timed_out(f"{who} {how}, {net}"):
            continue
        if who == VIEWS:
            latencies = latency(where, size)
            say("; ".join(f"ten views, {one['how']}: {one['median']} ms" for one in latencies))
            continue
        if net not in fleets:
            hidden, rate = NETS[net]
            made = patch_net(size.patches, tuple(size.width for _ in hidden), size.classes, rate=rate)
            parameters[net] = sum(parameter.numel() for parameter in made.parameters())
            fleets[net] = synthetic_fleet(made, size, where)
        before = time.perf_counter()
        try:
            run = _peer(fleets[net].nets[0], size, where) if who != "meannet" else _ours(fleets[net], how, batch, size)
            run()
        except Exception as error:  # whatever one of them dies of, the others are still to be measured
            say(f"left out, {who} {how}, {net}: {' '.join(str(error).split())[:300]}")
            continue
        prepared = time.perf_counter() - before
        seconds = [timed(run, where) / size.updates for _ in range(size.repeats)]
        rows.append(_row(who, net, how, batch, seconds))
        say(_told(rows[-1]) + f", prepared in {prepared:.0f} s")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device.describe(where),
        "commit": device.commit(),
        "versions": device.versions(),
        "picture": size.picture,
        "patch": size.patches.size,
        "bound": BOUND,  # of ours; the peers have none
        "rows": rows,
        "parameters": parameters,
        # What a run takes is the fast path, with the paper's mini-batches; a toy's speed says nothing about it.
        "hours": {
            row["net"]: _hours(row["images_per_s"])
            for row in rows
            if (row["who"], row["how"], row["batch"], size.patches) == ("meannet", "fast", size.batch, Patches())
        },
        "epochs": EPOCHS,
        "cases": CASES,
        "ten_views_ms": latencies,
    }


def _participants(size: Size, where: torch.device) -> list[tuple[str, str, str, int]]:
    """Net, who, how and mini-batch."""
    without, with_dropout = NETS
    views = (with_dropout, VIEWS, "", 1)
    if where.type != "cuda":
        ways = (("meannet", "plain"), ("torch-eager", ""))
        return [*((net, who, how, size.batch) for net in NETS for who, how in ways), views]
    return [
        (with_dropout, "meannet", "fast", size.batch),
        (with_dropout, "torch-eager", "", size.batch),
        views,
        (without, "meannet", "fast", size.batch),
        (without, "torch-eager", "", size.batch),
        (with_dropout, "meannet", "fast", size.smaller),
        (with_dropout, "meannet", "fast, not compiled", size.batch),
        (with_dropout, "meannet", "fast, not compiled, groups apart", size.batch),
        (with_dropout, "meannet", "plain", size.batch),
    ]


def _ours(fleet: ConvFleet, how: str, batch: int, size: Size) -> Callable[[], None]:
    ranks = Ranks(device=fleet.device)
    if how == "plain":
        join_(fleet.nets[0], False)
        plain = Plain(fleet, batch, BOUND, ranks)
        return _updates(plain, plain, size)
    groups = "apart" if "apart" in how else "joined"
    engine = Fast(fleet, batch, BOUND, ranks, compiled="not compiled" not in how, groups=groups)
    return _updates(engine, engine.plain, size)


def _updates(engine: Any, plain: Plain, size: Size) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(256, plain.images.shape, generator=generator, dtype=torch.uint8)
    plain.images.copy_(random)
    plain.targets.copy_(torch.randint(size.classes, plain.targets.shape, generator=generator))
    plain.weigh(plain.own, plain.batch)
    engine.begin(0, 1e-6, 0.9)
    plain.weigh(plain.own, plain.batch)

    def run() -> None:
        for _ in range(size.updates):
            engine.update_()

    return run


def _peer(net: ConvNet, size: Size, where: torch.device) -> Callable[[], Any]:
    """The same layers from torch's own parts, on patches that are cut already, which is less to do."""
    shape = (size.batch * size.updates, *net.shape)
    inputs = torch.randint(256, shape, dtype=torch.uint8, device=where)
    targets = torch.randint(size.classes, (len(inputs),), device=where)
    return eager(copy.deepcopy(net), inputs, targets, where, size.batch)


def synthetic_fleet(net: ConvNet, size: Size, where: torch.device) -> ConvFleet:
    spreads = [(1.0 / layer.weight[0].numel()) ** 0.5 for layer in net.weight_layers()[:-1]]
    mean = torch.full((3, size.picture, size.picture), 118.0)
    settings: dict[str, Any] = {"output_sd": 0.01, "bias": [1.0], "units": "rectified", "decays": [(5e-4, 5e-4)]}
    return conv_fleet([net], [0], spreads, mean=mean, scale=1 / 64, device=where, **settings)


def latency(where: torch.device, size: Size) -> list[dict[str, Any]]:
    """Milliseconds from one picture in the host's memory to its five best labels there, by ten views."""
    net = patch_net(size.patches, (size.width,) * 2, size.classes, rate=0.5).to(where).eval()
    join_(net, where.type == "cuda")
    picture = torch.randint(256, (1, 3, size.picture, size.picture), dtype=torch.uint8)
    if where.type == "cuda":
        picture = picture.pin_memory()
    there = torch.zeros_like(picture, device=where)

    @torch.no_grad()
    def best() -> Tensor:
        low = torch.autocast("cuda", torch.bfloat16, enabled=where.type == "cuda")
        with low:
            views = ten_views(there.float().sub(118).div(64), net.shape[1]).flatten(0, 1)
            outputs = net(views.contiguous(memory_format=torch.channels_last))
        return outputs.float().softmax(-1).mean(0).topk(5).indices

    def one_by_one() -> list[int]:
        there.copy_(picture, non_blocking=True)
        return best().tolist()

    ways: dict[str, Callable[[], Any]] = {"one by one": one_by_one}
    if where.type == "cuda":
        ways["captured"] = _captured(best, there, picture)
    found = []
    for how, run in ways.items():
        run()
        times = [1000 * timed(run, where) for _ in range(5 * size.repeats)]
        found.append({"how": how, "net": "H with dropout", "repeats": len(times), **median_spread(times)})
    return found


def _captured(best: Callable[[], Tensor], there: Tensor, picture: Tensor) -> Callable[[], list[int]]:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            best()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        labels = best()

    def run() -> list[int]:
        there.copy_(picture, non_blocking=True)
        graph.replay()
        return labels.tolist()

    return run


def _row(who: str, net: str, how: str, batch: int, seconds: list[float]) -> dict[str, Any]:
    times = median_spread([1000 * each for each in seconds])
    return {
        "who": who,
        "net": net,
        "how": how,
        "batch": batch,
        "ms_per_update": times["median"],
        "spread": times["spread"],
        "images_per_s": round(1000 * batch / times["median"], 1),
        "repeats": len(seconds),
    }


def _told(row: dict[str, Any]) -> str:
    who = f"{row['who']} {row['how']}".strip()
    return f"{who}, {row['net']}, {row['batch']}: {row['ms_per_update']} ms, {row['images_per_s']:,.0f} images/s"


def _hours(images_per_s: float) -> float:
    return round(EPOCHS * CASES / images_per_s / 3600, 2)
