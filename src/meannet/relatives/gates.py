"""Rates as a learned function of the input, which the body suggests for data with fairly different regimes.

Each hidden unit has a gate, which sees the input and says with what probability the unit is kept for this case. Tried
on the digits, and on digits whose labels are permuted in one of several ways that extra inputs name:
`python -m meannet.relatives gates`. Learning rates are chosen on held-out cases with nets of their own; then every way
is judged on the test cases. Nets of a seed have the same initial weights, orders of cases and draws, whatever the way.
"""

import statistics
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from meannet.core import metrics, philox, schedule
from meannet.core.dropout import thresholds
from meannet.core.sgd import step_size
from meannet.data import Cases
from meannet.nn import dense
from meannet.nn.dense import Fleet

HIDDEN, EPOCHS, BATCH, LIMIT, CLASSES = 200, 200, 50, 15.0, 10
LR_END, MOMENTUM = 0.01, (0.5, 0.95)  # of DropoutClassifier: the share of the learning rate at the end, start and end
LR, PACES = (3.0, 6.0, 10.0, 20.0), (0.1, 1.0, 10.0, 100.0)  # to choose from; a gate learns so many times as fast
SEEDS, TRIED, HELD_OUT_SEED = 10, 5, 10_000  # nets of a way that are judged, and by which a setting is chosen
REGIMES, REGIME_SEED = 4, 2012


def centred(train: Cases, judged: Cases) -> tuple[Cases, Cases]:
    """Inputs less their mean over training cases; gates of raw pixels hardly come to differ from case to case."""
    mean = train.inputs.mean(0)
    return Cases(train.inputs - mean, train.targets), Cases(judged.inputs - mean, judged.targets)


def with_regimes(train: Cases, judged: Cases, regimes: int = REGIMES) -> tuple[Cases, Cases]:
    """The same pictures, each in a regime drawn for it, which an extra input names and which permutes the labels."""
    random = np.random.default_rng(REGIME_SEED)
    permuted = torch.from_numpy(np.stack([random.permutation(CLASSES) for _ in range(regimes)]))
    made = []
    for cases in (train, judged):
        regime = torch.from_numpy(random.integers(regimes, size=len(cases.targets)))
        inputs = torch.cat((cases.inputs, F.one_hot(regime, regimes).to(cases.inputs.dtype)), 1)
        made.append(Cases(inputs, permuted[regime, cases.targets]))
    return centred(*made)


class Way(NamedTuple):
    """How a hidden layer is thinned: whether masks are drawn, and how gates learn where there are any."""

    drawn: bool
    gates: str | None = None


WAYS = {
    "none omitted": Way(False),
    "rate 0.5": Way(True),
    "gates, straight-through": Way(True, "straight-through"),
    "gates, antithetic": Way(True, "antithetic"),
    "gates, none omitted": Way(False, "straight-through"),  # which is exact where the probability is itself the mask
}
DATA = {"digits": centred, f"digits in {REGIMES} regimes": with_regimes}


def compare(
    held_out: tuple[Cases, Cases],
    judged: tuple[Cases, Cases],
    say: Callable[[str], None],
    *,
    seeds: int = SEEDS,
    tried: int = TRIED,
    **settings: int,
) -> list[dict[str, Any]]:
    """A row a data set and way: errors of the mean networks on the judged cases, a figure a seed; what gates do."""
    rows = []
    for (data, prepared), (name, way) in product(DATA.items(), WAYS.items()):
        choices = list(product(LR, PACES if way.gates else (1.0,)))
        nets = [(HELD_OUT_SEED + seed, *choice) for choice in choices for seed in range(tried)]
        cases, others = prepared(*held_out)
        errors = np.array(_errors(train(cases, way, nets, **settings), others, way)).reshape(-1, tried)
        lr, pace = choices[int(errors.mean(1).argmin())]
        cases, others = prepared(*judged)
        trained = train(cases, way, [(seed, lr, pace) for seed in range(seeds)], **settings)
        found = _errors(trained, others, way)
        rows.append({"data": data, "way": name, "lr": lr, "errors": found, "n_test": len(others.targets)})
        if way.gates:
            keep = keeping(trained[1], others.inputs[None], way).sigmoid()  # (nets, cases, hidden)
            rows[-1] |= {"pace": pace, "kept": keep.mean().item(), "kept_sd": keep.std(1).mean().item()}
        say(f"{data}, {name}, lr {lr:g}: {statistics.fmean(found):.1f} errors")
    return rows


