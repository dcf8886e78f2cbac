"""How wrong a recogniser is: phone error rate with its parts, confusions (body).

Errors are counted in 39 classes. Silence is one of them and counts like the others; `q` is deleted from reference and
hypothesis. The fewest substitutions, deletions and insertions that turn the one into the other are the errors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meannet.speech import phones

SAID = "39 classes, silence counted as one of them, q deleted"
PHONES = 1 << 12  # counted at a time, where no single utterance has more


@dataclass(frozen=True)
class Score:
    """Counts of phones over all utterances."""

    confusions: np.ndarray  # (said, recognised) of 39 classes, the right ones included
    deleted: np.ndarray  # (39,), by class that was said
    inserted: np.ndarray  # (39,), by class that was recognised
    utterances: int

    @property
    def phones(self) -> int:
        """How many were said."""
        return int(self.confusions.sum() + self.deleted.sum())

    @property
    def substitutions(self) -> int:
        return int(self.confusions.sum() - np.trace(self.confusions))

    @property
    def deletions(self) -> int:
        return int(self.deleted.sum())

    @property
    def insertions(self) -> int:
        return int(self.inserted.sum())

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Phone error rate in percent of the phones that were said."""
        return 100 * self.errors / self.phones

    def __str__(self) -> str:
        parts = f"{self.substitutions:,} substitutions, {self.deletions:,} deletions, {self.insertions:,} insertions"
        return f"phone error rate {self.rate:.1f} %: {parts} of {self.phones:,} phones ({SAID})"

    def to_json(self) -> dict[str, Any]:
        return {
            "phone_error_rate": round(self.rate, 3),
            "substitutions": self.substitutions,
            "deletions": self.deletions,
            "insertions": self.insertions,
            "phones": self.phones,
            "utterances": self.utterances,
            "scored": SAID,
        }


def score(references: Sequence[Sequence[int]], hypotheses: Sequence[Sequence[int]]) -> Score:
    """Phones of 61 that were said and recognised, by number, utterance by utterance."""
    said, heard = ([phones.scored(row) for row in rows] for rows in (references, hypotheses))
    if not any(said):
        raise ValueError("there is no phone to score against: the references are empty")
    n = len(phones.CLASSES)
    confusions, deleted, inserted = np.zeros((n, n), np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    for one, other in zip(said, heard, strict=True):
        for a, b in _pairs(one, other):
            if a is None:
                inserted[other[b]] += 1
            elif b is None:
                deleted[one[a]] += 1
            else:
                confusions[one[a], other[b]] += 1
    return Score(confusions, deleted, inserted, len(said))


def errors(references: Sequence[Sequence[int]], hypotheses: Sequence[Sequence[int]]) -> int:
    """Errors of `score` alone, which is much faster for many short utterances."""
    every = [(phones.scored(a), phones.scored(b)) for a, b in zip(references, hypotheses, strict=True)]
    every.sort(key=lambda pair: max(map(len, pair)))  # so that those counted together are about as long
    total = 0
    while every:
        most = max(1, PHONES // max(1, *map(len, every[-1])))
        some, every = every[-most:], every[:-most]
        said, heard = ([pair[k] for pair in some] for k in (0, 1))
        for a, row in enumerate(_distances(said, heard)):
            total += sum(int(row[k, len(heard[k])]) for k, one in enumerate(said) if len(one) == a)
    return total


def marked(said: Sequence[int], heard: Sequence[int]) -> list[bool]:
    """Which phones of those recognised were said; q always counts as said."""
    one, other = phones.scored(said), phones.scored(heard)
    right = iter([a is not None and one[a] == other[b] for a, b in _pairs(one, other) if b is not None])
    return [phones.CLASS_OF_PHONE[phone] == phones.NO_CLASS or next(right) for phone in heard]


def _distances(said: Sequence[Sequence[int]], heard: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
    """For each a: errors between the first a of what was said and the first b of what was heard, (utterances, b)."""
    rows, columns = (max(map(len, every), default=0) for every in (said, heard))
    one, other = _padded(said, rows, -1), _padded(heard, columns, -2)
    steps = np.arange(columns + 1, dtype=np.int32)
    here = np.tile(steps, (len(said), 1))
    yield here
    for a in range(rows):
        before, here = here, here + 1
        here[:, 1:] = np.minimum(here[:, 1:], before[:, :-1] + (one[:, a, None] != other))
        here = np.minimum.accumulate(here - steps, 1) + steps  # insertions: one more for each step to the right
        yield here


def _padded(rows: Sequence[Sequence[int]], width: int, filled: int) -> np.ndarray:
    return np.array([[*row, *[filled] * (width - len(row))] for row in rows], np.int32).reshape(len(rows), width)


def _pairs(said: Sequence[int], heard: Sequence[int]) -> list[tuple[Any, Any]]:
    """Places in what was said beside places in what was heard, None where there is none.

    Of equally good ways it is the one with a substitution, or none, where that is possible, from the end on.
    """
    table = [row[0] for row in _distances([said], [heard])]
    found: list[tuple[Any, Any]] = []
    a, b = len(said), len(heard)
    while a or b:
        if a and b and table[a][b] == table[a - 1][b - 1] + (said[a - 1] != heard[b - 1]):
            a, b = a - 1, b - 1
            found.append((a, b))
        elif a and table[a][b] == table[a - 1][b] + 1:
            a -= 1
            found.append((a, None))
        else:
            b -= 1
            found.append((None, b))
    return found[::-1]
