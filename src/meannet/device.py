"""Where a run takes place: device, precision, threads and what is worth writing down about them."""

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

DEVICES = ("auto", "cpu", "cuda")


def choose(name: str) -> torch.device:
    """The device that `auto`, `cpu` or `cuda` names here."""
    if name not in DEVICES:
        raise ValueError(f"--device must be one of {', '.join(DEVICES)}, not {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no CUDA device here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def describe(device: torch.device) -> str:
    """The device by its maker's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    threads = torch.get_num_threads()
    return f"{names[0] if names else platform.processor() or platform.machine()}, {threads} thread{'s' * (threads > 1)}"


class OutOfMemory(RuntimeError):
    """What was asked for does not fit into the device's memory."""


@contextmanager
def naming_memory(device: torch.device, what: str) -> Iterator[None]:
    """Where memory runs out, say what was asked for, what there is, and which settings to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        asked = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", str(error))
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "can't allocate" not in str(error):
            raise
        more = f" ({asked[1]} more were asked for)" if asked else ""
        raise OutOfMemory(
            f"out of memory: {what} do not fit into the {memory(device) / 2**30:.0f} GiB of this {device.type}{more}; "
            "lower --seeds, net.hidden or optim.batch"
        ) from None


def memory(device: torch.device) -> int:
    """Bytes that the device has in all."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_memory(device: torch.device) -> int:
    """MiB that this process has held at most: of the GPU's memory, or of the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) >> 20
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if platform.system() == "Darwin" else 10)


def environment(device: torch.device, precision: str, path: str, command: str) -> dict[str, Any]:
    """What someone would need to know to run this again."""
    from meannet.fast.cpu import threads

    return {
        "command": command,
        "device": device.type,
        "device_name": describe(device),
        "threads": threads() if (device.type, path) == ("cpu", "fast") else torch.get_num_threads(),
        "precision": precision,
        "path": path,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": commit(),
        "versions": versions(),
    }


def told(facts: dict[str, Any]) -> str:
    """The same in a line: on what and how a run computes."""
    threads = f" on {facts['threads']} threads" * (facts["device"] == "cpu")
    return f"{facts['device_name']}; {facts['path']} path{threads}, {facts['precision']}"


def versions() -> dict[str, str]:
    from meannet import __version__

    return {"meannet": __version__, "torch": str(torch.__version__), "numpy": metadata.version("numpy")}


def commit() -> str:
    """What MEANNET_COMMIT says, for machines that get the files without their history, or with an older one.

    Else the commit of the checkout this package runs from, with a plus where files differ from it.
    """
    if told := os.environ.get("MEANNET_COMMIT"):
        return told
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        return _git(root, "rev-parse", "--short", "HEAD") + ("+" if _git(root, "status", "--porcelain", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()
