"""Rates of omission that units adapt one by one (body): a unit is omitted less often where its presence helps."""

import torch
from torch import Tensor


def advantages(present: Tensor, performance: Tensor) -> Tensor:
    """How much better thinned networks do on average where a unit is present than over all; (nets, units).

    `present` is 1 where a unit was not omitted, (nets, cases, units), `performance` of each of these thinned networks
    is (nets, cases). A unit that is present nowhere has no advantage.
    """
    present = present.to(performance.dtype)
    differences = performance - performance.mean(1, keepdim=True)
    return (present * differences[..., None]).sum(1) / present.sum(1).clamp_min(1)


def adapted(rates: Tensor, advantage: Tensor, pace: float, least: float, most: float) -> Tensor:
    """Rates, (nets, units), whose log-odds have fallen by `pace` times the advantage, kept from `least` to `most`.

    A unit that is never omitted has no advantage to measure, and stays.
    """
    moved = (torch.logit(rates) - pace * advantage).sigmoid().clamp(least, most)
    return torch.where(rates > 0, moved, rates)
