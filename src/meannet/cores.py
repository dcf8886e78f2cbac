"""How many processors this process may use."""

import math
import os
from pathlib import Path


def cores() -> int:
    """As its affinity and its control group's quota have it."""
    free = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(min(free, max(1.0, quota())))


def quota(groups: Path = Path("/sys/fs/cgroup")) -> float:
    """How many CPUs' time the control group may use, of either version; infinite where it has no limit."""
    try:
        if (groups / "cpu.max").is_file():
            most, period = (groups / "cpu.max").read_text().split()
        else:
            most, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    except OSError:
        return math.inf
    return math.inf if most in ("max", "-1") else int(most) / int(period)
