"""Exact save and resume: one checksummed safetensors file, replaced atomically, the one before it kept."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor


class CheckpointError(RuntimeError):
    """No state can be read, or it belongs to other settings or data."""


def write_atomically(path: Path, content: bytes, *, keep: Path | None = None) -> None:
    """All of `content` or nothing: temporary file beside `path`, fsync, rename, fsync of the folder.

    What was at `path` is lost, or moved to `keep`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and JSON facts; the state that was there becomes the previous one."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    record = {"facts": json.dumps(facts, sort_keys=True)}
    record["checksum"] = _checksum(tensors, record["facts"])
    write_atomically(path, serialise(tensors, record), keep=previous(path))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The newest state that is whole: this file, or else the one before it."""
    problems = []
    for candidate in (path, previous(path)):
        if not candidate.exists():
            continue
        try:
            return _read(candidate)
        except (OSError, SafetensorError, CheckpointError) as error:
            problems.append(f"{candidate.name}: {error}")
    raise CheckpointError(f"no usable state in {path.parent} ({'; '.join(problems) or 'none was written'})")


def exists(path: Path) -> bool:
    return path.exists() or previous(path).exists()


def previous(path: Path) -> Path:
    return path.with_name(path.stem + ".previous" + path.suffix)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        record = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    facts = record.get("facts", "")
    if not facts or _checksum(tensors, facts) != record.get("checksum"):
        raise CheckpointError("its checksum is wrong; the file was damaged")
    return tensors, json.loads(facts)


def _checksum(tensors: dict[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()
