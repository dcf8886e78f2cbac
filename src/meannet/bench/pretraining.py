"""Speed of pretraining beside peers: CD-1 on 784-500 in mini-batches of 100, everyone in turns."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from meannet import device, fast
from meannet.bench.comparison import REPEATS, Row, measured, spread
from meannet.bench.work import Settings, net_name

SIZES = (784, 500)
EPOCH = 60_000  # cases
FLEET = 5
NOTES = {"torch-rbm": "as most people write it", "sklearn-rbm": "persistent chains"}


def usual(where: str) -> dict[str, Sequence[Settings]]:
    """A timing is an epoch, seconds on two cores; scikit-learn runs in both precisions it has."""
    one = Settings(sizes=SIZES, device=where, updates=600)
    ours = [one, replace(one, nets=FLEET)] if where == "cuda" else [one, replace(one, path="plain")]
    peers: dict[str, Sequence[Settings]] = {"meannet-rbm": ours, "torch-rbm": [one]}
    if where == "cpu":
        peers["sklearn-rbm"] = [replace(one, path=precision) for precision in ("float32", "float64")]
    return peers


def compare(
    where: torch.device,
    say: Callable[[str], None],
    *,
    plans: dict[str, Sequence[Settings]] | None = None,
    repeats: int = REPEATS,
) -> dict[str, Any]:
    """Everyone's updates a second; who is left out, and why, is said."""
    plans = plans or usual(where.type)
    return measured(
        device.describe(where), plans, repeats, say, lambda learn, every: {}, lambda row: _to_json(row, where)
    )


def _to_json(row: Row, where: torch.device) -> dict[str, Any]:
    settings, speed = row.settings, statistics.median(row.speeds)
    note = NOTES.get(row.who.who, "")
    if row.who.who == "meannet-rbm":
        rough = fast.products(where, settings.path) == torch.bfloat16
        note = "bfloat16 products" if rough else "one graph an update, TF32" if where.type == "cuda" else "float32"
    elif row.who.who == "sklearn-rbm":
        note = f"{settings.path}, {note}"
    return {
        "who": row.who.who,
        "note": note,
        "net": net_name(settings.sizes),
        "nets": settings.nets,
        "batch": settings.batch,
        "threads": row.who.threads,
        "updates_per_s": round(speed, 1),
        "epochs_per_s": round(speed * settings.batch / EPOCH, 4),
        "spread": round(spread(row.speeds), 1),
        "repeats": len(row.speeds),
    }
