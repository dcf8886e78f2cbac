"""Exact save and resume: one checksummed safetensors file, replaced atomically, the one before it kept."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from meannet.atomic import write_atomically


class CheckpointError(RuntimeError):
    """No state can be read, or it belongs to other settings or data."""


class Damaged(CheckpointError):
    """A file that should hold a state is missing or not whole."""


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
            return read(candidate)
        except CheckpointError as error:
            problems.append(str(error))
    why = "; ".join(problems) or "none was written"
    raise CheckpointError(f"no usable state in {path.parent} ({why}); start a new run with `meannet run`")


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of this very file; Damaged where it is missing, not whole or none of ours."""
    try:
        with safe_open(path, framework="pt") as file:
            record = (file.metadata() or {}).get("record", "")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path.name} cannot be read: {error}") from None
    checksum, _, text = record.partition(" ")
    if _checksum(tensors, text) != checksum:
        raise Damaged(f"{path.name} is damaged: its checksum is wrong")
    return tensors, json.loads(text)


def recover(path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The facts of the newest whole state, which then lies at `path` alone.

    A damaged file there would, at the next save, push out the whole one before it.
    """
    try:
        return read(path)[1]
    except CheckpointError as error:
        facts = load(path)[1]
        previous(path).replace(path)
        say(f"{error}; going back to the state before it, of epoch {facts['epoch']}")
        return facts


def exists(path: Path) -> bool:
    return path.exists() or previous(path).exists()


def previous(path: Path) -> Path:
    return path.with_name(path.stem + ".previous" + path.suffix)


def _checksum(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
