"""Rates of omission that units adapt one by one (body): a unit is omitted less often where its presence helps."""

import torch
from torch import Tensor


class Presence:
    """How thinned networks do with each unit of a layer, added up over draws of masks."""

    def __init__(self) -> None:
        self.cases = 0
        self.total, self.there, self.times = (torch.zeros((), dtype=torch.float64) for _ in range(3))

    def add(self, present: Tensor, performance: Tensor) -> None:
        """`present` is 1 where a unit was not omitted, (nets, cases, units); `performance` is (nets, cases)."""
        present = present.to(performance.dtype)
        self.cases += performance.shape[1]
        self.total = self.total.to(performance.device) + performance.sum(1)
        self.there = self.there.to(performance.device) + torch.bmm(performance[:, None], present)[:, 0]
        self.times = self.times.to(performance.device) + present.sum(1)

    def advantages(self) -> Tensor:
        """Mean performance where a unit was present, less the mean over all, (nets, units); 0 if it never was."""
        differences = self.there / self.times.clamp_min(1) - self.total[:, None] / self.cases
        return torch.where(self.times > 0, differences, 0.0)


def adapted(rates: Tensor, advantage: Tensor, pace: float, least: float, most: float) -> Tensor:
    """Rates, (nets, units), whose log-odds have fallen by `pace` times the advantage, kept from `least` to `most`.

    A unit that is never omitted has no advantage to measure, and stays.
    """
    moved = (torch.logit(rates) - pace * advantage).sigmoid().clamp(least, most)
    return torch.where(rates > 0, moved, rates)
