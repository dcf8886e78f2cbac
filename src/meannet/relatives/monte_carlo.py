"""Bayesian model averaging by Markov chain Monte Carlo, than which the body calls dropout considerably simpler.

Hamiltonian Monte Carlo (Neal 1996) draws nets from the posterior on the digits, and their probabilities are averaged:
`python -m meannet.relatives monte_carlo`. Beside it stand nets at modes of the posterior, and nets trained without
dropout and with it. All have one hidden layer of the same width. Settings of each way are chosen on held-out training
cases; then it is judged on the test cases.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice, product
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from meannet.core import philox
from meannet.data import Cases
from meannet.estimators import DropoutClassifier
from meannet.estimators.cases import Scaling
from meannet.estimators.fitting import REACH

HIDDEN, CLASSES = 100, 10
EPOCHS, BATCH = 200, 50  # as in the recipe `digits`
RATES = *product(("logistic",), (0.3, 1.0, 3.0, 10.0)), *product(("rectified",), (0.3, 1.0, 3.0, 10.0))  # units, lr
PRIORS = tuple(product((1.0, 4.0, 16.0, 64.0), (5.0, 10.0, 20.0)))  # scales of the hidden layer and of the outputs
BURN_IN, STEPS = 100, 40  # transitions that are thrown away; leapfrog steps in each
FIRST_STEP, JITTER = 0.02, 0.2  # the share by which all steps of a transition are longer or shorter
ACCEPTED = 0.8  # the share of proposals that steps are adapted to
HELD_OUT_SEED, APART = 10_000, 1000  # the first seed where settings are chosen; how far seeds of repeats are apart
MOMENTUM, UNIFORM, START = 0, 1, 2  # what a draw is for, in place of a layer in its address

Density = Callable[[Tensor], Tensor]  # log density, (chains,), up to a constant, at positions (chains, parameters)
Setting = tuple[Any, float]
Networks = Iterator[tuple[Tensor, Tensor | None]]  # probabilities, (repeats, cases, classes); acceptance, (repeats,)


class Point(NamedTuple):
    position: Tensor  # (chains, parameters)
    log_density: Tensor  # (chains, 1)
    gradient: Tensor  # (chains, parameters)


class Net(NamedTuple):
    """A net with one hidden layer of tanh units, whose parameters are one vector."""

    inputs: int
    hidden: int
    classes: int = CLASSES

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many hidden weights, hidden biases, output weights and output biases there are."""
        return self.hidden * self.inputs, self.hidden, self.classes * self.hidden, self.classes

    def outputs(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Before the softmax, (chains, cases, classes), for parameters (chains, all) and inputs (cases, inputs)."""
        below, bias, above, output_bias = parameters.split(self.sizes, 1)
        inputs = inputs.expand(len(parameters), -1, -1)
        hidden = torch.baddbmm(bias[:, None], inputs, below.unflatten(1, (self.hidden, -1)).mT).tanh()
        return torch.baddbmm(output_bias[:, None], hidden, above.unflatten(1, (self.classes, -1)).mT)

    def prior_sd(self, hidden: float, output: float) -> Tensor:
        """Of each parameter: a layer's scale for biases, and for weights this over the root of a unit's inputs."""
        scales = hidden / self.inputs**0.5, hidden, output / self.hidden**0.5, output
        return torch.cat(
            [torch.full((size,), sd, dtype=torch.float64) for size, sd in zip(self.sizes, scales, strict=True)]
        )

    def log_posterior(self, sd: Tensor, inputs: Tensor, targets: Tensor) -> Density:
        """Of parameters that are measured in their prior standard deviations."""

        def density(position: Tensor) -> Tensor:
            log_probs = self.outputs(position * sd, inputs).log_softmax(-1)
            right = log_probs.gather(-1, targets.expand(len(position), -1)[..., None])
            return right.sum((1, 2)) - 0.5 * position.square().sum(1)

        return density


def point(density: Density, position: Tensor) -> Point:
    position = position.detach().requires_grad_()
    found = density(position)[:, None]
    return Point(position.detach(), found.detach(), torch.autograd.grad(found.sum(), position)[0])


def leapfrog(density: Density, here: Point, momentum: Tensor, step: Tensor, steps: int) -> tuple[Point, Tensor]:
    """Where Hamiltonian dynamics with unit masses lead, and the momentum there; `step` is (chains, 1)."""
    for _ in range(steps):
        momentum = momentum + 0.5 * step * here.gradient
        here = point(density, here.position + step * momentum)
        momentum = momentum + 0.5 * step * here.gradient
    return here, momentum


def energy(here: Point, momentum: Tensor) -> Tensor:
    """The Hamiltonian, (chains, 1)."""
    return 0.5 * momentum.square().sum(1, keepdim=True) - here.log_density


def sample(
    density: Density, start: Tensor, seeds: Tensor, *, burn_in: int, steps: int, thin: int = 1
) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions of chains side by side, without end, each with the probability of accepting the last proposal.

    `start` is (chains, parameters) in float64, and a chain is a function of its row and seed. Every `thin`-th
    transition after `burn_in` is kept. Steps are adapted during burn-in alone: later ones leave the density as it is.
    """
    here, size = point(density, start), torch.full((len(start), 1), FIRST_STEP, dtype=start.dtype)
    for transition in count():
        momentum = philox.normals(seeds, philox.GIBBS, MOMENTUM, transition, range(1), start.shape[1])[:, 0]
        words = philox.words(seeds, philox.GIBBS, UNIFORM, transition, range(1), 1)
        uniform, longer = ((word[:, 0].double() + 0.5) / 2**32 for word in words[:2])  # (chains, 1)
        there, last = leapfrog(density, here, momentum, size * (1 + JITTER * (2 * longer - 1)), steps)
        probability = (energy(here, momentum) - energy(there, last)).exp().clamp(max=1).nan_to_num(0.0)
        here = Point(*(torch.where(uniform < probability, new, old) for new, old in zip(there, here, strict=True)))
        if transition < burn_in:
            size = size * (0.5 * (probability - ACCEPTED) / (1 + transition) ** 0.5).exp()
        elif (transition - burn_in) % thin == thin - 1:
            yield here.position, probability[:, 0]


def drawn(setting: Setting, train: Cases, judged: Cases, seeds: Tensor) -> Networks:
    """Nets from the posterior under a prior of these scales, a chain a seed."""
    net, sd, density, inputs = _posterior(setting, train, judged)
    for position, accepted in sample(density, _start(seeds, sd), seeds, burn_in=BURN_IN, steps=STEPS):
        yield net.outputs(position * sd, inputs).softmax(-1), accepted


def modes(setting: Setting, train: Cases, judged: Cases, seeds: Tensor) -> Networks:
    """Nets at modes of the same posterior, found from a start a seed by L-BFGS."""
    net, sd, density, inputs = _posterior(setting, train, judged)
    for number in count():
        found = torch.stack([mode(density, start) for start in _start(seeds + number, sd)])
        yield net.outputs(found * sd, inputs).softmax(-1), None


def trained(setting: Setting, train: Cases, judged: Cases, seeds: Tensor, *, rate: float) -> Networks:
    """Mean networks of nets trained by backpropagation, with dropout where hidden units have a rate."""
    units, lr = setting
    fixed = {"units": units, "lr": lr, "dropout_hidden": rate, "epochs": EPOCHS, "batch": BATCH}
    for number in count():
        nets = [DropoutClassifier((HIDDEN,), random_state=seed, **fixed) for seed in (seeds + number).tolist()]
        found = [net.fit(train.inputs, train.targets).predict_proba(judged.inputs) for net in nets]
        yield torch.from_numpy(np.stack(found)), None


class Way(NamedTuple):
    """How networks come about, settings to choose from and how a result names them, and how many are averaged."""

    networks: Callable[..., Networks]
    settings: Sequence[Setting]
    named: str
    counts: Sequence[int]
    tried: tuple[int, int]  # repeats, and networks that are averaged in each, where a setting is chosen


WAYS = {
    "backprop": Way(partial(trained, rate=0.0), RATES, "{} units, lr {:g}", (1, 10), (3, 1)),
    "mode of the posterior": Way(modes, PRIORS, "scales {:g} and {:g}", (1,), (3, 1)),
    "dropout": Way(partial(trained, rate=0.5), RATES, "{} units, lr {:g}", (1, 10, 100), (3, 1)),
    "Markov chain": Way(drawn, PRIORS, "scales {:g} and {:g}", (1, 10, 100, 1000), (1, 100)),
}


def compare(
    held_out: tuple[Cases, Cases], judged: tuple[Cases, Cases], say: Callable[[str], None], *, repeats: int = 5
) -> list[dict[str, Any]]:
    """A row a way and number of networks: errors of the average of their probabilities, a figure a repeat."""
    rows = []
    for name, way in WAYS.items():
        tried, (some, networks_tried) = {}, way.tried
        for setting in way.settings:
            networks = way.networks(setting, *held_out, HELD_OUT_SEED + APART * torch.arange(some))
            (found,) = averages(networks, held_out[1], [networks_tried])
            tried[setting] = statistics.fmean(found["errors"])
        best = min(tried, key=tried.__getitem__)
        networks = way.networks(best, *judged, APART * torch.arange(repeats))
        for found in averages(networks, judged[1], way.counts):
            rows.append({"way": name, "setting": way.named.format(*best)} | found)
            errors = statistics.fmean(found["errors"])
            say(f"{name}, {rows[-1]['setting']}, {found['networks']} networks averaged: {errors:.1f} errors")
    return rows


def averages(networks: Networks, judged: Cases, counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """What the arithmetic mean of the first so many networks' probabilities comes to, and seconds of CPU a repeat."""
    started, total, accepted = time.process_time(), torch.zeros(()), torch.zeros(())
    for number, (probabilities, acceptance) in enumerate(islice(networks, max(counts)), 1):
        total = total + probabilities
        accepted = accepted if acceptance is None else accepted + acceptance
        if number in counts:
            right = (total / number).gather(-1, judged.targets.expand(len(total), -1)[..., None])
            yield {
                "networks": number,
                "errors": (total.argmax(-1) != judged.targets).sum(1).tolist(),
                "n_test": len(judged.targets),
                "log_probability": right.log().mean((1, 2)).tolist(),
                "cpu_seconds": (time.process_time() - started) / len(total),
            } | ({} if acceptance is None else {"acceptance": (accepted / number).tolist()})


def mode(density: Density, start: Tensor) -> Tensor:
    """A maximum of the density, found from one position, (parameters,), by L-BFGS."""

    def falling(position: np.ndarray) -> tuple[float, np.ndarray]:
        here = point(density, torch.from_numpy(position)[None])
        return -here.log_density.item(), -here.gradient[0].numpy()

    return torch.from_numpy(minimize(falling, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x)


def _posterior(setting: Setting, train: Cases, judged: Cases) -> tuple[Net, Tensor, Density, Tensor]:
    """A net, the prior's standard deviations, the posterior's density, and inputs scaled as DropoutClassifier does."""
    raw = train.inputs.double().numpy()
    scaling = replace(Scaling.of(raw, np.arange(len(raw)), None), reach=REACH)
    inputs, test = (torch.from_numpy(scaling.apply(cases.inputs.double().numpy())) for cases in (train, judged))
    net = Net(raw.shape[1], HIDDEN)
    sd = net.prior_sd(*setting)
    return net, sd, net.log_posterior(sd, inputs, train.targets), test


def _start(seeds: Tensor, sd: Tensor) -> Tensor:
    """A tenth of a draw from the prior for each seed: small weights, as nets usually start with."""
    return 0.1 * philox.normals(seeds, philox.GIBBS, START, 0, range(1), len(sd))[:, 0]
