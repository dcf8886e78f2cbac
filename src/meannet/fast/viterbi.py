"""GPU: the best paths of speech/viterbi.py in one Triton kernel, a program an utterance, in the same sums.

A program holds the scores of all states by their place within phones, and every step from one phone to another.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from meannet.speech.viterbi import Graph, Paths

MOST_STATES, MOST_PHONES = 5, 128  # of a phone; of a graph


def best_paths(emissions: Tensor, lengths: Sequence[int], graph: Graph) -> Paths:
    """As viterbi.best_paths, on the device of the emissions; the result is on the CPU."""
    utterances, n_frames, n_states = emissions.shape
    n_phones, device = graph.first.shape[1], emissions.device
    width = max(16, triton.next_power_of_2(n_phones))
    sizes = torch.tensor(lengths, dtype=torch.int32, device=device)
    back = torch.empty(utterances, n_frames, width, dtype=torch.int32, device=device)
    states = torch.full((utterances, n_frames), -1, dtype=torch.int16, device=device)
    begins = torch.zeros(utterances, n_frames, dtype=torch.bool, device=device)
    totals = emissions.new_empty(utterances)
    parts = (part.contiguous() for part in vars(graph).values())
    search[(utterances,)](
        emissions.contiguous(), sizes, *parts, back, states, begins.view(torch.uint8), totals,
        n_frames, n_states, n_phones, int(len(graph.first) > 1), PHONES=width, num_warps=4 if width <= 64 else 8,
    )  # fmt: skip
    return Paths(states.cpu().long(), begins.cpu(), totals.cpu())


@triton.jit
def _either(count, a0, a1, a2, a3, a4):
    """Of five numbers for each phone, that of its last state."""
    return tl.where(count == 1, a0, tl.where(count == 2, a1, tl.where(count == 3, a2, tl.where(count == 4, a3, a4))))


@triton.jit(do_not_specialize=["n_frames", "n_states", "n_phones", "own"])
def search(
    emissions, lengths, first, last, stay, leave, start, follow, end, back, states, begins, totals,
    n_frames, n_states, n_phones, own, PHONES: tl.constexpr,
):  # fmt: skip
    """The best path of one utterance; `own` is 1 where each has a graph of its own, else 0.

    `back` gets, for each frame and phone, the phone it would be entered from, and above these 8 bits a bit for each of
    its states: whether the best path there comes from another state.
    """
    never: tl.constexpr = float("-inf")
    utterance = tl.program_id(0).to(tl.int64)
    graph = utterance * own
    phone = tl.arange(0, PHONES)
    real = phone < n_phones
    begin = tl.load(first + graph * n_phones + phone, mask=real, other=0)
    count = tl.load(last + graph * n_phones + phone, mask=real, other=0) - begin + 1
    has0, has1, has2, has3, has4 = real, real & (count > 1), real & (count > 2), real & (count > 3), real & (count > 4)
    at = stay + graph * n_states + begin
    stay0, stay1, stay2, stay3, stay4 = (
        tl.load(at, mask=has0, other=0.0), tl.load(at + 1, mask=has1, other=0.0), tl.load(at + 2, mask=has2, other=0.0),
        tl.load(at + 3, mask=has3, other=0.0), tl.load(at + 4, mask=has4, other=0.0),
    )  # fmt: skip
    at = leave + graph * n_states + begin
    leave0, leave1, leave2, leave3, leave4 = (
        tl.load(at, mask=has0, other=0.0), tl.load(at + 1, mask=has1, other=0.0), tl.load(at + 2, mask=has2, other=0.0),
        tl.load(at + 3, mask=has3, other=0.0), tl.load(at + 4, mask=has4, other=0.0),
    )  # fmt: skip
    pair = (graph * n_phones + phone[:, None]) * n_phones + phone[None, :]
    steps = tl.load(follow + pair, mask=real[:, None] & real[None, :], other=never)
    at = emissions + utterance * n_frames * n_states + begin
    d0 = tl.load(start + graph * n_phones + phone, mask=real, other=never) + tl.load(at, mask=has0, other=never)
    d1 = tl.full((PHONES,), never, d0.dtype)
    d2, d3, d4 = d1, d1, d1
    taken_off = tl.full((), 0.0, tl.float64)
    length = tl.load(lengths + utterance)
    pointers = back + utterance * n_frames * PHONES
    frame = 1
    while frame < length:  # Triton's interpreter has no range over a number that was loaded
        at += n_states
        e0, e1 = tl.load(at, mask=has0, other=never), tl.load(at + 1, mask=has1, other=never)
        e2, e3 = tl.load(at + 2, mask=has2, other=never), tl.load(at + 3, mask=has3, other=never)
        e4 = tl.load(at + 4, mask=has4, other=never)
        l0, l1, l2, l3, l4 = d0 + leave0, d1 + leave1, d2 + leave2, d3 + leave3, d4 + leave4
        best, origin = tl.max(_either(count, l0, l1, l2, l3, l4)[:, None] + steps, 0, return_indices=True)
        d0, d1, d2, d3, d4 = d0 + stay0, d1 + stay1, d2 + stay2, d3 + stay3, d4 + stay4
        word = origin.to(tl.int32) | ((best > d0).to(tl.int32) << 8) | ((l0 > d1).to(tl.int32) << 9)
        word |= ((l1 > d2).to(tl.int32) << 10) | ((l2 > d3).to(tl.int32) << 11) | ((l3 > d4).to(tl.int32) << 12)
        tl.store(pointers + frame * PHONES + phone, word)
        d0, d1, d2 = tl.maximum(best, d0) + e0, tl.maximum(l0, d1) + e1, tl.maximum(l1, d2) + e2
        d3, d4 = tl.maximum(l2, d3) + e3, tl.maximum(l3, d4) + e4
        top = tl.max(tl.maximum(tl.maximum(tl.maximum(d0, d1), tl.maximum(d2, d3)), d4), 0)
        top = tl.where(top > never, top, 0.0)
        d0, d1, d2, d3, d4 = d0 - top, d1 - top, d2 - top, d3 - top, d4 - top
        taken_off += top.to(tl.float64)
        frame += 1
    leaving = _either(count, d0 + leave0, d1 + leave1, d2 + leave2, d3 + leave3, d4 + leave4)
    leaving += tl.load(end + graph * n_phones + phone, mask=real, other=never)
    total, here = tl.max(tl.where(real, leaving, never), 0, return_indices=True)
    tl.store(totals + utterance, (total + taken_off).to(totals.dtype.element_ty))
    tl.debug_barrier()  # what other threads of this program wrote is read now
    first += graph * n_phones
    last += graph * n_phones
    state = tl.load(last + here)
    frame = length - 1
    while frame >= 0:
        tl.store(states + utterance * n_frames + frame, state.to(tl.int16))
        place = state - tl.load(first + here)
        word = tl.load(pointers + frame * PHONES + here, mask=frame > 0, other=0)
        new = (word >> (8 + place).to(tl.int32)) & 1
        enters = (place == 0) & ((new == 1) | (frame == 0))
        tl.store(begins + utterance * n_frames + frame, enters.to(tl.uint8))
        here = tl.where(enters, word & 255, here)
        state = tl.where(enters, tl.load(last + here), state - new)
        frame -= 1