def train(
    cases: Cases,
    way: Way,
    chosen: Sequence[tuple[int, float, float]],
    *,
    hidden: int = HIDDEN,
    epochs: int = EPOCHS,
    batch: int = BATCH,
) -> tuple[Fleet, Fleet]:
    """Nets and their gates, side by side, for each seed, learning rate and pace of the gates; A.1's rule and bound."""
    seeds, lr, pace = zip(*chosen, strict=True)
    nets, gates = initial(cases.inputs.shape[1], hidden, seeds)
    limit, update = torch.tensor(LIMIT), 0
    for epoch in range(epochs):
        momentum = schedule.momentum(epoch, start=MOMENTUM[0], end=MOMENTUM[1], ramp=-(-epochs // 4))
        now = schedule.learning_rate(epoch, start=1.0, decay=LR_END ** (1 / epochs))
        step = torch.tensor(lr)[:, None, None] * step_size("a1", now, momentum)
        for shown in philox.order(nets.seeds, epoch, len(cases.targets)).split(batch, dim=1):
            inputs, places = cases.inputs[shown], range(shown.shape[1])
            draws = philox.uniform16(nets.seeds, philox.MASK, 1, update, places, hidden)
            logits = keeping(gates, inputs, way)
            passed, found, gate = deltas(nets, inputs, cases.targets[shown], logits, draws, way)
            dense.update_(nets, passed, found, step, momentum, limit)
            if way.gates:
                dense.update_(gates, [inputs], [gate], step * torch.tensor(pace)[:, None, None], momentum, limit)
            update += 1
    return nets, gates


def initial(
    inputs: int, hidden: int, seeds: Sequence[int], classes: int = CLASSES, dtype: torch.dtype = torch.float32
) -> tuple[Fleet, Fleet]:
    """Nets with one hidden layer, and as gates nets with none, whose weights start at 0: at first all rates are 0.5."""
    all_kept = torch.zeros(1, 1)
    nets = dense.initial_fleet((inputs, hidden, classes), seeds, [all_kept] * 2, units="rectified", dtype=dtype)
    gates = dense.initial_fleet(
        (inputs, hidden), seeds, [all_kept], units="rectified", output="logistic", sd=0.0, dtype=dtype
    )
    return nets, gates


def keeping(gates: Fleet, inputs: Tensor, way: Way) -> Tensor:
    """Log-odds of keeping each hidden unit, (nets, cases, hidden); infinite where none is ever omitted."""
    logits = dense.activities(gates, inputs, [None])[-1]
    return logits if way.drawn or way.gates else torch.full_like(logits, torch.inf)


def masks(draws: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Which units uniform int16 draws keep, and which their mirror images keep, as probable each as the other."""
    least = thresholds((-logits).sigmoid())
    return draws >= least, ~draws >= least


def passed_on(nets: Fleet, inputs: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Activities of the hidden units before they are multiplied by `keep`, and the outputs from these products."""
    inputs = inputs.expand(len(keep), -1, -1)
    whole = torch.baddbmm(nets.biases[0][:, None], inputs, nets.weights[0].mT).relu_()
    return whole, torch.baddbmm(nets.biases[1][:, None], whole * keep, nets.weights[1].mT)


def mean_outputs(nets: Fleet, gates: Fleet, inputs: Tensor, way: Way) -> Tensor:
    """Of the mean network, before the softmax: every activity times the probability that it is kept for this case."""
    return passed_on(nets, inputs, keeping(gates, inputs, way).sigmoid())[1]


def deltas(
    nets: Fleet, inputs: Tensor, targets: Tensor, logits: Tensor, draws: Tensor, way: Way
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """What layers pass on, derivatives of the mean loss by total inputs of hidden units and outputs, and by `logits`.

    The straight-through derivative takes a unit's mask for its probability. It has little variance, and a bias, since
    the loss is not linear in masks. The antithetic one (Yin and Zhou 2019; Dong, Mnih and Tucker 2020) has none: it
    weighs the losses of a mask and its mirror image against each other, for the units in which these differ.
    """
    drawn, mirrored = (mask.to(inputs.dtype) for mask in masks(draws, logits))
    keep = drawn if way.drawn else logits.sigmoid()
    whole, outputs = passed_on(nets, inputs, keep)
    above = metrics.loss_gradient(outputs, targets, "softmax") / inputs.shape[1]
    back = torch.bmm(above, nets.weights[1])
    if way.gates == "antithetic":
        excess = _losses(outputs, targets) - _losses(passed_on(nets, inputs, mirrored)[1], targets)
        gate = excess / (2 * inputs.shape[1]) * (drawn - mirrored) * logits.abs().sigmoid()
    else:
        gate = back * whole * logits.sigmoid() * (-logits).sigmoid()
    return [inputs, whole * keep], [back * keep * (whole > 0), above], gate


def _errors(trained: tuple[Fleet, Fleet], cases: Cases, way: Way) -> list[int]:
    return metrics.errors(mean_outputs(*trained, cases.inputs[None], way), cases.targets).tolist()


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each case, (nets, cases, 1)."""
    return -outputs.log_softmax(-1).gather(-1, targets[..., None])
