"""ImageNet (E): 1.3 million photographs of 1,000 classes, resized to 256 x 256 and kept in shards.

It cannot be fetched: whoever has ILSVRC2010 or ILSVRC2012 prepares it once. Preparing that was stopped, or killed, goes
on where it was.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meannet.atomic import write_atomically
from meannet.cores import cores
from meannet.data import Checked, DataError, Dataset, Status, folder, ilsvrc, pictures, shards
from meannet.data.team import Team

NAME = "imagenet"
FILES = ()
SOURCE = "https://image-net.org, for which one registers; then `meannet data prepare imagenet SRC`"
LICENCE = "non-commercial research; the terms of image-net.org"
CASES_A_SHARD = 2000
BYTES_A_CASE = 20_000  # at least, of a 256 x 256 photograph
PREPARE = "`meannet data prepare imagenet SRC`, with SRC a folder of ILSVRC2010 or 2012, makes it"


@dataclass(frozen=True)
class Progress:
    """How far preparing is: shards and pictures done, and those done by this call in so many seconds."""

    done: int
    shards: int
    pictures: int
    of: int
    now: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.now / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float:
        """Seconds."""
        return (self.of - self.pictures) / self.rate if self.rate else float("inf")


def prepare(
    source: Path,
    *,
    workers: int | None = None,
    say: Callable[[str], None],
    progress: Callable[[Progress], None] = lambda progress: None,
    out: Path | None = None,
    size: int = pictures.SIZE,
    quality: int = pictures.QUALITY,
    cases: int = CASES_A_SHARD,
) -> dict[str, Any]:
    """Resize every picture under `source` into shards; returns what index.json says."""
    pictures.pillow()
    out = where() if out is None else out
    workers = cores() if workers is None else workers
    if workers < 1:
        raise ValueError(f"--workers must be 1 or more, not {workers}")
    found = ilsvrc.find(source, say)
    jobs = [job for part, items in found.parts.items() for job in _jobs(part, items, cases)]
    digest = hashlib.sha256(json.dumps([size, quality, [job["plan"] for job in jobs]]).encode()).hexdigest()
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        _refuse_another(out, digest)
        left = [job for job in jobs if shards.written(out, job["name"], job["plan"]) is None]
        total = sum(len(job["items"]) for job in jobs)
        ahead = sum(len(job["items"]) for job in left)
        if len(left) < len(jobs):
            say(f"{len(jobs) - len(left):,} of {len(jobs):,} shards are there already")
        _check_space(out, ahead)
        begun, now = time.perf_counter(), 0
        start = {"folder": str(out), "size": size, "quality": quality}
        with Team("meannet.data.shards:writing", start, min(workers, len(left))) as team:
            for number, one in enumerate(team.map(iter(left)), start=1):
                now += one["counts"]["pictures"]
                seconds = time.perf_counter() - begun
                done = len(jobs) - len(left) + number
                progress(Progress(done, len(jobs), total - ahead + now, total, now, seconds))
        return _finish(out, found, jobs, digest, size, quality)


def where() -> Path:
    return folder() / NAME


def load(*, held_out: bool, say: Callable[[str], None]) -> Dataset:
    raise ValueError("imagenet is read from shards, which recipes imagenet.… do; no other recipe can take it")


def check() -> list[Checked]:
    """Every shard against its checksum."""
    try:
        document = shards.read_index(where())
    except DataError as error:
        return [Checked(where(), False, str(error))]
    found = []
    for part, about in document["parts"].items():
        wanted = [*about["shards"], *(about[name] for name in ("index", "mean") if name in about)]
        good = [_checked(where() / one["name"], one["sha256"]) for one in wanted]
        bad = [one for one in good if not one.ok]
        whole = f"{part}: {about['cases']:,} cases in {len(about['shards']):,} shards"
        found += bad or [Checked(where(), True, whole)]
    return found


def status() -> Status:
    try:
        document = shards.read_index(where())
    except DataError:
        return Status(NAME, where(), False, 0, SOURCE, LICENCE)
    size = sum(shard["bytes"] for about in document["parts"].values() for shard in about["shards"])
    return Status(NAME, where(), True, size, SOURCE, LICENCE)


def fetch(*, force: bool, say: Callable[[str], None]) -> None:
    raise DataError(f"imagenet cannot be fetched: its terms ask for a registration; {PREPARE}")


def _jobs(part: str, items: list[ilsvrc.Item], cases: int) -> Iterator[dict[str, Any]]:
    for number, first in enumerate(range(0, len(items), cases)):
        own = items[first : first + cases]
        yield {"name": f"{part}-{number:05d}", "part": part, "plan": shards.plan_of(own), "items": own}


def _finish(
    out: Path, found: ilsvrc.Source, jobs: list[dict[str, Any]], digest: str, size: int, quality: int
) -> dict[str, Any]:
    parts = {}
    for part in found.parts:
        made = []
        for job in jobs:
            if job["part"] == part:
                facts = shards.written(out, job["name"], job["plan"])
                if facts is None:
                    raise DataError(f"{out / job['name']}.tar went away while others were made; prepare again")
                made.append(facts)
        parts[part] = shards.gather(out, part, made, mean=part == "train")
    document = {
        "format": shards.FORMAT,
        "size": size,
        "quality": quality,
        "classes": [{"id": wnid, "words": found.words.get(wnid, wnid)} for wnid in found.classes],
        "plan": digest,
        "parts": parts,
    }
    # Of the content, so that the same pictures prepared elsewhere are the same data.
    content = [shard["sha256"] for part in parts.values() for shard in part["shards"]]
    document["digest"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    write_atomically(out / shards.INDEX, (json.dumps(document, indent=1) + "\n").encode())
    return document


def _refuse_another(out: Path, digest: str) -> None:
    try:
        found = json.loads((out / shards.INDEX).read_text(encoding="utf-8"))["plan"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # there is none, or it is damaged, and then made anew
    if found != digest:
        raise DataError(f"{out} holds another prepared set; move it away, or name another folder by MEANNET_DATA")


def _check_space(out: Path, pictures: int) -> None:
    free, needed = shutil.disk_usage(out).free, pictures * BYTES_A_CASE
    if free < needed:
        raise DataError(
            f"{out}: {pictures:,} pictures need some {needed / 1e9:.1f} GB or more, and {free / 1e9:.1f} GB are free; "
            "make room, or name another folder by MEANNET_DATA"
        )


def _checked(path: Path, sha256: str) -> Checked:
    state = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while piece := stream.read(1 << 22):
                state.update(piece)
    except OSError as error:
        return Checked(path, False, f"cannot be read ({error.strerror}); prepare again")
    if state.hexdigest() != sha256:
        return Checked(path, False, "checksum is wrong; remove it and prepare again")
    return Checked(path, True, "as it was prepared")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder against a second process, and clear away what workers that were ended left half-written."""
    try:
        import fcntl
    except ImportError:  # Windows
        fcntl = None
    with (out / ".lock").open("w") as handle:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(f"another process is preparing {out}; wait for it or stop it") from None
            except OSError:
                pass  # a file system without locks
        _clear(out)
        try:
            yield
        finally:
            _clear(out)


def _clear(out: Path) -> None:
    for left in out.glob(".*.tmp"):
        left.unlink(missing_ok=True)
