"""How many processors this process may use."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cores() -> int:
    """As its affinity and its control group's quota have it."""
    free = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(min(free, max(1.0, quota())))


def quota(groups: Path = GROUPS, own: Path = OWN) -> float:
    """How many CPUs' time its control groups, of either version, may use; infinite where none has a limit."""
    return min(map(_limit, _folders(groups, own)))


def _folders(groups: Path, own: Path) -> Iterator[Path]:
    """Of the group that the process is in and of those around it; a container shows its own as the outermost."""
    yield from (groups, groups / "cpu")
    for line in own.read_text().splitlines() if own.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            inner = Path(path.lstrip("/"))
            yield from ((groups / "cpu" if controllers else groups) / part for part in (inner, *inner.parents))


def _limit(folder: Path) -> float:
    try:
        if (folder / "cpu.max").is_file():
            most, period = (folder / "cpu.max").read_text().split()
        else:
            most, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    except OSError:
        return math.inf
    return math.inf if most in ("max", "-1") else int(most) / int(period)
