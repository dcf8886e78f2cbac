"""Speed beside peers: the same work by everyone who is installed, in turns, with the spread."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from meannet import device
from meannet.bench import ours, work
from meannet.bench.participants import Participant, taking_part
from meannet.bench.speeds import EAGER, ratios
from meannet.bench.work import UNITS, Settings, net_name

REPEATS = 9
FEWEST = 3
SECONDS = 140.0  # from the start, after which no further round begins
FLEET = 20  # nets that a GPU trains side by side
LESS = {"sklearn": "no dropout, no norm bound"}  # what a peer leaves undone


@dataclass
class Row:
    """Someone with one piece of work, and how fast each repeat was; a fleet's updates are counted net by net."""

    who: Participant
    number: int
    speeds: list[float] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.who.rows[self.number]

    @property
    def failed(self) -> str:
        return self.who.failed.get(self.number, "")

    @property
    def name(self) -> str:
        mine = f" {self.settings.path}" if self.who.who == "meannet" else ""
        several = f", {self.settings.nets} nets" if self.settings.nets > 1 else ""
        return f"{self.who.who}{mine}, {self.settings.units}{several}"

    def measure(self) -> None:
        answer = self.who.timed(self.number)
        if answer:
            self.speeds.append(self.settings.nets * self.settings.updates / answer["seconds"])

    def to_json(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "who": self.who.who,
            "net": net_name(settings.sizes),
            "units": UNITS[settings.units],
            "nets": settings.nets,
            "batch": settings.batch,
            "threads": self.who.threads,
            "path": settings.path if self.who.who == "meannet" else "",
            "updates_per_s": round(statistics.median(self.speeds), 1),
            "spread": round(spread(self.speeds), 1),
            "repeats": len(self.speeds),
        }


def compare(
    where: torch.device,
    say: Callable[[str], None],
    *,
    plans: dict[str, Sequence[Settings]] | None = None,
    repeats: int = REPEATS,
) -> dict[str, Any]:
    """Everyone's updates a second, as `meannet bench --json` prints them; who is left out, and why, is said."""

    def begun(learn: Any, every: Sequence[Settings]) -> dict[str, Any]:
        shapes = {row.units: replace(row, path="auto", nets=1) for row in every}
        return {units: work.begun(shape, learn) for units, shape in shapes.items()}

    found = measured(describe(where), plans or usual(where.type), repeats, say, begun, Row.to_json)
    for row, ratio in zip(found["rows"], ratios(found["rows"]), strict=True):
        row["ratio"] = None if ratio is None else round(ratio, 2)
    return found


def measured(
    machine: str,
    plans: dict[str, Sequence[Settings]],
    repeats: int,
    say: Callable[[str], None],
    begun: Callable[[Any, Sequence[Settings]], dict[str, Any]],
    told: Callable[[Row], dict[str, Any]],
) -> dict[str, Any]:
    """Everyone in turns, from the nets that `begun` makes of the cases, and what is `told` of each."""
    start = time.perf_counter()
    every = [row for rows in plans.values() for row in rows]
    learn, name = work.cases(max(row.updates * row.batch for row in every))
    say(f"{machine}; data: {name}")
    with tempfile.TemporaryDirectory() as temporary:
        work.write(Path(temporary), learn, begun(learn, every))
        say(f"{', '.join(plans)} get ready")
        with taking_part(plans, Path(temporary)) as everyone:
            rows = [Row(who, number) for who in everyone for number in range(len(who.rows))]
            in_turns(rows, repeats, say, start)
    left_out = [{"who": row.name, "why": row.failed} for row in rows if row.failed]
    for one in left_out:
        say(f"left out: {one['who']}: {one['why']}")
    return {
        "device": machine,
        "data": name,
        "rows": [told(row) for row in rows if not row.failed],
        "left_out": left_out,
    }


def in_turns(rows: Sequence[Row], repeats: int, say: Callable[[str], None], start: float) -> None:
    """Round after round, so that whatever else the machine does meets all alike; the first does not count."""
    for turn in range(repeats + 1):
        if turn > FEWEST and time.perf_counter() - start > SECONDS:
            say(f"time is up after {turn - 1} of {repeats} repeats")
            break
        for row in rows:
            row.measure()
            if turn == 0:
                row.speeds.clear()


def usual(where: str) -> dict[str, Sequence[Settings]]:
    """Rectified and logistic units for everyone; a timing takes a second or less on two cores, an epoch on a GPU."""
    both = [Settings(units=units, device=where, updates=600 if where == "cuda" else 50) for units in UNITS]
    fast = [replace(one, path="fast", updates=600 if where == "cuda" else 200) for one in both]
    fleets = [replace(one, nets=FLEET) for one in fast] if where == "cuda" else []
    plain = [replace(one, path="plain", updates=50) for one in both]
    peers = (EAGER, "torch-compile", "jax-scan", *(["sklearn"] if where == "cpu" else []))
    return {"meannet": [*fast, *fleets, *plain], **dict.fromkeys(peers, both)}


def describe(where: torch.device) -> str:
    """The machine, and how our fast path uses it."""
    if where.type == "cuda":
        return device.describe(where)
    kernel = ours.fast_set()
    fast = f"fast path with {kernel} on {ours.kernel_threads()} threads" if kernel else "no fast path was built"
    return f"{device.describe(where)}; {fast}"


def spread(values: Sequence[float]) -> float:
    """The interquartile range."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first
