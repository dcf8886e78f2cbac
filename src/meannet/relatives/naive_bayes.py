"""Naive Bayes, which the body calls a familiar and extreme case of dropout, beside logistic classification.

Each input is trained by itself there, and with very little data that often works much better, the body says. Tried on
documents of Reuters-21578, and on the digits with pixels that are on or off: `python -m meannet.relatives naive_bayes`.
Nothing is chosen: naive Bayes has scikit-learn's usual smoothing, and logistic classification is there with its usual
penalty and with next to none.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, MultinomialNB

from meannet.data import Dataset
from meannet.relatives.linear import matrix

LOGISTIC: dict[str, Callable[[], Any]] = {
    "logistic, C 1": lambda: LogisticRegression(C=1.0, max_iter=10_000),
    "logistic, C 10,000": lambda: LogisticRegression(C=10_000.0, max_iter=10_000),
}


class Curves(NamedTuple):
    """A data set, how many cases are learned from, and inputs (training, test) as each kind of classifier has them."""

    name: str
    sizes: Sequence[int]
    bayes: Callable[[], Any]
    bayes_inputs: tuple[Any, Any]
    inputs: tuple[Any, Any]
    targets: tuple[np.ndarray, np.ndarray]


def of_digits(dataset: Dataset) -> Curves:
    on = dataset.train.inputs.numpy() >= 0.5, dataset.test.inputs.numpy() >= 0.5
    return Curves("digits", (10, 20, 50, 100, 200), BernoulliNB, on, on, _targets(dataset))


def of_documents(dataset: Dataset) -> Curves:
    counts = matrix(dataset.train, True), matrix(dataset.test, True)
    logs = matrix(dataset.train, False), matrix(dataset.test, False)
    return Curves(dataset.name, (20, 50, 100, 200, 500, 1000), MultinomialNB, counts, logs, _targets(dataset))


def compare(curves: Curves, say: Callable[[str], None], *, repeats: int = 10) -> list[dict[str, Any]]:
    """A row a classifier and number of training cases: test errors, a figure a repeat with cases of its own."""
    ways = {"naive Bayes": (curves.bayes, curves.bayes_inputs)}
    ways |= {name: (make, curves.inputs) for name, make in LOGISTIC.items()}
    targets, answers = curves.targets
    rows = []
    for size in curves.sizes:
        for way, (make, (inputs, judged)) in ways.items():
            errors = []
            for repeat in range(repeats):
                chosen = np.random.default_rng(repeat).permutation(len(targets))[:size]
                found = make().fit(inputs[chosen], targets[chosen]).predict(judged)
                errors.append(int((found != answers).sum()))
            rows.append({"data": curves.name, "way": way, "cases": size, "errors": errors, "n_test": len(answers)})
            say(f"{curves.name}, {way}, {size} cases: {100 * np.mean(errors) / len(answers):.1f} % errors")
    return rows


def _targets(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    return dataset.train.targets.numpy(), dataset.test.targets.numpy()
