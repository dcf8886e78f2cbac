"""What a run folder holds, read without torch: settings, record, result, sampled nets and first-layer features."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from meannet import config
from meannet.runlog import RunFolder

Array = NDArray[np.float64]

# What the report needs of result.json and eval.json: parts, and what each entry of a part must have.
RESULT = {
    "seconds": (),
    "arms": ("name", "net", "seeds", "errors", "mean", "sd", "n_test"),
    "comparisons": ("net", "arm", "over", "difference", "standard_error", "n", "beyond_spread"),
    "data": ("name", "n_train", "n_test", "digest"),
}
EXAMPLES = dict.fromkeys(("net", "arm", "seed", "views", "classes", "cases", "of_class"), ())
EVALUATION = {"rows": ("net", "arm", "seed", "n_test", "mean_network", "counts", "arithmetic", "geometric")}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run folder. `result` is None while the run is unfinished, `evaluation` unless `meannet eval` wrote one.

    `examples` are there for finished runs on colour pictures.
    """

    folder: Path
    experiment: config.Experiment
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    pretraining: list[dict[str, Any]]
    result: dict[str, Any] | None
    evaluation: dict[str, Any] | None
    examples: dict[str, Any] | None = None

    @property
    def nets(self) -> list[str]:
        """Names of the architectures, in the order in which they were trained."""
        named = self.result["arms"] if self.result else self.metrics
        return list(dict.fromkeys(entry["net"] for entry in named))

    @property
    def arms(self) -> list[str]:
        return [arm.name for arm in self.experiment.arms]

    @property
    def cases(self) -> str:
        """What the nets were judged on."""
        if self.experiment.data.held_out:
            return "held-out"
        return self.result["data"].get("judged_on", "test") if self.result else "test"

    @property
    def n_test(self) -> int | None:
        """Cases that were judged on; None where they are not known yet, or where errors are told as per cent."""
        return self.result["data"]["n_test"] if self.result and not self.result["data"].get("percent") else None

    @property
    def last_epoch(self) -> int:
        """The last epoch on record, 0 if there is none."""
        return max((line["epoch"] for line in self.metrics), default=0)

    def stopped(self, net: str, arm: str) -> dict[int, dict[str, Any]]:
        """The nets of this arm that diverged or collapsed, by seed."""
        for entry in self.result["arms"] if self.result else ():
            if (entry["net"], entry["name"]) == (net, arm):
                return {stop["seed"]: stop for stop in entry.get("stopped", ())}
        return {}

    def curves(self, net: str, arm: str, figure: str) -> dict[int, tuple[Array, Array]]:
        """Epochs and values of one figure of the record, by seed; of an epoch recorded twice the later line holds."""
        seeds: dict[int, dict[int, float]] = {}
        for line in self.metrics:
            if (line["net"], line["arm"]) == (net, arm):
                value = line.get(figure)
                seeds.setdefault(line["seed"], {})[line["epoch"]] = math.nan if value is None else value
        ordered = {seed: sorted(values.items()) for seed, values in sorted(seeds.items())}
        return {seed: tuple(np.array(list(zip(*pairs, strict=True)), float)) for seed, pairs in ordered.items()}

    def mean_curve(self, net: str, arm: str, figure: str) -> tuple[Array, Array]:
        """The mean over the seeds that were not stopped, at each epoch that all of them have."""
        stopped = self.stopped(net, arm)
        curves = [curve for seed, curve in self.curves(net, arm, figure).items() if seed not in stopped]
        if not curves:
            return np.empty(0), np.empty(0)
        epochs = curves[0][0]
        for other, _ in curves[1:]:
            epochs = np.intersect1d(epochs, other)
        return epochs, np.mean([values[np.isin(at, epochs)] for at, values in curves], axis=0)

    def features(self) -> tuple[int, dict[str, Array]] | None:
        """Incoming weights of the first architecture's first hidden layer, (units, inputs) by arm, and their seed.

        The seed is the first that no arm stopped at. None while there is no state to read.
        """
        hidden = self.experiment.net.hidden
        path = RunFolder(self.folder).state(hidden[0], len(hidden))
        if not path.is_file() or not self.nets:
            return None
        seeds = self.experiment.seeds
        stopped = {seed for arm in self.arms for seed in self.stopped(self.nets[0], arm)}
        chosen = next((k for k, seed in enumerate(seeds) if seed not in stopped), 0)
        try:
            with safe_open(path, framework="numpy") as state:
                weights = state.get_slice("weights.0")
                found = [weights[k * len(seeds) + chosen] for k in range(len(self.arms))]
        except (SafetensorError, IndexError, OSError) as error:
            raise ValueError(
                f"{path} cannot be read ({error}); remove it and the report goes without features"
            ) from None
        return seeds[chosen], {arm: w.astype(np.float64) for arm, w in zip(self.arms, found, strict=True)}

    @property
    def image(self) -> tuple[int, int] | None:
        """Height and width of the inputs, where they are images."""
        shape = self.result["data"].get("image") if self.result else None
        return (shape[0], shape[1]) if shape else None


def read(folder: Path) -> Run:
    """The run in this folder; what is missing or broken is an error of one line that says what to do."""
    experiment = RunFolder.open(folder).experiment()
    result = _document(folder / "result.json", RESULT)
    metrics, pretraining = folder / "metrics.jsonl", folder / "pretrain.jsonl"
    if result and not metrics.is_file() and any(arm["seeds"] for arm in result["arms"]):  # all may have been stopped
        raise ValueError(f"{folder} is finished but has no metrics.jsonl, its record of epochs; run it again")
    return Run(
        folder=folder,
        experiment=experiment,
        environment=_document(folder / "environment.json") or {},
        metrics=_record(metrics, ("epoch", "net", "arm", "seed")),
        pretraining=_record(pretraining, ("epoch", "net", "stage", "name", "seed", "figure", "value")),
        result=result,
        evaluation=_document(folder / "eval.json", EVALUATION),
        examples=_document(folder / "examples.json", EXAMPLES),
    )


def _document(path: Path, needs: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any] | None:
    """The JSON object in this file, None if there is no file; `needs` names what each part of it must have."""
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        _need(document, list(needs or ()), "it")
        for part, names in (needs or {}).items():
            for entry in document[part] if isinstance(document[part], list) else [document[part]]:
                _need(entry, names, part)
    except ValueError as error:
        raise ValueError(f"{path} is broken ({error}); remove it or run again into a new folder") from None
    return document


def _record(path: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of a record, if it is there, without the half-written last one that an interrupted run may leave."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            _need(entry, names, "the line")
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number}: not a record of an epoch; remove the line or run again") from None
        found.append(entry)
    return found


def _need(entry: Any, names: Sequence[str], what: str) -> None:
    missing = [name for name in names if name not in entry] if isinstance(entry, dict) else names
    if missing:
        raise ValueError(f"{what} has no {', '.join(missing)}")
