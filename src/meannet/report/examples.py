"""Test pictures in the page: some with their five best labels (Fig. 4), and some of one class (Fig. 3)."""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import numpy as np

from meannet.report.features import png_uri
from meannet.report.runs import Run

LARGE, SMALL = 180, 84  # CSS pixels


@dataclass(frozen=True)
class Bar:
    label: str
    percent: float
    right: bool


@dataclass(frozen=True)
class Shown:
    """A picture as a data URI, what it shows, what it was taken for, and its bars."""

    uri: str
    label: str
    taken: str
    right: bool
    bars: list[Bar]

    @property
    def small(self) -> bool:
        """Whether it is shown enlarged, so that its pixels are better seen as they are."""
        return self.uri.startswith("data:image/png")


@dataclass(frozen=True)
class Examples:
    net: str
    arm: str
    seed: int
    views: int
    cases: str  # what they were taken from: test, validation or held-out ones
    shown: list[Shown]
    of_class: list[Shown]
    name: str  # of that class
    large: int
    small: int

    @property
    def finding(self) -> str:
        first = sum(one.right for one in self.shown)
        among = sum(any(bar.right for bar in one.bars) for one in self.shown)
        every = f"{len(self.shown)} {self.cases} pictures"
        return f"The right label comes first for {first} of {every} and is among the best five for {among}."

    @property
    def class_finding(self) -> str:
        right = sum(one.right for one in self.of_class)
        return f"{right} of {len(self.of_class)} {self.cases} pictures of the class “{self.name}” are taken for it."


def examples(run: Run) -> Examples | None:
    """What the run kept, or None where it kept none."""
    found = run.examples
    if found is None:
        return None
    names = [name.split(",")[0] for name in found["classes"]]
    try:
        shown = [_shown(one, names) for one in found["cases"]]
        alike = [_shown(one, names) for one in found["of_class"]["cases"]]
        kind = names[found["of_class"]["label"]]
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error) as error:
        raise ValueError(
            f"{run.folder / 'examples.json'} is broken ({error}); remove it and the report goes without pictures"
        ) from None
    facts = {name: found[name] for name in ("net", "arm", "seed", "views")}
    return Examples(cases=run.cases, shown=shown, of_class=alike, name=kind, large=LARGE, small=SMALL, **facts)


def _shown(one: dict[str, Any], names: list[str]) -> Shown:
    bars = [Bar(names[b["label"]], 100 * b["probability"], b["label"] == one["label"]) for b in one["best"]]
    return Shown(_uri(one["picture"]), names[one["label"]], bars[0].label, bars[0].right, bars)


def _uri(picture: dict[str, Any]) -> str:
    if "jpeg" in picture:
        base64.b64decode(picture["jpeg"], validate=True)
        return f"data:image/jpeg;base64,{picture['jpeg']}"
    pixels = np.frombuffer(base64.b64decode(picture["pixels"], validate=True), np.uint8).reshape(picture["shape"])
    return png_uri(pixels)
