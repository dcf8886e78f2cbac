"""Dropout backpropagation in which units adapt their rates of omission on validation cases (body)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from meannet.config import Adapt
from meannet.core.philox import ADAPT
from meannet.core.rates import Presence, adapted
from meannet.data import Cases
from meannet.nn import dense
from meannet.nn.dense import Fleet
from meannet.train import Engine, Tally


def apart(cases: Cases, adapt: Adapt) -> tuple[Cases, Cases]:
    """Cases to learn from, and the last ones, on which performance is judged."""
    if not isinstance(cases.inputs, Tensor):
        raise ValueError("adapt is for cases that are dense numbers; leave it out for these")
    if not adapt.cases < len(cases.targets):
        raise ValueError(f"adapt.cases must be below the {len(cases.targets)} training cases, not {adapt.cases}")
    kept = len(cases.targets) - adapt.cases
    return Cases(cases.inputs[:kept], cases.targets[:kept]), Cases(cases.inputs[kept:], cases.targets[kept:])


class Adapting:
    """An engine around another: after each epoch it moves the rates of those nets that adapt them."""

    def __init__(self, engine: Engine, fleet: Fleet, cases: Cases, settings: Adapt, which: Sequence[bool]):
        self.name, self.precision = engine.name, engine.precision
        self.engine, self.fleet, self.cases, self.settings, self.which = engine, fleet, cases, settings, which

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        tally = self.engine.epoch(epoch, step, momentum, stop)
        if tally is not None and epoch >= self.settings.start:
            adapt_(self.fleet, self.cases, epoch, self.settings, self.which)
        return tally


@torch.no_grad()
def adapt_(fleet: Fleet, cases: Cases, epoch: int, settings: Adapt, which: Sequence[bool]) -> None:
    """Draw thinned networks for each case, and move the rates of units by how much better those do that have them."""
    answers = cases.targets[None, :, None].expand(len(fleet.seeds), -1, 1)
    layers = [Presence() for _ in fleet.rates]
    for sample in range(settings.samples):
        keep = dense.masks(fleet, epoch * settings.samples + sample, range(len(cases.targets)), ADAPT)
        outputs = dense.activities(fleet, cases.inputs[None], keep)[-1].double()
        performance = outputs.log_softmax(-1).gather(-1, answers)[..., 0].clamp_min(settings.worst)  # (nets, cases)
        for layer, present in zip(layers, keep, strict=True):
            if present is not None:
                layer.add(present, performance)
    chosen = torch.tensor(list(which), device=fleet.device)[:, None]
    for rate, layer in zip(fleet.rates, layers, strict=True):
        if rate is not None:
            moved = adapted(rate, layer.advantages(), settings.pace, settings.least, settings.most)
            rate.copy_(torch.where(chosen, moved, rate))
