"""Dropout: on each presentation of each training case, every unit is omitted with its own probability (body)."""

import torch
from torch import Tensor

from meannet.core.philox import MASK, uniform16

LEVELS = 1 << 16  # rates and other probabilities are met to the nearest 1/65536


def thresholds(rates: Tensor) -> Tensor:
    """The int16 draw from which on a unit is kept; same shape as `rates`."""
    return (rates.double() * LEVELS).round().clamp(max=LEVELS - 1).sub(LEVELS // 2).to(torch.int16)


def kept(
    seeds: Tensor,
    update: int | Tensor,
    layer: int | Tensor,
    rates: Tensor,
    cases: range | Tensor,
    units: int,
    purpose: int = MASK,
) -> Tensor:
    """Which units stay, as bool (nets, cases, units), with rates (nets, units) or (nets, 1).

    A net's own seed, the update, the layer and the position fix the answer: not the device, the net's companions or
    the thread count. `cases` are the positions in the mini-batch.
    """
    draws = uniform16(seeds, purpose, layer, update, cases, units)
    return draws >= thresholds(rates)[:, None, :]
