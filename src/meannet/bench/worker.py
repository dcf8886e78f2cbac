"""A process that takes part in a comparison: makes its rows ready, then times one whenever it is asked to.

`python -m meannet.bench.worker WHO FOLDER` reads FOLDER/WHO.json and answers on its standard output, a JSON line for
each line it is given. Each takes part in a process of its own: nobody's threads or end touch the others.
"""

import importlib
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from meannet.bench import work

PEERS = {
    "torch-eager": "torch_eager",
    "torch-compile": "torch_compile",
    "jax-scan": "jax_scan",
    "sklearn": "sklearn_mlp",
    "torch-rbm": "torch_rbm",
    "sklearn-rbm": "sklearn_rbm",
}
OURS = {"meannet": "ours", "meannet-rbm": "ours_rbm"}


def peer(who: str) -> ModuleType:
    """The module that takes part under this name: ours, or a file of the checkout's benchmarks/, which wheels carry."""
    if who in OURS:
        return importlib.import_module(f"meannet.bench.{OURS[who]}")
    here = Path(__file__).resolve()
    folders = here.with_name("peers"), here.parents[3] / "benchmarks"
    sys.path.insert(0, str(next(folder for folder in folders if folder.is_dir())))
    return importlib.import_module(PEERS[who])


def main(who: str, folder: Path) -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no reply
    plan = json.loads((folder / f"{who}.json").read_text())
    if plan["cores"]:
        os.sched_setaffinity(0, plan["cores"])  # before any threads are made
    runs, failed, threads, empty = [], {}, 0, 0
    for number, row in enumerate(plan["rows"]):
        runs.append(None)
        try:
            module = peer(who)
            empty = empty or memory("VmRSS")
            runs[-1] = module.prepare(work.read(folder, work.from_json(row)))
            runs[-1]()  # compiles, allocates
            threads = module.threads()
        except Exception as error:  # whatever a library raises, the others go on
            failed[number] = " ".join(f"{error}".split()) or type(error).__name__
    ready = {"threads": threads, "failed": failed, "empty": empty, "peak": peak_memory()}
    print(json.dumps(ready), file=replies)
    forget_peak()
    for line in sys.stdin:
        print(json.dumps(timed(runs[int(line)])), file=replies)


def timed(run: Any) -> dict[str, float]:
    start = time.perf_counter()
    loss = run()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "loss": loss, "peak": peak_memory(), "now": memory("VmRSS")}


def peak_memory() -> int:
    """Bytes held at most: on the GPU, where that is in use, else by this process."""
    torch = sys.modules.get("torch")
    return torch.cuda.max_memory_allocated() if torch and torch.cuda.is_initialized() else memory("VmHWM")


def memory(field: str) -> int:
    """Bytes that this process holds (VmRSS) or has held at most (VmHWM); 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def forget_peak() -> None:
    """Let the peak count from here on, where the system can."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
