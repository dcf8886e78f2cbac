"""The best sequence of HMM states, exactly, for many utterances at once (body: the decoder after the net).

A phone is a row of states without skips. It is entered in its first state, from the last state of any phone. So a step
of one frame is a maximum over pairs of phones and a shift within phones, not a maximum over pairs of states.

After every frame the best score is taken off all of them and added up on its own. Else scores would grow with a
recording, and in one of an hour float32 could no longer tell phones apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

NEVER = float("-inf")
AT_A_TIME = 96  # utterances


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Log probabilities of going on, with a leading axis of 1 or of utterances.

    States stand phone by phone. An utterance with fewer phones than others has phones at its end that are never
    entered; their `first` and `last` are a state beyond all others.
    """

    first: Tensor  # (…, phones), the state in which a phone begins
    last: Tensor  # (…, phones)
    stay: Tensor  # (…, states)
    leave: Tensor  # (…, states), for the next state or for another phone
    start: Tensor  # (…, phones), of the first phone
    follow: Tensor  # (…, from, to)
    end: Tensor  # (…, phones), of ending after it


@dataclass(frozen=True)
class Paths:
    """The best path of each utterance and its score, on the CPU; beyond an utterance's end states are -1."""

    states: Tensor  # (utterances, frames)
    begins: Tensor  # (utterances, frames): a phone is entered here
    scores: Tensor  # (utterances,)


def one_graph(states_of: Sequence[int], stay: Tensor, start: Tensor, follow: Tensor, end: Tensor) -> Graph:
    """One graph for all utterances, of phones with this many states each."""
    last = torch.tensor(list(accumulate(states_of)), device=stay.device) - 1
    first = last - torch.tensor(states_of, device=stay.device) + 1
    leave = torch.log(-torch.expm1(stay))
    parts = {"stay": stay, "leave": leave, "start": start, "follow": follow, "end": end, "first": first, "last": last}
    return Graph(**{name: part[None] for name, part in parts.items()})


@torch.no_grad()
def best_paths(emissions: Tensor, lengths: Sequence[int], graph: Graph) -> Paths:
    """The best paths through `graph`; `emissions` are scores of states by frame, (utterances, frames, states).

    Where no path has a score above minus infinity, the score is that, and the path means nothing.
    """
    if len(lengths) != len(emissions) or not all(0 < length <= emissions.shape[1] for length in lengths):
        raise ValueError(f"{len(emissions)} utterances of 1 to {emissions.shape[1]} frames, but lengths {lengths}")
    if emissions.is_cuda:
        try:
            from meannet.fast import viterbi as fast
        except ImportError:  # no Triton
            return plain_best_paths(emissions, lengths, graph)
        if graph.first.shape[1] <= fast.MOST_PHONES and int((graph.last - graph.first).max()) < fast.MOST_STATES:
            return fast.best_paths(emissions, lengths, graph)
    return plain_best_paths(emissions, lengths, graph)


def plain_best_paths(emissions: Tensor, lengths: Sequence[int], graph: Graph) -> Paths:
    """`best_paths` in NumPy, which fast/viterbi.py is tested against.

    NumPy does little work on few numbers sooner than torch. With more utterances at a time the scores of all pairs of
    phones leave the processor's cache.
    """
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])  # the longest first: those that go on are a prefix
    states = torch.full(emissions.shape[:2], -1)
    begins = torch.zeros(states.shape, dtype=torch.bool)
    scores = torch.empty(len(order), dtype=emissions.dtype)
    for begin in range(0, len(order), AT_A_TIME):
        some = torch.tensor(order[begin : begin + AT_A_TIME])
        sizes = [lengths[k] for k in some.tolist()]
        frames = emissions[some.to(emissions.device), : sizes[0]].transpose(0, 1).cpu().numpy()
        active = [sum(size > frame for size in sizes) for frame in range(sizes[0])]
        shared = len(graph.first) == 1
        parts = {name: part if shared else part[some.to(part.device)] for name, part in vars(graph).items()}
        own = {name: np.broadcast_to(p.cpu().numpy(), (len(some), *p.shape[1:])) for name, p in parts.items()}
        ends, taken_off, entered, leaving = _forward(frames, active, own, shared)
        path = _backward(ends, entered, leaving, active, own)
        for whole, part in zip((states, begins), path[:2], strict=True):
            whole[some, : sizes[0]] = torch.from_numpy(part).T
        scores[some] = torch.from_numpy(path[2] + taken_off).to(scores.dtype)
    return Paths(states, begins, scores)


