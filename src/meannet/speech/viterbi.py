"""The best sequence of HMM states, exactly, for many utterances at once (body: the decoder after the net).

A phone is a row of states without skips. It is entered in its first state, from the last state of any phone. So a step
of one frame is a maximum over pairs of phones and a shift within phones, not a maximum over pairs of states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

NEVER = float("-inf")


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
    """`best_paths` in torch, which fast/viterbi.py is tested against."""
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])  # the longest first: those that go on are a prefix
    place = torch.tensor(order, device=emissions.device)
    graph = Graph(**{name: _in_order(part, place) for name, part in vars(graph).items()})
    active = [sum(length > frame for length in lengths) for frame in range(max(lengths))]
    frames = emissions.index_select(0, place).transpose(0, 1)
    scores, entered, leaving = _forward(frames, active, graph)
    states, begins, total = _backward(scores, entered, leaving, active, graph)
    back = torch.tensor(order).argsort()
    beyond = (0, 0, 0, emissions.shape[1] - len(active))
    states, begins = F.pad(states, beyond, value=-1), F.pad(begins, beyond)
    return Paths(states[:, back].T, begins[:, back].T, total[back])


def _in_order(part: Tensor, place: Tensor) -> Tensor:
    return part.expand(len(place), *part.shape[1:]) if len(part) == 1 else part[place]


def _forward(frames: Tensor, active: Sequence[int], graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the best paths that end in each state, (utterances, states), and how they came there, by frame:

    whether from another state, (frames, utterances, states), and the scores with which each phone can be left,
    (frames, from, utterances). A maximum along the first axis is ten times as fast as one along others.
    """
    scores = torch.full_like(frames[0], NEVER).scatter_(1, graph.first, graph.start) + frames[0]
    entered = torch.zeros(len(active), *scores.shape, dtype=torch.bool, device=frames.device)
    leaving = frames.new_empty(len(active), graph.first.shape[1], len(scores))
    follow = graph.follow.transpose(0, 1)
    moved = torch.full_like(scores, NEVER)
    for frame in range(1, len(active)):
        go = slice(active[frame])
        now, new = scores[go], moved[go]
        left = now + graph.leave[go]
        new[:, 1:] = left[:, :-1]
        leaving[frame, :, go] = left.gather(1, graph.last[go]).T
        new.scatter_(1, graph.first[go], (leaving[frame, :, go, None] + follow[:, go]).amax(0))
        stayed = now + graph.stay[go]
        torch.gt(new, stayed, out=entered[frame, go])
        torch.maximum(new, stayed, out=now)
        now += frames[frame, go]
    return scores, entered, leaving


def _backward(
    scores: Tensor, entered: Tensor, leaving: Tensor, active: Sequence[int], graph: Graph
) -> tuple[Tensor, Tensor, Tensor]:
    """States and beginnings of phones, (frames, utterances), and the score of each utterance's best path.

    In NumPy, which does little work on few numbers sooner than torch.
    """
    total, ended = ((scores + graph.leave).gather(1, graph.last) + graph.end).max(1)
    first, last, follow, came, left = (
        part.cpu().numpy() for part in (graph.first, graph.last, graph.follow, entered, leaving)
    )
    every, phone = np.arange(len(scores)), ended.cpu().numpy()
    state = last[every, phone]
    states = np.full((len(active), len(scores)), -1)
    begins = np.zeros(states.shape, bool)
    for frame in range(len(active) - 1, 0, -1):
        rows = every[: active[frame]]
        here, of = state[rows], phone[rows]
        states[frame, rows] = here
        new = came[frame, rows, here]
        begin = begins[frame, rows] = new & (here == first[rows, of])
        state[rows] -= new
        (entering,) = begin.nonzero()
        if len(entering):
            before = (left[frame][:, entering] + follow[entering, :, of[entering]].T).argmax(0)
            phone[entering] = before
            state[entering] = last[entering, before]
    states[0], begins[0] = state, state == first[every, phone]
    return torch.from_numpy(states), torch.from_numpy(begins), total.cpu()
