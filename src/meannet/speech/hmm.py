"""The hidden Markov model behind the net: what it learns from aligned training utterances, decoding, forced alignment.

The net gives probabilities of states given a frame; divided by how common a state is they stand for the probability of
the frame given the state (body). A path's score adds up, over its frames, `scale` times the logarithm of that; over its
steps, the logarithms of staying in a state or leaving it; over its phones, the logarithm of the bigram and `-penalty`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meannet import checkpoint
from meannet.speech import phones, viterbi
from meannet.speech.viterbi import NEVER, Graph, Paths

SEGMENTS = 4096  # aligned at a time
TENSORS = {
    "prior": (phones.N_STATES,),
    "stay": (phones.N_STATES,),
    "start": (len(phones.PHONES),),
    "follow": (len(phones.PHONES), len(phones.PHONES)),
    "end": (len(phones.PHONES),),
}


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
        return replace(self, **{name: getattr(self, name).to(device) for name in TENSORS})

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


def decode(hmm: Hmm, log_posteriors: Tensor, lengths: Sequence[int]) -> Paths:
    """The best paths through all phones, for log probabilities (utterances, frames, states)."""
    _check(log_posteriors)
    graph = viterbi.one_graph(phones.STATES_OF, hmm.stay, hmm.start, hmm.follow - hmm.penalty, hmm.end)
    return viterbi.best_paths(hmm.emissions(log_posteriors), lengths, graph)


def segments(paths: Paths, lengths: Sequence[int]) -> list[list[Segment]]:
    """Phones with their frames, for each utterance."""
    found = []
    for states, begins, length in zip(paths.states.tolist(), paths.begins.tolist(), lengths, strict=True):
        starts = [frame for frame in range(length) if begins[frame]]
        stops = [*starts[1:], length]
        found.append([Segment(phones.PHONE_OF_STATE[states[a]], a, b) for a, b in zip(starts, stops, strict=True)])
    return found


def align(hmm: Hmm, log_posteriors: Tensor, lengths: Sequence[int], labels: Sequence[Sequence[int]]) -> Paths:
    """The best paths through each utterance's own phones in their order; states are numbered as always.

    A path has a frame or more in every state, so an utterance needs as many frames as its phones have states.
    """
    _check(log_posteriors)
    rows = [[state for phone in row for state in states_of(phone)] for row in labels]
    for row, length in zip(rows, lengths, strict=True):
        if not 0 < len(row) <= length:
            raise ValueError(f"an utterance of {length} frames cannot pass through {len(row)} states; check its labels")
    width, device = max(map(len, rows)), log_posteriors.device
    own = torch.tensor([row + [0] * (width + 1 - len(row)) for row in rows], device=device)  # one that nobody enters
    beyond = torch.arange(width + 1, device=device) >= torch.tensor([len(row) for row in rows], device=device)[:, None]
    graph = _in_order(hmm, labels, own, width)
    emissions = hmm.emissions(log_posteriors).gather(2, own[:, None, :].expand(-1, log_posteriors.shape[1], -1))
    emissions = emissions.masked_fill(beyond[:, None, :], NEVER)
    paths = viterbi.best_paths(emissions, lengths, graph)
    states = own.cpu().gather(1, paths.states.clamp(min=0))
    return replace(paths, states=states.where(paths.states >= 0, -1))


def align_within(hmm: Hmm, log_posteriors: Tensor, bounds: Sequence[Sequence[Segment]]) -> list[Tensor]:
    """The states of every frame of each utterance, every phone keeping the frames it has in `bounds`.

    A phone with fewer frames than states has no path of its own; it is divided equally, as at first.
    """
    found = [torch.cat([equally(one.phone, one.stop - one.start) for one in row]) for row in bounds]
    whole = [
        (row, one)
        for row, parts in enumerate(bounds)
        for one in parts
        if one.stop - one.start >= phones.STATES_OF[one.phone]
    ]
    whole.sort(key=lambda pair: pair[1].stop - pair[1].start)  # so that those aligned together are about as long
    for begin in range(0, len(whole), SEGMENTS):
        some = whole[begin : begin + SEGMENTS]
        lengths = [one.stop - one.start for _, one in some]
        offset = torch.arange(max(lengths), device=log_posteriors.device)
        start = torch.tensor([one.start for _, one in some], device=log_posteriors.device)
        frames = (start[:, None] + offset).clamp(max=log_posteriors.shape[1] - 1)
        rows = torch.tensor([row for row, _ in some], device=log_posteriors.device)
        paths = align(hmm, log_posteriors[rows[:, None], frames], lengths, [[one.phone] for _, one in some])
        for (row, one), states, length in zip(some, paths.states, lengths, strict=True):
            found[row][one.start : one.stop] = states[:length]
    return found


def states_of(phone: int) -> range:
    return range(phones.FIRST[phone], phones.FIRST[phone] + phones.STATES_OF[phone])


def equally(phone: int, frames: int) -> Tensor:
    """The states of a phone that is divided equally; with fewer frames than states some states have none."""
    middles = 2 * torch.arange(frames) + 1
    return phones.FIRST[phone] + middles * phones.STATES_OF[phone] // (2 * frames)


def _in_order(hmm: Hmm, labels: Sequence[Sequence[int]], own: Tensor, beyond: int) -> Graph:
    """A graph for each utterance: its phones, one after the other; each state is that of `own`."""
    most, device = max(map(len, labels)), own.device
    first = torch.full((len(labels), most), beyond)
    last, start, end = first.clone(), torch.full(first.shape, NEVER), torch.full(first.shape, NEVER)
    follow = torch.full((len(labels), most, most), NEVER)
    for utterance, row in enumerate(labels):
        counts = torch.tensor([phones.STATES_OF[phone] for phone in row])
        last[utterance, : len(row)] = counts.cumsum(0) - 1
        first[utterance, : len(row)] = counts.cumsum(0) - counts
        steps = torch.arange(len(row) - 1)
        follow[utterance, steps, steps + 1] = 0.0
        start[utterance, 0] = end[utterance, len(row) - 1] = 0.0
    stay = hmm.stay[own]
    parts = {"first": first, "last": last, "start": start, "follow": follow, "end": end}
    return Graph(stay=stay, leave=torch.log(-torch.expm1(stay)), **{k: part.to(device) for k, part in parts.items()})


def _check(log_posteriors: Tensor) -> None:
    if log_posteriors.ndim != 3 or log_posteriors.shape[2] != phones.N_STATES:
        raise ValueError(
            f"log probabilities must be (utterances, frames, {phones.N_STATES}), not {tuple(log_posteriors.shape)}"
        )
    if log_posteriors.isnan().any():
        raise ValueError("log probabilities hold values that are no numbers; the net they came from has diverged")


def save(path: Path, hmm: Hmm, facts: dict[str, Any] | None = None) -> None:
    """One checksummed file; `facts` are kept beside the numbers."""
    tensors = {name: getattr(hmm, name) for name in TENSORS}
    numbers = {"hmm": 1, "scale": hmm.scale, "penalty": hmm.penalty}
    checkpoint.save(path, tensors, {**(facts or {}), **numbers}, keep_previous=False)


def load(path: Path) -> Hmm:
    """What `save` wrote; ValueError where the file is missing, damaged or something else."""
    try:
        tensors, facts = checkpoint.read(path)
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if facts.get("hmm") != 1 or shapes != TENSORS:
            raise checkpoint.CheckpointError(f"{path.name} holds something else than a hidden Markov model")
    except checkpoint.CheckpointError as error:
        raise ValueError(f"{path.parent}: {error}") from None
    return Hmm(**tensors, scale=float(facts["scale"]), penalty=float(facts["penalty"]))
