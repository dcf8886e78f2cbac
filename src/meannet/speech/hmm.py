"""The hidden Markov model behind the net, and how it is estimated from training utterances whose states are known.

The net gives probabilities of states given a frame; divided by how common a state is they stand for the probability of
the frame given the state (body). A path's score adds up, over its frames, `scale` times the logarithm of that; over its
steps, the logarithms of staying in a state or leaving it; over its phones, the logarithm of the bigram and `-penalty`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from meannet.speech import phones

PARTS = ("prior", "stay", "start", "follow", "end")  # the tensors of a model, as files name them


@dataclass(frozen=True, kw_only=True)
class Hmm:
    """Log probabilities in float32, and the two numbers that are tuned on development speakers."""

    prior: Tensor  # (states,), how common a state is among the training frames
    stay: Tensor  # (states,), to be in the same state in the next frame
    start: Tensor  # (phones,)
    follow: Tensor  # (from, to), the bigram
    end: Tensor  # (phones,)
    scale: float = 1.0
    penalty: float = 0.0

    def to(self, device: torch.device | str) -> "Hmm":
        return replace(self, **{name: getattr(self, name).to(device) for name in PARTS})

    def emissions(self, log_posteriors: Tensor) -> Tensor:
        """Scores of states by frame from the net's log probabilities; states are the last axis."""
        return self.scale * (log_posteriors - self.prior)


@dataclass(frozen=True)
class Segment:
    """A phone by its number, in the frames from `start` to before `stop`."""

    phone: int
    start: int
    stop: int


def estimate(states: Sequence[Tensor], labels: Sequence[Sequence[int]]) -> Hmm:
    """From the states of all frames and the phones of all utterances of the training set.

    A state that stays n of m times has probability (n + 1) / (m + 2) of it, and one of n frames in N the prior
    (n + 1) / (N + 185). The bigram is Witten and Bell's: a phone with c followers, d of them distinct, gives
    d / (c + d) of its probability to the unigram, whose counts have 1 added. An utterance's end is a follower too.
    """
    frames, stayed, left = (torch.zeros(phones.N_STATES, dtype=torch.float64) for _ in range(3))
    for one in states:
        row = one.cpu()
        frames += torch.bincount(row, minlength=phones.N_STATES)
        same = row[1:] == row[:-1]
        stayed += torch.bincount(row[:-1][same], minlength=phones.N_STATES)
        left += torch.bincount(row[:-1][~same], minlength=phones.N_STATES)
        left[row[-1]] += 1
    follow = _bigram(labels)
    made = {
        "prior": (frames + 1) / (frames.sum() + phones.N_STATES),
        "stay": (stayed + 1) / (stayed + left + 2),
        "start": follow[-1, :-1] / follow[-1, :-1].sum(),
        "follow": follow[:-1, :-1],
        "end": follow[:-1, -1],
    }
    logs: dict[str, Any] = {name: value.log().float() for name, value in made.items()}
    return Hmm(**logs)


def _bigram(labels: Sequence[Sequence[int]]) -> Tensor:
    """(from, to) in float64; the last row is the beginning of an utterance, the last column its end."""
    n = len(phones.PHONES)
    counts = torch.zeros(n + 1, n + 1, dtype=torch.float64)
    for row in labels:
        pairs = torch.tensor([n, *row, n])
        counts.index_put_((pairs[:-1], pairs[1:]), torch.ones(len(row) + 1, dtype=torch.float64), accumulate=True)
    unigram = (counts.sum(0) + 1) / (counts.sum() + n + 1)
    distinct = (counts > 0).sum(1, keepdim=True).double()
    distinct[distinct == 0] = 1.0  # a phone that was never seen is followed as any other
    return (counts + distinct * unigram) / (counts.sum(1, keepdim=True) + distinct)


def states_of(phone: int) -> range:
    return range(phones.FIRST[phone], phones.FIRST[phone] + phones.STATES_OF[phone])


def equally(phone: int, frames: int) -> Tensor:
    """The states of a phone that is divided equally; with fewer frames than states some states have none."""
    middles = 2 * torch.arange(frames) + 1
    return phones.FIRST[phone] + middles * phones.STATES_OF[phone] // (2 * frames)
