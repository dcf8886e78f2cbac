"""Dropout backpropagation (body, A.1) as a generator: it yields a record per epoch; the caller tests, prints, saves."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from meannet.config import Optim
from meannet.core import metrics, philox, schedule
from meannet.core.sgd import step_size
from meannet.nn import dense
from meannet.nn.dense import Fleet

ENOUGH = 30  # presentations of cases in which a net that has not collapsed shows some activity


@dataclass
class Tally:
    """What an epoch of updates adds up to, per net; kept on the device until the epoch is over."""

    loss: Tensor  # (nets,) float64, summed over cases of the thinned networks
    errors: Tensor  # (nets,) int64
    active: Tensor  # (nets, hidden layers) bool: some unit was not zero for some case
    moved: Tensor  # (nets,) bool: some hidden weight had a gradient

    @classmethod
    def zero(cls, fleet: Fleet) -> "Tally":
        nets, layers, device = len(fleet.seeds), len(fleet.weights) - 1, fleet.device
        return cls(
            loss=torch.zeros(nets, dtype=torch.float64, device=device),
            errors=torch.zeros(nets, dtype=torch.int64, device=device),
            active=torch.zeros(nets, layers, dtype=torch.bool, device=device),
            moved=torch.zeros(nets, dtype=torch.bool, device=device),
        )


class Why(StrEnum):
    """What goes wrong with nets, in the words that files keep."""

    DIVERGED = "diverged: its loss or weights are not finite"
    SILENT = "collapsed: the layer gave zero for every case"
    STILL = "collapsed: every hidden weight's gradient was zero"


@dataclass(frozen=True)
class Fault:
    """Why a net was stopped; it keeps the state it had before that epoch."""

    net: int
    epoch: int
    why: Why
    layer: int | None
    lr: float


@dataclass(frozen=True)
class Unjudged:
    """What nets did in the last epochs, which had too few cases to tell a collapse from chance."""

    seen: int  # presentations of cases
    active: list[list[bool]]  # as in Tally
    moved: list[bool]


@dataclass(frozen=True)
class Epoch:
    """One epoch of a fleet: figures of the thinned networks, per net, as the paper plots them."""

    epoch: int  # epochs done so far
    train_loss: list[float]
    train_error: list[float]
    lr: list[float]
    momentum: float
    faults: list[Fault] = field(default_factory=list)
    unjudged: Unjudged | None = None  # with which training that goes on after this epoch must begin


class Rows(Protocol):
    """Training inputs that are made as they are asked for; a tensor (cases, inputs) is also one."""

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: Tensor, /) -> Tensor:
        """The inputs of cases (nets, cases), as (nets, cases, inputs)."""
        ...


class Engine(Protocol):
    """Runs the updates of one epoch: the plain loop below, or a fast twin of it."""

    name: str  # plain or fast
    precision: str

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        """All updates of the epoch; None when `stop` said so before its end."""


class Plain:
    """The reference: one update after another in plain PyTorch, on any device."""

    name = "plain"

    def __init__(
        self,
        fleet: Fleet,
        inputs: Rows,
        targets: Tensor,
        batch: int,
        limit: Sequence[float],
        weights: Tensor | None = None,
    ):
        self.precision = str(fleet.weights[0].dtype).removeprefix("torch.")
        self.fleet, self.inputs, self.targets, self.batch, self.weights = fleet, inputs, targets, batch, weights
        self.limit = _per_net(limit, fleet)

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        fleet, cases = self.fleet, len(self.inputs)
        order = philox.order(fleet.seeds, epoch, cases)  # (nets, cases)
        steps, tally = _per_net(step, fleet), Tally.zero(fleet)
        update = epoch * -(-cases // self.batch)
        for chosen in order.split(self.batch, dim=1):
            if stop():
                return None
            inputs, targets = self.inputs[chosen], self.targets[chosen]
            weights = None if self.weights is None else self.weights[chosen]
            keep = dense.masks(fleet, update, range(chosen.shape[1]))
            passed = dense.activities(fleet, inputs, keep)
            found = dense.deltas(fleet, passed, targets, weights)
            dense.update_(fleet, passed, found, steps, momentum, self.limit)
            count_(tally, fleet, passed, found, targets, weights)
            update += 1
        return tally


def count_(
    tally: Tally,
    fleet: Fleet,
    passed: Sequence[Tensor],
    found: Sequence[Tensor],
    targets: Tensor,
    weights: Tensor | None = None,
) -> None:
    """Add one update to the tally."""
    tally.loss += metrics.losses(passed[-1], targets, fleet.output, fleet.groups, weights)
    if fleet.output != "linear":
        tally.errors += metrics.errors(passed[-1], targets, fleet.output, fleet.groups)
    for k, (below, delta) in enumerate(zip(passed, found[:-1], strict=False)):
        if fleet.units == "rectified":
            tally.active[:, k] |= passed[k + 1].amax((1, 2)) > 0
        # A weight's gradient sums delta times activity over cases: zero when each case has only zeros in one of them.
        tally.moved |= (delta.abs().amax(2) * below.abs().amax(2)).amax(1) > 0


def train(
    fleet: Fleet,
    engine: Engine,
    cases: int,
    optim: Optim,
    lr: Sequence[float],
    *,
    start: int = 0,
    origin: int = 0,
    stopped: Sequence[int] = (),
    unjudged: Unjudged | None = None,
    stop: Callable[[], bool] = lambda: False,
    still: bool = False,
) -> Iterator[Epoch]:
    """Train from epoch `start` on, in place, yielding after every epoch; `lr` is each net's starting learning rate.

    The schedules begin at epoch `origin`: where nets that were trained before are trained anew, it is their `start`.
    A net whose loss is not finite, or that has collapsed, goes back to its state before that epoch and stays there,
    while the others go on. When `stop` says so in the middle of an epoch, every net goes back to the end of the last
    whole one, and the generator ends; so it is when an exception, such as KeyboardInterrupt, ends the epoch. What goes
    on after some epoch takes that epoch's `unjudged`, so that a collapse is found when it is without a stop. With
    `still` no input ever varies: that first hidden weights have no gradient is then no collapse.
    """
    state = list(fleet.state().values())
    good = [tensor.clone() for tensor in state]
    out = set(stopped)
    for epoch in range(start, optim.epochs):
        if len(out) == len(fleet.seeds):
            return
        momentum = schedule.momentum(
            epoch - origin, start=optim.momentum_start, end=optim.momentum_end, ramp=optim.momentum_epochs
        )
        rates = [schedule.learning_rate(epoch - origin, start=one, decay=optim.decay, cuts=optim.cuts) for one in lr]
        try:
            tally = engine.epoch(epoch, [step_size(optim.rule, one, momentum) for one in rates], momentum, stop)
        except BaseException:
            torch._foreach_copy_(state, good)
            raise
        if tally is None:
            torch._foreach_copy_(state, good)
            return
        seen = cases
        if unjudged:  # one or two cases leave a layer silent by chance
            seen += unjudged.seen
            tally.active |= torch.tensor(unjudged.active, dtype=torch.bool, device=fleet.device)
            tally.moved |= torch.tensor(unjudged.moved, device=fleet.device)
        tally.moved |= still
        found = find_faults(fleet, tally, epoch + 1, rates, collapsed=seen >= ENOUGH)
        unjudged = None if seen >= ENOUGH else Unjudged(seen, tally.active.tolist(), tally.moved.tolist())
        faults = [fault for fault in found if fault.net not in out]
        out |= {fault.net for fault in faults}
        for net in out:
            for tensor, last in zip(state, good, strict=True):
                tensor[net] = last[net]
        torch._foreach_copy_(good, state)
        yield Epoch(
            epoch=epoch + 1,
            train_loss=(tally.loss / cases).tolist(),
            train_error=(tally.errors.double() / cases).tolist(),
            lr=rates,
            momentum=momentum,
            faults=faults,
            unjudged=unjudged,
        )


def find_faults(fleet: Fleet, tally: Tally, epoch: int, lr: Sequence[float], *, collapsed: bool = True) -> list[Fault]:
    """Nets that diverged or, where that is asked, collapsed, with the layer where it shows (1 is the first hidden)."""
    parameters = zip(fleet.weights, fleet.biases, strict=True)
    finite = torch.stack([w.isfinite().all(2).all(1) & b.isfinite().all(1) for w, b in parameters], 1)  # (nets, layers)
    finite_loss, finite = tally.loss.isfinite().tolist(), finite.tolist()
    active, moved = tally.active.tolist(), tally.moved.tolist()
    found = []
    for net in range(len(fleet.seeds)):
        if not (finite_loss[net] and all(finite[net])):
            layer = finite[net].index(False) + 1 if not all(finite[net]) else None
            found.append(Fault(net, epoch, Why.DIVERGED, layer, lr[net]))
        elif not collapsed:
            continue
        elif fleet.units == "rectified" and not all(active[net]):
            layer = active[net].index(False) + 1
            found.append(Fault(net, epoch, Why.SILENT, layer, lr[net]))
        elif active[net] and not moved[net]:
            found.append(Fault(net, epoch, Why.STILL, None, lr[net]))
    return found


def _per_net(values: Sequence[float], fleet: Fleet) -> Tensor:
    """(nets, 1, 1) in the weights' precision."""
    return torch.tensor(list(values), dtype=fleet.weights[0].dtype, device=fleet.device)[:, None, None]
