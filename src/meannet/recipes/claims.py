"""What the body says of rates, and A.1 of bound, learning rate and momentum, tried on scikit-learn's digits.

Arms are there at several learning rates, and all are shown. No setting of another recipe is chosen by these errors.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from meannet.config import Adapt, Arm, Experiment, Source
from meannet.recipes.digits import digits

LEARNING_RATES = 0.3, 1.0, 3.0
HIDDEN = 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9
VISIBLE = 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8
OF_A1 = "bound", "decaying", "constant", "high_momentum", "low_momentum"  # the others are of the body


def rates() -> Experiment:
    """Almost all probabilities help, and more extreme ones tend to be worse: the same for both hidden layers."""
    arms = [_hidden(f"rate {rate:g}", rate) for rate in HIDDEN]
    return _experiment(
        "claims.rates",
        "Test errors on 1,000 digits by the probability of omitting a hidden unit.",
        _at_each(arms, LEARNING_RATES),
    )


def inputs() -> Experiment:
    """Omitting inputs can help, and it is often better to retain more than half of them; hidden units at 0.5."""
    arms = [Arm(name=f"rate {rate:g}", hidden=True, visible=True, visible_rate=rate) for rate in VISIBLE]
    return _experiment(
        "claims.inputs",
        "Test errors on 1,000 digits by the probability of omitting an input, half of the hidden units omitted.",
        _at_each(arms, LEARNING_RATES),
    )


def layers() -> Experiment:
    """Dropout in all hidden layers works better than in only one."""
    arms = (
        _hidden("all hidden layers", 0.5),
        _hidden("the first alone", 0.5, 0.0),
        _hidden("the second alone", 0.0, 0.5),
        Arm(name="none"),
    )
    return _experiment(
        "claims.layers",
        "Test errors on 1,000 digits with half of the units omitted in both hidden layers, in one, and in none.",
        _at_each(arms, (0.3, 1.0, 1.5, 2.0, 3.0)),
    )


def bound() -> Experiment:
    """The bound makes very large learning rates possible (body), and l = 15 did best on MNIST (A.1).

    With logistic units, as in mnist.a1: no bound keeps rectified ones alive at a learning rate of 10.
    """
    arms = [
        replace(_hidden(f"l {limit:g}" if limit < math.inf else "no bound", 0.5), limit=limit)
        for limit in (1.0, 4.0, 15.0, 60.0, math.inf)
    ]
    full = _experiment(
        "claims.bound",
        "Test errors on 1,000 digits of logistic nets by the bound on squared lengths, at learning rates up to 100.",
        _at_each(arms, (3.0, 10.0, 30.0, 100.0)),
    )
    sources = [source for source in full.sources if source.path != "net.units"]
    sources.append(Source(path="net.units", section="not stated; learning rate 10 trains logistic units"))
    sources.append(Source(path="net.initial_bias", section="not stated; at 0 some nets never leave chance"))
    return replace(full, net=replace(full.net, units="logistic", initial_bias=-2.0), sources=tuple(sources))


def decaying() -> Experiment:
    """A large learning rate that decays does better than a constant one (A.1): to a hundredth over the run."""
    full = _experiment(
        "claims.decaying",
        "Test errors on 1,000 digits with learning rates that end at a hundredth of what they start at.",
        _at_each([_hidden("decaying", 0.5)], (0.3, 1.0, 3.0, 10.0)),
    )
    return replace(full, optim=replace(full.optim, decay=0.01 ** (1 / full.optim.epochs)))


def constant() -> Experiment:
    """The same with learning rates that stay as they are."""
    full = _experiment(
        "claims.constant",
        "Test errors on 1,000 digits with learning rates that stay as they are, to be set beside claims.decaying.",
        _at_each([_hidden("constant", 0.5), Arm(name="constant, none omitted")], (0.1, 0.3, 1.0, 3.0, 10.0)),
    )
    return replace(full, optim=replace(full.optim, decay=1.0))


def shrinking() -> Experiment:
    """Dropout is a much better regulariser than shrinking weights towards zero (body): a penalty, and no bound."""
    arms = [
        Arm(name=f"penalty {decay:g}", weight_decay=decay, limit=math.inf) for decay in (0.0003, 0.001, 0.003, 0.01)
    ]
    half = _hidden("half omitted", 0.5)
    arms += [Arm(name="neither", limit=math.inf), half, replace(half, name="half omitted, no bound", limit=math.inf)]
    full = _experiment(
        "claims.shrinking",
        "Test errors on 1,000 digits with a penalty on squared weights, and with half of the hidden units omitted.",
        _at_each(arms, (0.3, 1.0, 1.5, 2.0, 3.0)),
    )
    bound = Source(path="optim.limit", section="A.1; nets with a penalty have none", paper="15")
    return replace(full, sources=(*(s for s in full.sources if s.path != bound.path), bound))


def high_momentum() -> Experiment:
    """A high final momentum makes learning stable where each gradient is of another thinned network (A.1)."""
    return _with_momentum("claims.high_momentum", "momentum to 0.99", 0.99)


def low_momentum() -> Experiment:
    """The same with the momentum that the other starts from."""
    return _with_momentum("claims.low_momentum", "momentum 0.5", 0.5)


def _with_momentum(name: str, called: str, end: float) -> Experiment:
    """Momentum is at its end after a fifth of the epochs, about as in A.1."""
    arms = _hidden(called, 0.5), Arm(name=f"{called}, none omitted")
    full = _experiment(
        name,
        f"Test errors on 1,000 digits with a final momentum of {end:g}, half of the hidden units omitted and none.",
        _at_each(arms, (0.3, 1.0, 3.0, 10.0)),
    )
    optim = replace(full.optim, momentum_end=end, momentum_epochs=full.optim.epochs // 5)
    return replace(full, optim=optim)


def adapted() -> Experiment:
    """Adapting each unit's rate on a validation set makes the method slightly better (body).

    Sixty of the 300 training cases are that set, and no arm learns from them. The learning rate was the better of 1 and
    3 on held-out cases, for both arms.
    """
    arms = _hidden("rates of 0.5", 0.5), replace(_hidden("adapted", 0.5), adapt=True)
    full = _experiment(
        "claims.adapted",
        "Test errors on 1,000 digits with rates of 0.5, and with rates that each unit adapts from there on.",
        _at_each(arms, (3.0,)),
        Adapt(cases=60),
    )
    pace = Source(path="adapt.pace", section="not stated; chosen on 497 held-out cases, see docs/log.md")
    return replace(full, seeds=tuple(range(20)), sources=(*full.sources, pace))


def _hidden(name: str, *rates: float) -> Arm:
    return Arm(name=name, hidden=True, hidden_rates=rates)


def _at_each(arms: Sequence[Arm], rates: Sequence[float]) -> tuple[Arm, ...]:
    return tuple(replace(arm, name=f"{arm.name}, lr {rate:g}", lr=rate) for rate in rates for arm in arms)


def _experiment(name: str, about: str, arms: tuple[Arm, ...], adapt: Adapt | None = None) -> Experiment:
    """The demonstration's net and schedule with other arms."""
    full = digits()
    sources = [source for source in full.sources if not source.path.startswith(("arms.", "optim.lr", "dropout."))]
    return replace(
        full,
        recipe=name,
        paper="A.1" if name.partition(".")[2] in OF_A1 else "body, what else was tried",
        about=about,
        arms=arms,
        adapt=adapt,
        record_every=20,
        samples=0,
        sources=(*sources, Source(path="optim.lr", section="A.1; each arm has its own here", paper="10")),
        time="minutes on two CPU cores",
        next="",
    )
