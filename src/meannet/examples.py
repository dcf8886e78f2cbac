"""Some test pictures and what the mean network takes them for, kept for the report (Figs. 3 and 4)."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from meannet.config import Experiment
from meannet.data import Dataset
from meannet.nn.dense import Fleet
from meannet.train import Fault

SHOWN, OF_A_CLASS, BEST = 8, 10, 5  # pictures with their best labels, pictures of one class, labels
CLASS = "bird"  # of Fig. 3; where there is none, the first class with enough pictures
SEED = 2012  # of the choice of pictures

# The pictures of cases and their probabilities, (cases, classes).
Look = Callable[[np.ndarray], tuple[list[dict[str, Any]], np.ndarray]]


def gather(labels: np.ndarray, classes: Sequence[str], look: Look) -> dict[str, Any]:
    """Pictures chosen at random, and some of one class, right ones first; nothing about the net decides which."""
    random = np.random.default_rng(SEED)
    order = random.permutation(len(labels))
    shown = np.sort(order[:SHOWN])
    counts = np.bincount(labels, minlength=len(classes))
    enough = np.flatnonzero(counts >= min(OF_A_CLASS, counts.max()))
    kind = classes.index(CLASS) if CLASS in classes and counts[classes.index(CLASS)] else int(enough[0])
    same = order[labels[order] == kind][:OF_A_CLASS]
    found = [_described(case, picture, row, labels) for case, picture, row in zip(shown, *look(shown), strict=True)]
    alike = [_described(case, picture, row, labels) for case, picture, row in zip(same, *look(same), strict=True)]
    alike.sort(key=lambda one: one["best"][0]["label"] != kind)
    return {"classes": list(classes), "cases": found, "of_class": {"label": kind, "cases": alike}}


def of_fleet(
    experiment: Experiment, fleet: Fleet, name: str, dataset: Dataset, faults: Sequence[Fault]
) -> dict[str, Any] | None:
    """What a net of the headline arm, or of the last one, takes colour pictures for; None where there are none."""
    inputs = dataset.test.inputs
    if not isinstance(inputs, torch.Tensor) or inputs.dim() != 4 or inputs.dtype != torch.uint8:
        return None
    headline = experiment.claims[0].arm if experiment.claims else experiment.arms[-1].name
    gone = {fault.net for fault in faults}
    good = [
        (net, seed) for net, (arm, seed) in enumerate(experiment.pairs()) if arm.name == headline and net not in gone
    ]
    if not good:
        return None
    net, seed = good[0]

    @torch.no_grad()
    def look(cases: np.ndarray) -> tuple[list[dict[str, Any]], np.ndarray]:
        chosen = inputs[torch.from_numpy(cases)]
        found = fleet.mean_outputs(chosen.to(fleet.device))[net].softmax(-1)
        return [raw(pixels.permute(1, 2, 0).numpy()) for pixels in chosen], found.double().cpu().numpy()

    facts = {"net": name, "arm": headline, "seed": seed, "views": 1}
    return facts | gather(dataset.test.targets.numpy(), dataset.classes, look)


def raw(pixels: np.ndarray) -> dict[str, Any]:
    """A picture, (rows, columns, 3) bytes, as it is; no library is needed to write it."""
    content = np.ascontiguousarray(pixels)
    return {"pixels": base64.b64encode(content.tobytes()).decode(), "shape": list(content.shape)}


def jpeg(content: bytes) -> dict[str, Any]:
    return {"jpeg": base64.b64encode(content).decode()}


def _described(case: int, picture: dict[str, Any], probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    best = np.argsort(-probabilities, kind="stable")[:BEST]
    named = [{"label": int(label), "probability": round(float(probabilities[label]), 6)} for label in best]
    return {"case": int(case), "label": int(labels[case]), "picture": picture, "best": named}