def _forward(
    frames: np.ndarray, active: Sequence[int], graph: dict[str, np.ndarray], shared: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores of the best paths that end in each state, (utterances, states), what was taken off, and, by frame:

    whether from another state, (frames, utterances, states), and the scores with which each phone can be left,
    (frames, from, utterances). A maximum along the first axis is the fastest.
    """
    rows = np.arange(frames.shape[1])[:, None]

    def of(name: str, n: int) -> tuple[Any, np.ndarray]:
        """Where the first n utterances have these states; one index for all is faster than one for each."""
        return (slice(None), graph[name][0]) if shared else (rows[:n], graph[name][:n])

    scores = np.full_like(frames[0], NEVER)
    scores[of("first", len(rows))] = graph["start"]
    scores += frames[0]
    taken_off = np.zeros(len(rows))
    n_phones = graph["first"].shape[1]
    entered = np.zeros(frames.shape, bool)
    leaving = np.empty((len(frames), n_phones, len(rows)), frames.dtype)
    follow = graph["follow"].transpose(1, 0, 2)
    moved, left, stayed = (np.full_like(scores, NEVER) for _ in range(3))
    pairs = np.empty((n_phones, len(rows), n_phones), frames.dtype)
    for frame in range(1, len(frames)):
        n = active[frame]
        now, new = scores[:n], moved[:n]
        np.add(now, graph["leave"][:n], out=left[:n])
        new[:, 1:] = left[:n, :-1]
        leaving[frame, :, :n] = left[:n][of("last", n)].T
        np.add(leaving[frame, :, :n, None], follow[:, :n], out=pairs[:, :n])
        new[of("first", n)] = pairs[:, :n].max(0)
        np.add(now, graph["stay"][:n], out=stayed[:n])
        np.greater(new, stayed[:n], out=entered[frame, :n])
        np.maximum(new, stayed[:n], out=now)
        now += frames[frame, :n]
        best = now.max(1)
        best[best == NEVER] = 0.0
        now -= best[:, None]
        taken_off[:n] += best
    return scores, taken_off, entered, leaving


def _backward(
    scores: np.ndarray, entered: np.ndarray, leaving: np.ndarray, active: Sequence[int], graph: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States and beginnings of phones, (frames, utterances), and the score of each utterance's best path."""
    every, first, last = np.arange(len(scores)), graph["first"], graph["last"]
    ending = (scores + graph["leave"])[every[:, None], last] + graph["end"]
    phone = ending.argmax(1)
    state = last[every, phone]
    states = np.full((len(entered), len(scores)), -1)
    begins = np.zeros(states.shape, bool)
    for frame in range(len(entered) - 1, 0, -1):
        rows = every[: active[frame]]
        here, of = state[rows], phone[rows]
        states[frame, rows] = here
        new = entered[frame, rows, here]
        begin = begins[frame, rows] = new & (here == first[rows, of])
        state[rows] -= new
        (entering,) = begin.nonzero()
        if len(entering):
            into = graph["follow"][entering, :, of[entering]]
            before = (leaving[frame][:, entering].T + into).argmax(1)
            phone[entering] = before
            state[entering] = last[entering, before]
    states[0], begins[0] = state, state == first[every, phone]
    return states, begins, ending.max(1)
