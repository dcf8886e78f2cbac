"""`meannet bench --ranks`: one update of 1, 2, 4 and 8 ranks of one thread each, and what it is made of.

A small net of H's kind, so many pictures a rank. Each number of ranks is measured three ways: exchanging gradients, as
training does; side by side without any exchange, since processes of one machine share its memory; the exchange alone.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.distributed as dist

from meannet import device, ranks
from meannet.bench.imagenet import Size, synthetic_fleet
from meannet.bench.images import median_spread, timed
from meannet.config import Patches
from meannet.cores import cores
from meannet.nn.convnets import patch_net
from meannet.patches import Plain
from meannet.ranks import Ranks

WORLDS = (1, 2, 4, 8)
SMALL = Size(
    patches=replace(Patches(), size=64, banks=(16, 32, 64, 64, 64), groups=(1, 2, 4, 4, 4)),
    classes=100,
    width=1024,
    picture=72,
    batch=16,  # of each rank
    updates=5,
    repeats=7,
)
TIMEOUT = 120.0  # seconds that a number of ranks may take
WAYS = ("together", "apart", "exchange")


def measure(say: Callable[[str], None], *, worlds: tuple[int, ...] = WORLDS, size: Size = SMALL) -> dict[str, Any]:
    """A row for each number of ranks; milliseconds, medians of the first rank's."""
    rows = []
    for world in worlds:
        if world > cores():
            say(f"{world} ranks of one thread want as many cores, and there are {cores()}")
            break
        say(f"{world} rank{'s' * (world > 1)}")
        rows.append(_row(world, _started(world, size)))
    net = _net(size)
    return {
        "device": device.describe(torch.device("cpu")),
        "cores": cores(),
        "batch_a_rank": size.batch,
        "gradient_bytes": 4 * sum(parameter.numel() for parameter in net.parameters()),
        "rows": rows,
    }


def work() -> None:
    """One rank: prints what it measured as JSON."""
    torch.set_num_threads(1)
    asked = json.loads(sys.argv[1])
    patches: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in asked.pop("patches").items()}
    size = Size(patches=Patches(**patches), **asked)
    cpu = torch.device("cpu")
    fleet = synthetic_fleet(_net(size), size, cpu)
    with ranks.joined(cpu) as found:
        engines = {"apart": Plain(fleet, size.batch, 4.0, Ranks())}
        engines["together"] = Plain(fleet, size.batch * found.world, 4.0, found)
        gradients = torch.zeros(sum(w.numel() for w in engines["apart"].learner.parameters))
        ways: dict[str, Callable[[], Any]] = {name: _updates(engine, size) for name, engine in engines.items()}
        ways["exchange"] = lambda: [dist.all_reduce(gradients) for _ in range(size.updates)]
        if found.world == 1:
            ways["exchange"] = lambda: None
        times: dict[str, list[float]] = {name: [] for name in WAYS}
        for repeat in range(size.repeats + 1):
            for name in WAYS:
                found.any(True)  # all begin together
                seconds = timed(ways[name], cpu) / size.updates
                if repeat:  # the first is to warm up
                    times[name].append(1000 * seconds)
    if found.first:
        print(json.dumps(times))


def _updates(engine: Plain, size: Size) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    engine.images.copy_(torch.randint(256, engine.images.shape, generator=generator, dtype=torch.uint8))
    engine.targets.copy_(torch.randint(size.classes, engine.targets.shape, generator=generator))
    engine.weigh(engine.own, engine.batch)
    engine.begin(0, 1e-6, 0.9)

    def run() -> None:
        for _ in range(size.updates):
            engine.update_()

    return run


def _net(size: Size) -> Any:
    return patch_net(size.patches, (size.width,) * 2, size.classes, rate=0.5)


def _started(world: int, size: Size) -> dict[str, list[float]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from meannet.bench.ranks import work; from meannet.ranks import leave; work(); leave(0)"
    processes = []
    try:
        for rank in range(world):
            named = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "MASTER_PORT": port}
            variables = {name: str(value) for name, value in named.items()}
            variables |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
            call = [sys.executable, "-c", code, json.dumps(asdict(size))]
            processes.append(subprocess.Popen(call, env=os.environ | variables, stdout=subprocess.PIPE, text=True))
        said = [process.communicate(timeout=TIMEOUT)[0] for process in processes]
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{world} ranks took more than {TIMEOUT:.0f} s; is the machine busy?") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank of {world} failed; what it said is above")
    return json.loads(said[0])


def _row(world: int, times: dict[str, list[float]]) -> dict[str, Any]:
    found = {name: median_spread(values) for name, values in times.items()}
    row: dict[str, Any] = {"ranks": world, "repeats": len(times["together"])}
    for name, figures in found.items():
        row |= {f"{name}_ms": figures["median"], f"{name}_spread": figures["spread"]}
    return row
