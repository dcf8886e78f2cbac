"""`meannet bench --loader`: how fast pictures are prepared by one core, and decoded by one worker or several."""

import io
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meannet import device
from meannet.bench.images import median_spread
from meannet.cores import cores
from meannet.data import imagenet, pictures, shards
from meannet.data.stream import Stream

ROWS, COLUMNS = 375, 500  # of a usual picture of ILSVRC
PICTURES, BATCH, REPEATS = 240, 128, 5
SECONDS = 1.0  # that each repeat reads for
WORKERS = (1, 2, 4, 8, 16, 32, 64)


def measure(
    say: Callable[[str], None], *, count: int = PICTURES, seconds: float = SECONDS, most: int | None = None
) -> dict[str, Any]:
    """Generated photographs of ILSVRC's usual size, prepared, and then read as training reads them."""
    most = cores() if most is None else most
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say(f"generating {count} pictures of {ROWS} x {COLUMNS}")
        size = _generate(folder / "source", count)
        document = imagenet.prepare(folder / "source", out=folder / "out", workers=1, say=say, cases=count)
        prepared = _prepared(folder / "source", folder, document)
        rows = []
        for workers in (number for number in WORKERS if number <= most):
            say(f"reading with {workers} worker{'s' * (workers > 1)}")
            rows.append(_read(folder / "out", workers, seconds))
    return {
        "device": device.describe(torch.device("cpu")),
        "cores": cores(),
        "pictures": {"count": count, "rows": ROWS, "columns": COLUMNS, "mean_bytes": size},
        "prepare": prepared,
        "loader": rows,
    }


def _generate(source: Path, count: int) -> int:
    """Pictures as smooth as photographs, so that files are of their size; returns the mean bytes of one."""
    image = pictures.pillow()
    random = np.random.default_rng(0)
    sizes = []
    for k in range(count):
        layers = np.zeros((ROWS, COLUMNS, 3))
        for side, strength in ((6, 60.0), (40, 25.0), (250, 14.0)):  # coarse forms, finer ones, texture
            coarse = random.normal(128, 128, (side, side, 3)).clip(0, 255).astype(np.uint8)
            wide = image.fromarray(coarse).resize((COLUMNS, ROWS), image.Resampling.BICUBIC)
            layers += (np.asarray(wide) - 128.0) * strength / 60
        out = io.BytesIO()
        image.fromarray((layers + 128).clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
        part = "val" if k % 10 == 0 else "train"
        path = source / part / f"n{k % 2:08d}" / f"{k}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(out.getvalue())
        sizes.append(len(out.getvalue()))
    return round(statistics.fmean(sizes))


def _prepared(source: Path, folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Pictures a second that one core makes into a shard, reading, resizing, writing and checksums included."""
    paths = sorted((source / "train").rglob("*.JPEG"))
    items = [(str(path), 0, path.stat().st_size, path.name, 0) for path in paths]
    rates = []
    for k in range(REPEATS):
        begun = time.perf_counter()
        shards.write(folder, f"again-{k}", items, size=document["size"], quality=document["quality"])
        rates.append(len(items) / (time.perf_counter() - begun))
    found = median_spread(rates)
    return {"images_per_s_a_core": found["median"], "spread": found["spread"], "repeats": REPEATS}


def _read(folder: Path, workers: int, seconds: float) -> dict[str, Any]:
    with Stream(folder, "train", BATCH, workers) as stream:
        cases = np.arange(BATCH) % len(stream.reader)
        found = stream.batches(itertools.repeat(cases))
        for _ in range(8):  # processes have started, files are in memory
            next(found)
        rates = []
        for _ in range(REPEATS):
            begun, read = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                read += len(next(found))
            rates.append(read / (time.perf_counter() - begun))
    figures = median_spread(rates)
    return {
        "workers": workers,
        "images_per_s": figures["median"],
        "spread": figures["spread"],
        "repeats": REPEATS,
        "load": round(os.getloadavg()[0], 1),
    }
