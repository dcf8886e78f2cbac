"""The body's claims about the mean network, checked in float64 against every thinned network there is, not a sample."""

from typing import Any

import torch
from torch import Tensor

from meannet.core import philox
from meannet.core.mean import all_masks, geometric_mean, mask_probabilities
from meannet.nn import dense
from meannet.nn.dense import Fleet

CASES = 10  # random nets, each with an input of its own
VISIBLE, UNITS, OUTPUTS = 5, 14, 4
HALF = torch.full((UNITS,), 0.5, dtype=torch.float64)
UNEVEN = torch.linspace(0.05, 0.9, UNITS, dtype=torch.float64)
RATES = (("rate 0.5", HALF), ("rate 0.3", torch.full_like(HALF, 0.3)), ("rates of 0.05 to 0.9", UNEVEN))
EXACT, AGREE = 1e-10, 1e-12


@torch.no_grad()
def check_all() -> list[dict[str, Any]]:
    """Every claim with what was found: name, paper, holds, what the value says, value, bound (None: only measured)."""
    return [*_is_the_geometric_mean(), *_beats_the_average(), *_beats_the_average_error(), *_deeper()]


def _is_the_geometric_mean() -> list[dict[str, Any]]:
    """One hidden layer, softmax: the mean network is the renormalised geometric mean of all 2^N thinned networks."""
    found = []
    for name, rates in RATES:
        fleet, inputs = _random_nets((VISIBLE, UNITS, OUTPUTS), rates)
        thinned, weights = _thinned(fleet, inputs, rates)
        mean = dense.mean_network(fleet, inputs)[:, 0].log_softmax(-1)
        apart = (mean - geometric_mean(thinned.log_softmax(-1), weights)).abs().max()
        found.append(
            _claim(
                f"the mean network is the geometric mean of all 2^{UNITS} thinned networks, {name}",
                "largest difference of two log probabilities",
                apart,
                EXACT,
            )
        )
    return found


def _beats_the_average() -> list[dict[str, Any]]:
    """The right answer, whichever it is, is more probable under the mean network than thinned ones have it on average.

    The geometric mean needs no renormalising where all networks agree, and sums to less than one where they do not.
    """
    margins = []
    for _, rates in RATES:
        for sd in (0.1, 1.0, 3.0):
            fleet, inputs = _random_nets((VISIBLE, UNITS, OUTPUTS), rates, sd=sd)
            margins.append(_margins(fleet, inputs, rates))
    agreeing, inputs = _random_nets((VISIBLE, UNITS, OUTPUTS), HALF)
    # A unit that pushes every output alike changes no prediction, whether it is there or not.
    agreeing.weights[-1].copy_(agreeing.weights[-1][:, :1].clone())
    return [
        _claim(
            "the mean network's log probability is above the thinned networks' mean where they disagree",
            f"smallest margin over {len(margins) * CASES} cases and each answer as the right one",
            torch.cat(margins).min(),
            0.0,
            above=True,
        ),
        _claim(
            "the mean network's log probability is the thinned networks' mean where they agree",
            "largest difference",
            _margins(agreeing, inputs, HALF).abs().max(),
            AGREE,
        ),
    ]


def _beats_the_average_error() -> list[dict[str, Any]]:
    """One hidden layer, linear outputs: the mean network outputs the mean, so the errors differ by the variance."""
    margins, apart = [], []
    for _, rates in RATES:
        fleet, inputs = _random_nets((VISIBLE, UNITS, OUTPUTS), rates, output="linear")
        thinned, weights = _thinned(fleet, inputs, rates)
        targets = philox.normal(len(margins), 99, CASES * OUTPUTS).view(CASES, OUTPUTS)
        error = (dense.mean_network(fleet, inputs)[:, 0] - targets).square().sum(-1)
        mean_error = _average((thinned - targets).square().sum(-1), weights)
        variance = _average((thinned - _average(thinned, weights)).square().sum(-1), weights)
        margins.append(mean_error - error)
        apart.append((mean_error - error - variance).abs())
    return [
        _claim(
            "the mean network's squared error is never above the thinned networks' mean",
            f"smallest margin over {len(margins) * CASES} cases",
            torch.cat(margins).min(),
            0.0,
            above=True,
        ),
        _claim(
            "the mean of the thinned networks' squared errors exceeds the mean network's by their outputs' variance",
            "largest deviation from it",
            torch.cat(apart).max(),
            EXACT,
        ),
    ]


