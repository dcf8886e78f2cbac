"""The best sequence of HMM states, exactly, for many utterances at once (body: the decoder after the net).

A phone is a row of states without skips. It is entered in its first state, from the last state of any phone. So a step
of one frame is a maximum over pairs of phones and a shift within phones, not a maximum over pairs of states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
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
    """The best path of each utterance and its score; beyond an utterance's end states are -1."""

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
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])  # the longest first: those that go on are a prefix
    place = torch.tensor(order, device=emissions.device)
    graph = Graph(**{name: _in_order(part, place) for name, part in vars(graph).items()})
    active = [sum(length > frame for length in lengths) for frame in range(max(lengths))]
    frames = emissions.index_select(0, place).transpose(0, 1)
    scores, entered, origins = _forward(frames, active, graph)
    states, begins, total = _backward(scores, entered, origins, active, graph)
    back = torch.empty_like(place).scatter_(0, place, torch.arange(len(place), device=place.device))
    return Paths(states[:, back].T, begins[:, back].T, total[back])


def _in_order(part: Tensor, place: Tensor) -> Tensor:
    return part.expand(len(place), *part.shape[1:]) if len(part) == 1 else part[place]


def _forward(frames: Tensor, active: Sequence[int], graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the best paths that end in each state after the last frame; where they came from, frame by frame."""
    n_frames, n_phones, n_states = len(active), graph.first.shape[1], frames.shape[2]
    scores = torch.full_like(frames[0], NEVER)
    scores.scatter_(1, graph.first, graph.start)
    scores += frames[0]
    entered = torch.zeros(n_frames, *scores.shape, dtype=torch.bool, device=frames.device)  # not the same state before
    origins = torch.zeros(n_frames, len(scores), n_phones, dtype=torch.int16, device=frames.device)
    moved = torch.full_like(scores, NEVER)
    for frame in range(1, n_frames):
        go = slice(active[frame])
        now, first, last = scores[go], graph.first[go], graph.last[go]
        leaving = now + graph.leave[go]
        moved[go, 1:] = leaving[:, : n_states - 1]
        best, origin = (leaving.gather(1, last)[:, :, None] + graph.follow[go]).max(1)
        moved[go].scatter_(1, first, best)
        stayed = now + graph.stay[go]
        torch.gt(moved[go], stayed, out=entered[frame, go])
        origins[frame, go] = origin.to(torch.int16)
        torch.maximum(moved[go], stayed, out=now)
        now += frames[frame, go]
    return scores, entered, origins


def _backward(
    scores: Tensor, entered: Tensor, origins: Tensor, active: Sequence[int], graph: Graph
) -> tuple[Tensor, Tensor, Tensor]:
    """States and beginnings of phones, (frames, utterances), and the score of each utterance's best path."""
    ending = (scores + graph.leave).gather(1, graph.last) + graph.end
    total, phone = ending.max(1)
    state = graph.last.gather(1, phone[:, None])
    phone = phone[:, None]
    states = torch.full((len(active), len(scores)), -1, device=scores.device)
    begins = torch.zeros(states.shape, dtype=torch.bool, device=scores.device)
    for frame in range(len(active) - 1, -1, -1):
        go = slice(active[frame])
        here, of = state[go], phone[go]
        states[frame, go] = here[:, 0]
        at_first = here == graph.first[go].gather(1, of)
        new = entered[frame, go].gather(1, here)
        begin = at_first & new if frame else at_first
        begins[frame, go] = begin[:, 0]
        before = origins[frame, go].gather(1, of).long()
        of = torch.where(begin, before, of)
        state[go] = torch.where(begin, graph.last[go].gather(1, of), here - new.long())
        phone[go] = of
    return states, begins, total
