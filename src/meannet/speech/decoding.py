"""From the net's probabilities to phones, and from known phones to their states: both are best paths (body)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meannet.speech import phones, viterbi
from meannet.speech.hmm import Hmm, Segment, equally, states_of
from meannet.speech.viterbi import NEVER, Graph, Paths

FRAMES = 1 << 16  # at a time, where no single utterance or phone has more


def recognise(hmm: Hmm, log_posteriors: Tensor, counts: Sequence[int]) -> list[list[Segment]]:
    """The phones of utterances whose frames stand one after another, (frames, states); `counts` has frames of each."""
    every = log_posteriors.split(list(counts))
    found: dict[int, list[Segment]] = {}
    for some in together(counts):
        lengths = [counts[k] for k in some]
        paths = decode(hmm, pad_sequence([every[k] for k in some], batch_first=True), lengths)
        found |= zip(some, segments(paths, lengths), strict=True)
    return [found[k] for k in range(len(counts))]


def together(counts: Sequence[int]) -> Iterator[list[int]]:
    """Places in `counts`, in groups about as long as each other that stay small when all are made as long."""
    order = sorted(range(len(counts)), key=lambda k: counts[k])
    while order:
        most = max(1, FRAMES // max(1, counts[order[-1]]))
        some, order = order[-most:], order[:-most]
        yield some


def decode(hmm: Hmm, log_posteriors: Tensor, lengths: Sequence[int]) -> Paths:
    """The best paths through all phones, for log probabilities (utterances, frames, states)."""
    _check(log_posteriors)
    if min(lengths, default=phones.FEWEST_FRAMES) < phones.FEWEST_FRAMES:
        raise ValueError(
            f"an utterance of {min(lengths)} frames has no path: a phone has {phones.FEWEST_FRAMES} or more; leave it "
            "out"
        )
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
    for places in together([one.stop - one.start for _, one in whole]):
        some = [whole[k] for k in places]
        lengths = [one.stop - one.start for _, one in some]
        offset = torch.arange(max(lengths), device=log_posteriors.device)
        start = torch.tensor([one.start for _, one in some], device=log_posteriors.device)
        frames = (start[:, None] + offset).clamp(max=log_posteriors.shape[1] - 1)
        rows = torch.tensor([row for row, _ in some], device=log_posteriors.device)
        paths = align(hmm, log_posteriors[rows[:, None], frames], lengths, [[one.phone] for _, one in some])
        for (row, one), states, length in zip(some, paths.states, lengths, strict=True):
            found[row][one.start : one.stop] = states[:length]
    return found


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
