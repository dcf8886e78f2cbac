"""The mean network (body) in files that other programs read: ONNX, torch.export's archive, plain torch.

Inputs are the raw ones: their scaling is part of what is written, and so are labels. Numbers of cases are free.
"""

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meannet import checkpoint, plain
from meannet.atomic import write_atomically
from meannet.config import none_of

SUFFIXES = {"onnx": ".onnx", "pt2": ".pt2", "torch": ".safetensors"}
FACTS = "meannet.json"  # of a pt2 archive, beside the program
PROBES = 64  # cases on which what was made is held against the network
PHOTOGRAPHS = 4  # the same, where a case is a large picture of which ten views are taken
WORST = 1e-3  # difference, on the scale of the outputs, beyond which nothing is written
SEED = 2012


def write(network: nn.Module, facts: Mapping[str, Any], path: Path, to: str, *, force: bool = False) -> str:
    """Write the network of plain.py and the facts about it to `path`; returns how well the outcome agrees with it."""
    check(path, to, force=force)
    if to == "torch":
        return _write_torch(network, facts, path)
    content, found = (_onnx if to == "onnx" else _pt2)(network, facts)
    write_atomically(path, content)
    return found


def check(path: Path, to: str, *, force: bool) -> None:
    """Refuse a form that there is none of, and files that cannot or must not be written."""
    if to not in SUFFIXES:
        raise ValueError(none_of("to", to, SUFFIXES))
    if path.suffix != SUFFIXES[to]:
        raise ValueError(f"{path} must end in {SUFFIXES[to]} to hold {to}, as in {path.with_suffix(SUFFIXES[to])}")
    check_target(path, force=force)
    if to == "torch":
        _check_not_ours(path)
        if path.stem in {*sys.stdlib_module_names, "torch", "numpy", "safetensors"}:
            raise ValueError(f"{path.stem}.py would stand in the way of Python's module {path.stem}; name another file")
        check_target(path.with_suffix(".py"), force=force)


def _check_not_ours(path: Path) -> None:
    """Refuse, even if told to replace it, a file that is a run's state or an estimator: nothing would bring it back."""
    if not path.is_file():
        return
    try:
        facts = checkpoint.read(path)[1]
    except checkpoint.CheckpointError:
        return
    if "estimator" in facts or "epoch" in facts:
        what = facts.get("estimator", "the state of a run")
        raise ValueError(f"{path} holds {what}, which an export would destroy; name another file")


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done for it."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file to write")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already; name another file, or replace it with --force (force=True)")


def _write_torch(network: nn.Module, facts: Mapping[str, Any], path: Path) -> str:
    """Parameters in safetensors, and beside them a program that reads them without this package."""
    script = path.with_suffix(".py")
    tensors = {
        f"{number}.{name}": tensor
        for number, one in enumerate(plain.networks(network))
        for name, tensor in one.state_dict().items()
    }
    new = not path.exists()
    checkpoint.save(path, tensors, dict(facts), keep_previous=False)
    try:
        write_atomically(script, Path(plain.__file__).read_bytes())
    except OSError:
        if new:
            path.unlink(missing_ok=True)
        raise
    return f"float64; {script} reads it"


def _pt2(network: nn.Module, facts: Mapping[str, Any]) -> tuple[bytes, str]:
    """An archive for torch.export.load, without pickle or paths of this machine; the facts are an extra file of it."""
    probes = _probes(network, facts)
    shapes = ({0: torch.export.Dim("cases", min=1)},)
    program = torch.export.export(network, (probes,), dynamic_shapes=shapes)
    agreement = _agreement(network, probes, program.module()(probes))
    program.example_inputs = None  # these would be pickled
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={FACTS: json.dumps(facts)})
    return content.getvalue(), f"float64; {agreement}"


def _onnx(network: nn.Module, facts: Mapping[str, Any]) -> tuple[bytes, str]:
    """A model in float32, held against the network where ONNX Runtime is installed."""
    try:
        from meannet.onnx_graph import model
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "onnx":
            raise
        raise ValueError("writing ONNX needs the onnx package: pip install 'meannet[onnx]'") from None
    content = model(network, facts)
    try:
        import onnxruntime
    except ImportError:
        return content, "float32; not checked, since onnxruntime is not installed"
    probes = _probes(network, facts)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs() if not output.name.startswith("label")]
    given = session.run(names, {"inputs": probes.numpy().astype(np.float32)})
    found = np.concatenate([np.asarray(part).reshape(len(probes), -1) for part in given], 1)
    return content, f"float32; in ONNX Runtime {onnxruntime.__version__} it {_agreement(network, probes, found)}"


def _probes(network: nn.Module, facts: Mapping[str, Any]) -> Tensor:
    """Random cases like those the network was trained on."""
    scaling = plain.networks(network)[0][0]
    assert isinstance(scaling, plain.Standardise)
    random = torch.Generator().manual_seed(SEED)
    shape = (PROBES if facts.get("views", 1) == 1 else PHOTOGRAPHS, facts["sizes"][0])
    if facts["largest"] is not None:
        return torch.rand(shape, generator=random, dtype=torch.float64) * facts["largest"]
    return torch.randn(shape, generator=random, dtype=torch.float64) * scaling.scale + scaling.mean


def _agreement(network: nn.Module, probes: Tensor, found: Tensor | np.ndarray) -> str:
    """How far probabilities, or predictions in standard deviations of the targets, are from the network's, at most."""
    last = plain.networks(network)[0][-1]
    unit = last.scale if isinstance(last, plain.Restore) else 1.0
    largest = float(((torch.as_tensor(found) - network(probes)).abs() / unit).max())
    if not largest <= WORST:
        raise RuntimeError(
            f"what was made differs by {largest:.1g} from the network in random cases, so nothing was written; columns "
            "whose values differ by little for their size do not fit into float32: subtract a constant before fitting, "
            "or export to pt2 or torch, which are in float64"
        )
    return f"agrees with the network to {largest:.1g} in {len(probes)} random cases"
