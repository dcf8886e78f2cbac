"""Exact save and resume: one checksummed safetensors file, replaced atomically, the one before it kept."""

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from meannet.atomic import write_atomically
from meannet.config import Experiment, settings, to_json

if TYPE_CHECKING:
    from meannet.data import Dataset
    from meannet.patches import Prepared

NOT_DECIDING = ("record_every", "samples")


class CheckpointError(RuntimeError):
    """No state can be read, or it belongs to other settings or data."""


class Damaged(CheckpointError):
    """A file that should hold a state is missing, not whole, or holds something else."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"{path.name} {what}")


@dataclass
class Saving:
    """When a state is due: after the first epoch, every so many minutes, and every so many epochs where asked."""

    minutes: float
    epochs: int | None
    first: bool = True
    last: float = field(default_factory=time.perf_counter)
    since: int = 0  # epochs that no state has yet

    def due(self) -> bool:
        """To be asked once an epoch."""
        self.since += 1
        late = time.perf_counter() - self.last >= 60 * self.minutes
        return self.first or late or (self.epochs is not None and self.since >= self.epochs)

    def saved(self) -> None:
        self.last, self.since, self.first = time.perf_counter(), 0, False


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], *, keep_previous: bool = True) -> None:
    """Write tensors and JSON facts; the state that was there becomes the previous one, or is lost."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts, sort_keys=True)
    # One entry: safetensors writes several in an order that differs from process to process.
    record = {"record": f"{_checksum(tensors, text)} {text}"}
    write_atomically(path, serialise(tensors, record), keep=previous(path) if keep_previous else None)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The newest state that is whole: this file, or else the one before it."""
    problems = []
    for candidate in (path, previous(path)):
        if not candidate.exists():
            continue
        try:
            return read_state(candidate)
        except CheckpointError as error:
            problems.append(str(error))
    why = "; ".join(problems) or "none was written"
    raise CheckpointError(f"no usable state in {path.parent} ({why}); start a new run with `meannet run`")


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of this very file; Damaged where it is missing, not whole or none of ours."""
    if path.exists() and not os.access(path, os.R_OK):  # which safetensors takes for a file that is not there
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    try:
        with safe_open(path, framework="pt") as file:
            record = (file.metadata() or {}).get("record", "")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except FileNotFoundError:
        raise Damaged(path, "is missing") from None
    except (OSError, SafetensorError) as error:
        raise Damaged(path, f"cannot be read: {error}") from None
    checksum, _, text = record.partition(" ")
    if _checksum(tensors, text) != checksum:
        raise Damaged(path, "is damaged: its checksum is wrong")
    return tensors, json.loads(text)


def read_named(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same, of a file that a user named: it must be there."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return read(path)


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same, of a file that must be the state of a run, not an estimator or an exported network."""
    tensors, facts = read(path)
    if "epoch" not in facts:
        raise Damaged(path, f"holds {facts.get('estimator', 'something else')}, not the state of a run")
    return tensors, facts


def recoverable(folder: Path) -> bool:
    """Whether a run can go on from the states in its folder: of each the newest or the one before it is whole."""
    states = {path.with_name(path.name.replace(".previous", "")) for path in folder.glob("state*.safetensors")}
    try:
        for path in states:
            load(path)
    except CheckpointError:
        return False
    return bool(states)


def recover(path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The facts of the newest whole state, which then lies at `path` alone.

    A damaged file there would, at the next save, push out the whole one before it.
    """
    try:
        return read_state(path)[1]
    except CheckpointError as error:
        facts = load(path)[1]
        previous(path).replace(path)
        say(f"{error}; going back to the state before it, of epoch {facts['epoch']}")
        return facts


def exists(path: Path) -> bool:
    return path.exists() or previous(path).exists()


def previous(path: Path) -> Path:
    return path.with_name(path.stem + ".previous" + path.suffix)


def decided_by(experiment: Experiment, digest: str, data: "Dataset | Prepared") -> dict[str, Any]:
    """What a run's state says of the settings and data that it came from; `digest` is the settings' own."""
    return {"settings": digest, "chosen": _chosen(experiment), "data": data.digest}


def check_unchanged(
    facts: dict[str, Any], experiment: Experiment, digest: str, path: Path, data: "Dataset | Prepared"
) -> None:
    """Refuse a state that was saved with other settings or data, naming what changed."""
    check_settings(facts, experiment, digest, path)
    if facts["data"] != data.digest:
        raise CheckpointError(
            f"the {data.name} data changed since {path.name} was saved; put it back, or start a new run"
        )


def check_settings(facts: dict[str, Any], experiment: Experiment, digest: str, path: Path) -> None:
    """Refuse a state that was saved with other settings than those that experiment.json has now."""
    if facts["settings"] != digest:
        now, then = _chosen(experiment), facts["chosen"]
        changed = [p for p in now | then if now.get(p) != then.get(p)]
        which = f"{changed[0]} was {json.dumps(then.get(changed[0]))}" if changed else "arms were in another order"
        raise CheckpointError(
            f"settings changed since {path.name} was saved: {which}; put that back in "
            f"{path.parent / 'experiment.json'}, or start a new run with `meannet run`"
        )


def _chosen(experiment: Experiment) -> dict[str, Any]:
    """What the digest is of, by path, to name a setting that was changed."""
    return {path: to_json(value) for path, value in settings(experiment).items() if path not in NOT_DECIDING}


def _checksum(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
