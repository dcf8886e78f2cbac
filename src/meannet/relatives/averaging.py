"""Other ways of averaging models that the body sets dropout against: separate networks, and bagging.

On the digits, so that anyone can repeat it: `python -m meannet.relatives averaging`. Every way has the same net, and a
learning rate that did best on held-out training cases with nets of its own; then it is judged on the test cases.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meannet.data import Cases
from meannet.estimators import DropoutClassifier

HIDDEN, EPOCHS, BATCH = (400, 400), 200, 50  # as in the recipe `digits`
WAYS = {  # rate of hidden units, and learning rates to choose from
    "separate networks": (0.0, (0.1, 0.3, 1.0)),
    "bagging": (0.0, (0.1, 0.3, 1.0)),
    "dropout": (0.5, (0.3, 1.0, 3.0)),
}
COUNTS = 1, 2, 5, 10, 20  # of networks that are averaged
TRIED = 3  # networks by which a learning rate is judged


def compare(
    held_out: tuple[Cases, Cases],
    judged: tuple[Cases, Cases],
    say: Callable[[str], None],
    *,
    repeats: int = 5,
    counts: Sequence[int] = COUNTS,
    **settings: Any,
) -> list[dict[str, Any]]:
    """A row a way and number of networks: errors of the average of their probabilities, a figure a repeat."""
    rows = []
    for way, (rate, learning_rates) in WAYS.items():
        wanted = {"hidden": HIDDEN, "epochs": EPOCHS, "batch": BATCH, "dropout_hidden": rate} | settings
        tried = {lr: _tried(way, wanted | {"lr": lr}, *held_out) for lr in learning_rates}
        lr = min(tried, key=tried.__getitem__)
        errors: dict[int, list[int]] = {count: [] for count in counts}
        for repeat in range(repeats):
            seeds = range(repeat * max(counts), (repeat + 1) * max(counts))
            each = _probabilities(way, wanted | {"lr": lr}, *judged, seeds)
            for count in counts:
                errors[count].append(_errors(each[:count], judged[1]))
        for count, found in errors.items():
            rows.append({"way": way, "networks": count, "lr": lr, "errors": found, "n_test": len(judged[1].targets)})
            say(f"{way}, lr {lr:g}, {count} networks averaged: {np.mean(found):.1f} errors")
    return rows


def _tried(way: str, settings: dict[str, Any], train: Cases, test: Cases) -> float:
    """Mean errors of single networks on held-out cases."""
    each = _probabilities(way, settings, train, test, range(10_000, 10_000 + TRIED))
    return float(np.mean([_errors(one[None], test) for one in each]))


def _probabilities(way: str, settings: dict[str, Any], train: Cases, test: Cases, seeds: range) -> np.ndarray:
    """Of each network on the test cases, (networks, cases, classes)."""
    inputs, targets, found = train.inputs.numpy(), train.targets.numpy(), []
    for seed in seeds:
        weights = bootstrap(targets, seed) if way == "bagging" else None
        net = DropoutClassifier(random_state=seed, **settings).fit(inputs, targets, weights)
        found.append(net.predict_proba(test.inputs.numpy()))
    return np.stack(found)


def bootstrap(targets: np.ndarray, seed: int) -> np.ndarray:
    """How often each case is in a sample of as many, drawn with replacement; a class that is missing is drawn anew."""
    random = np.random.default_rng(seed)
    while True:
        drawn = np.bincount(random.integers(len(targets), size=len(targets)), minlength=len(targets))
        if set(targets[drawn > 0]) == set(targets):
            return drawn.astype(float)


def _errors(each: np.ndarray, test: Cases) -> int:
    return int((each.mean(0).argmax(1) != test.targets.numpy()).sum())
