"""What each parameter of the estimators may be, and scikit-learn's kind of message where it is something else."""

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from sklearn.base import BaseEstimator

from meannet.device import DEVICES
from meannet.nn.dense import UNITS

Allowed = tuple[Callable[[Any], bool], str]  # whether a value is good, and which are


def check(estimator: BaseEstimator, known: Mapping[str, Allowed]) -> None:
    """Refuse the first parameter that is not what it may be; those that are not in `known` may be anything."""
    for name, value in estimator.get_params(deep=False).items():
        good, allowed = known.get(name, (lambda _: True, ""))
        if not good(value):
            kind = type(estimator).__name__
            raise ValueError(f"The {name!r} parameter of {kind} must be {allowed}. Got {value!r} instead.")


def check_counts(least: int, **given: Any) -> None:
    """Refuse an argument of a method that is not a whole number from `least` on."""
    good, allowed = whole(least)
    for name, value in given.items():
        if not good(value):
            raise ValueError(f"{name} must be {allowed}; got {value!r}")


def whole(least: int, most: int = 2**31 - 1) -> Allowed:
    def good(value: Any) -> bool:
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return whole and least <= cast(int, value) <= most

    return good, f"an int in the range [{least}, {most}]"


def number(least: float, most: float, *, closed: bool = False) -> Allowed:
    """Above `least`, or with `closed` from it on, and below `most`."""

    def good(value: Any) -> bool:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and (least < cast(float, value) < most or (closed and value == least))

    return good, f"a float in the range {'[' if closed else '('}{least:g}, {most:g})"


def either(*values: Any) -> Allowed:
    """One of several words, or true or false."""

    def good(value: Any) -> bool:
        return isinstance(value, str | bool | np.bool_) and value in values

    return good, "one of " + ", ".join(repr(value) for value in values)


def layers(value: Any) -> bool:
    one = whole(1)[0]
    return one(value) or (isinstance(value, tuple | list) and all(one(size) for size in value))


def _momentum(value: Any) -> bool:
    good = number(0, 1, closed=True)[0]
    return isinstance(value, tuple | list) and len(value) == 2 and all(good(each) for each in value)


def _epochs(value: Any) -> bool:
    return whole(1)[0](value) or (isinstance(value, str) and value == "auto")


def _lr(value: Any) -> bool:
    return number(0, math.inf)[0](value) or (isinstance(value, str) and value == "auto")


def _share(value: Any) -> bool:
    return number(0, 2)[0](value) and value <= 1


def _limit(value: Any) -> bool:
    return number(0, math.inf)[0](value) or (isinstance(value, float) and value == math.inf)


def _stack(value: Any) -> bool:
    if value is None:
        return True
    from meannet.estimators.pretrained import belief_net

    return belief_net(value) is not None


_RATE = number(0, 1, closed=True)
PARAMETERS: dict[str, Allowed] = {
    "hidden": (layers, "an int or a tuple of ints, the sizes of the hidden layers, each 1 or more"),
    "units": either(*UNITS),
    "dropout_hidden": (_RATE[0], f"the probability of omitting a unit, {_RATE[1]}"),
    "dropout_visible": (_RATE[0], f"the probability of omitting an input, {_RATE[1]}"),
    "epochs": (_epochs, f"'auto' or {whole(1)[1]}"),
    "batch": whole(1),
    "lr": (_lr, f"'auto' or {number(0, math.inf)[1]}"),
    "lr_end": (_share, "a float in the range (0, 1]"),
    "momentum": (_momentum, "a pair of floats in the range [0, 1), at the start and at the end"),
    "limit": (_limit, "a float above 0, or inf for no bound"),
    "standardize": either(True, False),
    "n_nets": whole(1),
    "pretrain": (_stack, "None, a DBN, BernoulliRBM or GaussianRBM, or a FrozenEstimator of one of them"),
    "early_stopping": either(True, False),
    "validation_fraction": number(0, 1),
    "n_iter_no_change": whole(1),
    "warm_start": either(True, False),
    "device": either(*DEVICES),
}
