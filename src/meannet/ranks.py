"""Several processes that train one net together, as torchrun starts them: who this one is, and what all agree on."""

import inspect
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Ranks:
    """This process's rank of so many, and its number on this machine."""

    rank: int = 0
    world: int = 1
    local: int = 0
    restarts: int = 0  # how often torchrun has started all of them anew
    device: torch.device = torch.device("cpu")  # noqa: RUF009, immutable

    @property
    def first(self) -> bool:
        return self.rank == 0

    def total_(self, *tensors: Tensor) -> None:
        """Replace tensors by their sums over all ranks; of truth values by whether any is true."""
        for tensor in tensors if self.world > 1 else ():
            if tensor.dtype == torch.bool:
                counts = tensor.to(torch.int32)
                dist.all_reduce(counts)
                tensor.copy_(counts > 0)
            else:
                dist.all_reduce(tensor)

    def any(self, *wishes: bool) -> list[bool]:
        """For each wish whether some rank has it; every rank gets the same answer."""
        if self.world == 1:
            return list(wishes)
        found = torch.tensor(wishes, device=self.device)
        self.total_(found)
        return found.tolist()

    def share(self, document: Any = None) -> Any:
        """The first rank's document, as JSON, on every rank."""
        if self.world == 1:
            return document
        text = json.dumps(document).encode() if self.first else b""
        size = torch.tensor([len(text)], device=self.device)
        dist.broadcast(size, 0)
        content = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        if self.first:
            content.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        dist.broadcast(content, 0)
        return json.loads(bytes(content.cpu().numpy()))

    def spread_(self, tensors: Sequence[Tensor]) -> None:
        """Give every rank the first one's tensors."""
        for tensor in tensors if self.world > 1 else ():
            dist.broadcast(tensor, 0)


def averaging(module: nn.Module) -> DistributedDataParallel:
    """A module whose gradients are averaged over the ranks as they are made; buffers stay as each rank has them."""
    known = inspect.signature(DistributedDataParallel).parameters  # the setting has another name from torch 2.13 on
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    settings: dict[str, Any] = {name: False}
    return DistributedDataParallel(module, **settings)


def named() -> Ranks:
    """Who this process is, by the variables that torchrun sets; the only one where there are none."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(name in os.environ for name in names[:2]):
        return Ranks()
    try:
        rank, world, local = (int(os.environ.get(name, "0")) for name in names)
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    except ValueError:
        raise ValueError(f"{', '.join(names)} must be whole numbers, as torchrun sets them") from None
    if not 0 <= rank < world or local < 0:  # it would wait for the others without end
        raise ValueError(f"RANK {rank} of WORLD_SIZE {world}, LOCAL_RANK {local}, cannot be; torchrun sets them")
    return Ranks(rank, world, local, restarts)


@contextmanager
def joined(where: torch.device) -> Iterator[Ranks]:
    """The ranks, able to reach each other until the end of the block: by NCCL on GPUs, else by Gloo."""
    ranks = named()
    if ranks.world == 1:
        yield Ranks(restarts=ranks.restarts, device=where)
        return
    if where.type == "cuda":
        if ranks.local >= torch.cuda.device_count():
            raise ValueError(f"rank {ranks.local} of this machine has no GPU: it has {torch.cuda.device_count()}")
        where = torch.device("cuda", ranks.local)
        torch.cuda.set_device(where)
    store, rank, world = next(dist.rendezvous("env://"))
    # torchrun keeps its store over restarts, and with it addresses of processes that are no more.
    fresh = dist.PrefixStore(f"start {ranks.restarts}", store)
    dist.init_process_group("nccl" if where.type == "cuda" else "gloo", store=fresh, rank=rank, world_size=world)
    try:
        yield Ranks(ranks.rank, ranks.world, ranks.local, ranks.restarts, where)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        remedy = "with --max-restarts=N torchrun starts all ranks anew, and they go on from the last state"
        raise RuntimeError(f"rank {ranks.rank} has lost another rank, which may have said why; {remedy}") from error
    finally:
        dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """End a process that was a rank, and at once.

    After DistributedDataParallel threads of Gloo are left (seen with torch 2.13), whatever is destroyed. Where they are
    at work as Python winds up, the process is aborted, and torchrun takes a run that has finished for one that failed.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody may be left to read it
            stream.flush()
    os._exit(code)


def refuse_several(recipe: str) -> None:
    """For what one process trains alone."""
    if named().world > 1:
        raise ValueError(f"{recipe} trains in one process; start it without torchrun, which is for recipes imagenet.…")
