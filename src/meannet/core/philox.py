"""Random numbers without a stream: Philox 4x32-10, so that every draw is a function of where it is used.

A draw is addressed by a seed (the key) and a counter (block, row, purpose and layer, update). Nothing needs saving to
resume a run, and CPU and GPU draw the same bits.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
# Initial weights drawn at once: words of many more would not fit into a cache, and those of H's nets fill gigabytes.
AT_ONCE = 1 << 20

# What a draw is for; part of its address, so that masks, batch orders and initial weights never share bits.
MASK, ORDER, INITIAL, SAMPLE, GIBBS, VIEW, ADAPT = 0, 1, 2, 3, 4, 5, 6


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit words, held in int64, for each counter of four words and key of two; all broadcast together."""
    c0, c1, c2, c3, *_ = torch.broadcast_tensors(*counter, *key)
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        # int64 products wrap, which leaves their 64 bits right; the garbage above 32 bits goes with the mask.
        c0 = (product1 >> 32).bitwise_xor_(c1).bitwise_xor_(k0).bitwise_and_(WORD)
        c2 = (product0 >> 32).bitwise_xor_(c3).bitwise_xor_(k1).bitwise_and_(WORD)
        c1, c3 = product1, product0
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1 & WORD, c2, c3 & WORD


def words(
    seeds: Tensor,
    purpose: int,
    layer: int | Tensor,
    update: int | Tensor,
    rows: range | Tensor,
    blocks: int,
    first_block: int = 0,
) -> tuple[Tensor, ...]:
    """The four words at each (net, row, block), each of shape (nets, rows, blocks); `seeds` is (nets,) int64.

    Layer, update and rows may be int64 tensors on the same device: a counter need not leave it, and a compiled caller
    is not compiled anew for each number.
    """
    device = seeds.device
    if isinstance(rows, range):
        rows = torch.arange(rows.start, rows.stop, device=device)
    full = (seeds.shape[0], rows.shape[0], blocks)
    # Masked though it is small: torch.compile would multiply a bare index as a 32-bit number, and overflow.
    block = (torch.arange(first_block, first_block + blocks, device=device) & WORD).expand(full)
    row = rows[:, None].expand(full)
    place = _word(purpose << 24 | layer, device).expand(full)
    when = _word(update, device).expand(full)
    key = (seeds & WORD)[:, None, None], (seeds >> 32)[:, None, None]
    return philox((block, row, place, when), key)


def _word(value: int | Tensor, device: torch.device) -> Tensor:
    """A number as a tensor that is made on the device: copying it there could not be captured in a CUDA graph."""
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=torch.int64, device=device)


def uniform16(
    seeds: Tensor, purpose: int, layer: int | Tensor, update: int | Tensor, rows: range | Tensor, columns: int
) -> Tensor:
    """Uniform over all of int16, (nets, rows, columns): eight to a counter, low half of a word first."""
    w0, w1, w2, w3 = words(seeds, purpose, layer, update, rows, -(-columns // 8))
    pairs = torch.stack((w0 | w1 << 32, w2 | w3 << 32), dim=-1)  # (nets, rows, blocks, 2) int64
    return pairs.view(torch.int16).flatten(2)[..., :columns]


def normal(seed: int, layer: int, count: int) -> Tensor:
    """`count` standard normal numbers in float64, by Box and Muller, two to a counter; always computed on the CPU."""
    seeds = torch.tensor([seed])
    if count <= AT_ONCE:
        return normals(seeds, INITIAL, layer, 0, range(1), count)[0, 0]
    drawn = torch.empty(count, dtype=torch.float64)
    for first in range(0, count, AT_ONCE):
        part = drawn[first : first + AT_ONCE]
        part.copy_(normals(seeds, INITIAL, layer, 0, range(1), len(part), first // 2)[0, 0])
    return drawn


def normals(
    seeds: Tensor,
    purpose: int,
    layer: int | Tensor,
    update: int | Tensor,
    rows: range | Tensor,
    columns: int,
    first_block: int = 0,
) -> Tensor:
    """Standard normal numbers in float64, (nets, rows, columns), by Box and Muller, two to a counter."""
    w0, w1, w2, w3 = words(seeds, purpose, layer, update, rows, -(-columns // 2), first_block)
    radius = (-2 * torch.log(((w0 << 20 | w1 >> 12) + 1).double() / 2**52)).sqrt()
    angle = (w2 << 20 | w3 >> 12).double() * (2 * math.pi / 2**52)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1).flatten(2)[..., :columns]


def order(seeds: Tensor, epoch: int | Tensor, cases: int, layer: int = 0) -> Tensor:
    """For each net a permutation of its training cases, (nets, cases), drawn anew each epoch.

    Pretraining names the layer that it trains, counted from 1, so that every stage has orders of its own. Channels of a
    layer's random groups (H) are put in order by it, too.
    """
    w0, w1, w2, w3 = words(seeds, ORDER, layer, epoch, range(1), -(-cases // 2))
    keys = torch.stack((w0 << 31 ^ w1, w2 << 31 ^ w3), dim=-1).flatten(1)[:, :cases]
    return keys.argsort(dim=1, stable=True)
