"""Toy-sized runs: recipes with smaller fields, and the command line in processes that tests may stop and kill."""

import faulthandler
import json
import multiprocessing
import os
import resource
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from meannet import recipes
from meannet.cli import main
from meannet.config import Experiment, to_json

torch.set_num_threads(1)  # toys are too small to share: more threads would wait for each other, mostly


@pytest.fixture(scope="module", autouse=True)
def every_update_asks():
    """In modules that import this, the CPU kernel asks before each update, not each 32, whether it is to stop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meannet.fast.cpu.UPDATES_A_CALL", 1)
        yield


def small(recipe: str, *, epochs: int = 3, **changes: Any) -> Experiment:
    """A recipe on the digits with a few units a layer; as many architectures, layers and arms as it has."""
    full = recipes.get(recipe)
    hidden = tuple((8 - k,) * len(sizes) for k, sizes in enumerate(full.net.hidden))
    conv = full.conv and replace(full.conv, banks=(4, 3, 2), local=(2,) * len(full.conv.local), filter=3, scale=1.0)
    toy = replace(
        full,
        data=replace(full.data, name="digits", selection=None, speech=None, cases=None),
        conv=conv,
        net=replace(full.net, hidden=hidden, initial_sd=0.3),
        optim=replace(full.optim.compressed(epochs), batch=100),
        pretrain=replace(full.pretrain.quick(), gibbs=2) if full.pretrain else None,
        seeds=(0, 1),
        record_every=1,
        samples=min(full.samples, 2),
    )
    return replace(toy, **changes)


def written(experiment: Experiment, path: Path) -> Path:
    """The experiment as a file that `meannet run` takes."""
    path.write_text(json.dumps(to_json(experiment)))
    return path


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run left which must not depend on time or on interruptions."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    states = {path.name: path.read_bytes() for path in folder.glob("*.safetensors") if "previous" not in path.name}
    timed = ("seconds", "images_per_s")
    timeless = [{name: value for name, value in line.items() if name not in timed} for line in lines]
    result |= {"seconds": 0, "pace": {}, "peak_mib": 0, "commit": ""}
    return {"metrics": timeless, "result": result, "states": states}


@contextmanager
def no_file_above(size: int):
    """What a full disk looks like without one: the kernel refuses to let a file grow past `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def start(*arguments: object, cwd: Path) -> BaseProcess:
    """`meannet ARGUMENTS` in a process of its own, which writes to `stdout` and `stderr` in `cwd`."""
    process = _forks.Process(target=_command, args=([str(argument) for argument in arguments], cwd))
    process.start()
    return process


def finish(*arguments: object, cwd: Path) -> int:
    process = start(*arguments, cwd=cwd)
    process.join(120)
    assert process.exitcode is not None, f"meannet {arguments} did not end"
    return process.exitcode


# Forked from a process that has the imports done, which otherwise take longer than the toys do.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["meannet.console", "meannet.data.digits", "sklearn.datasets", "meannet.report.page"])


def _command(arguments: list[str], cwd: Path) -> None:
    os.chdir(cwd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
    faulthandler.dump_traceback_later(100, exit=True)  # no toy takes that long; none is left behind
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    raise SystemExit(main(arguments))
