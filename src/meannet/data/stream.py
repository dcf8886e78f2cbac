"""Cases of a prepared set as pixels: worker processes decode them, mini-batches ahead of whoever asks, in order.

What comes is decided by the plan alone, a list of cases for each mini-batch: how many workers there are, and how fast
each is, does not show.
"""

import mmap
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from meannet.data import pictures, shards
from meannet.data.team import Team

AHEAD = 4  # mini-batches that are being decoded, or wait to be taken


class Stream:
    """Pixels of one part, (cases, size, size, 3) bytes, `batch` cases at most at a time."""

    def __init__(self, folder: Path, part: str, batch: int, workers: int, ahead: int = AHEAD):
        pictures.pillow()
        self.reader = shards.Reader(folder, part)
        size = self.reader.size
        shape = ahead + 1, batch, size, size, 3  # one is with whoever asked for it
        self.handle = _memory(int(np.prod(shape)))
        self.slots = _slots(self.handle, shape)
        start = {"folder": str(folder), "part": part, "handle": self.handle, "shape": shape}
        self.team = Team("meannet.data.stream:decoding", start, workers, (self.handle,)) if workers else None

    @property
    def labels(self) -> np.ndarray:
        return self.reader.index[:, 3]

    def batches(self, plan: Iterable[Sequence[int] | np.ndarray]) -> Iterator[np.ndarray]:
        """Pixels of each of the plan's lists of cases; they stay as they are until the next are asked for."""
        free = deque(range(len(self.slots)))
        begun: deque[tuple[int, int, list[int]]] = deque()
        plan = iter(plan)
        left = True
        while left or begun:
            while left and len(free) > 1:
                cases = next(plan, None)
                left = cases is not None
                if cases is not None:
                    begun.append((free[0], len(cases), self._begin(free.popleft(), cases)))
            if begun:
                slot, count, members = begun.popleft()
                for member in members:
                    assert self.team is not None
                    self.team.receive(member)
                yield self.slots[slot, :count]
                free.append(slot)

    def _begin(self, slot: int, cases: Sequence[int] | np.ndarray) -> list[int]:
        """Divide a mini-batch among the workers; returns those that have a share."""
        if self.team is None:
            for place, case in enumerate(cases):
                self.reader.pixels(int(case), self.slots[slot, place])
            return []
        members = []
        for member, places in enumerate(np.array_split(np.arange(len(cases)), len(self.team))):
            if len(places):
                own = [int(cases[place]) for place in places]
                self.team.send(member, {"slot": slot, "first": int(places[0]), "cases": own})
                members.append(member)
        return members

    def close(self) -> None:
        if self.team is not None:
            self.team.close()
        self.reader.close()
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def decoding(start: dict[str, Any]) -> Any:
    """A worker that decodes cases into memory that it shares with whoever started it."""
    reader = shards.Reader(Path(start["folder"]), start["part"])
    slots = _slots(start["handle"], tuple(start["shape"]))

    def decode(job: dict[str, Any]) -> None:
        for place, case in enumerate(job["cases"], start=job["first"]):
            reader.pixels(case, slots[job["slot"], place])

    return decode


def _memory(size: int) -> int:
    """A handle of memory that other processes can be given; /dev/shm may be too small for it, and is not asked."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("meannet")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return handle


def _slots(handle: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(mmap.mmap(handle, int(np.prod(shape))), np.uint8).reshape(shape)
