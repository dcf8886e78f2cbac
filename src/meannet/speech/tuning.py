"""Acoustic scale and insertion penalty, chosen by phone errors on development speakers; the paper leaves them open."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from meannet.speech import scoring
from meannet.speech.decoding import recognise
from meannet.speech.hmm import Hmm

SCALES = (0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
PENALTIES = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Tried:
    """The phone errors of one pair of values."""

    scale: float
    penalty: float
    errors: int


@dataclass(frozen=True)
class Tuned:
    """The model with the values that made the fewest errors, and all that were tried."""

    hmm: Hmm
    tried: list[Tried]

    def numbers(self) -> dict[str, float]:
        return {"scale": self.hmm.scale, "penalty": self.hmm.penalty}

    def to_json(self) -> dict[str, Any]:
        return {**self.numbers(), "on_the_edge": self.on_the_edge, "tried": [vars(one) for one in self.tried]}

    @property
    def on_the_edge(self) -> bool:
        """Whether values beyond those tried might do better."""
        scales, penalties = ({getattr(one, name) for one in self.tried} for name in ("scale", "penalty"))
        edges = (min(scales), max(scales)), (min(penalties), max(penalties))
        return self.hmm.scale in edges[0] or self.hmm.penalty in edges[1]


def tune(
    hmm: Hmm,
    log_posteriors: Tensor,
    counts: Sequence[int],
    references: Sequence[Sequence[int]],
    *,
    scales: Sequence[float] = SCALES,
    penalties: Sequence[float] = PENALTIES,
) -> Tuned:
    """Try every pair on development utterances: their log probabilities, as `recognise` has them, and their phones.

    Of equally good pairs the one with the smaller penalty, then the smaller scale, is taken.
    """
    tried = []
    for scale in scales:
        for penalty in penalties:
            rows = recognise(replace(hmm, scale=scale, penalty=penalty), log_posteriors, counts)
            found = [[one.phone for one in row] for row in rows]
            tried.append(Tried(scale, penalty, scoring.errors(references, found)))
    best = min(tried, key=lambda one: (one.errors, abs(one.penalty), one.scale))
    return Tuned(replace(hmm, scale=best.scale, penalty=best.penalty), tried)