def _deeper() -> list[dict[str, Any]]:
    """Beyond one hidden layer the mean network is an approximation; how good a one is measured."""
    found = []
    for hidden in ((7, 7), (5, 5, 5)):
        rates = torch.full((sum(hidden),), 0.5, dtype=torch.float64)
        for units in dense.UNITS:
            fleet, inputs = _random_nets((VISIBLE, *hidden, OUTPUTS), rates, units=units)
            thinned, weights = _thinned(fleet, inputs, rates)
            mean = dense.mean_network(fleet, inputs)[:, 0].softmax(-1)
            distance = 0.5 * (mean - geometric_mean(thinned.log_softmax(-1), weights).exp()).abs().sum(-1)
            layers = f"{len(hidden)} hidden layers, {' x '.join(map(str, hidden))} {units} units"
            found.append(
                _claim(
                    f"how far the mean network is from the geometric mean, {layers}",
                    f"mean total variation distance over {CASES} nets with random weights",
                    distance.mean(),
                )
            )
    return found


def _random_nets(
    sizes: tuple[int, ...], rates: Tensor, units: str = "logistic", output: str = "softmax", sd: float = 1.0
) -> tuple[Fleet, Tensor]:
    """Nets with random weights and biases, and an input for each, (nets, 1, visible)."""
    per_layer = [torch.zeros(1), *(rate.expand(CASES, -1) for rate in rates.split(sizes[1:-1]))]
    fleet = dense.initial_fleet(sizes, range(CASES), per_layer, units=units, output=output, sd=sd, dtype=torch.float64)
    for k, bias in enumerate(fleet.biases):
        bias.copy_(philox.normal(k, 97, bias.numel()).view_as(bias))
    return fleet, philox.normal(0, 98, CASES * VISIBLE).view(CASES, 1, VISIBLE)


def _thinned(fleet: Fleet, inputs: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of every thinned network, (masks, nets, outputs), and how probable each mask is; masks run as cases."""
    masks = all_masks(len(rates))
    keep = [None, *masks[None].split(fleet.sizes[1:-1], dim=-1)]
    outputs = dense.activities(fleet, inputs.expand(-1, len(masks), -1), keep)[-1]
    return outputs.transpose(0, 1), mask_probabilities(masks, rates)


def _margins(fleet: Fleet, inputs: Tensor, rates: Tensor) -> Tensor:
    """By how much the mean network's log probabilities exceed the thinned networks' average ones, (nets, outputs)."""
    thinned, weights = _thinned(fleet, inputs, rates)
    return dense.mean_network(fleet, inputs)[:, 0].log_softmax(-1) - _average(thinned.log_softmax(-1), weights)


def _average(values: Tensor, weights: Tensor) -> Tensor:
    """Over the first axis; a product and a sum, since `sum` adds in a tree and keeps the rounding below `AGREE`."""
    return (values * weights.reshape(-1, *[1] * (values.dim() - 1))).sum(0)


def _claim(name: str, says: str, value: Tensor, bound: float | None = None, above: bool = False) -> dict[str, Any]:
    """A value that is not a number fails every claim but a measurement."""
    number = value.item()
    holds = bound is None or (number > bound if above else number <= bound)
    return {"name": name, "paper": "body", "holds": holds, "says": says, "value": number, "bound": bound}
