"""Dropout on small tables beside what people use there: the same splits for everyone, errors, losses and fit times."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from meannet import device
from meannet.bench import keel
from meannet.bench.keel import Table
from meannet.bench.standing import STOPPED
from meannet.estimators import DropoutClassifier

FOLDS, REPEATS = 5, 2
NONE = {"dropout_hidden": 0.0, "dropout_visible": 0.0}


@dataclass(frozen=True)
class Arm:
    """Someone who takes part: a name, how a user would write it, and an estimator from a seed."""

    name: str
    written: str
    make: Callable[[int], Any]

    @classmethod
    def ours(cls, name: str, **settings: Any) -> "Arm":
        written = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        return cls(name, f"DropoutClassifier({written})", lambda seed: DropoutClassifier(random_state=seed, **settings))


ARMS = (
    Arm.ours("dropout"),
    Arm.ours("backprop", **NONE),
    Arm(
        "MLP",
        "make_pipeline(StandardScaler(), MLPClassifier(max_iter=2000))",
        lambda seed: make_pipeline(StandardScaler(), MLPClassifier(max_iter=2000, random_state=seed)),
    ),
    Arm(
        "logistic regression",
        "make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))",
        lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    ),
    Arm("random forest", "RandomForestClassifier()", lambda seed: RandomForestClassifier(random_state=seed)),
    Arm(
        "boosting",
        "HistGradientBoostingClassifier()",
        lambda seed: HistGradientBoostingClassifier(random_state=seed),
    ),
)
# Whether training needs to be stopped early: the last epoch against the best on held-out cases.
EARLY = (
    Arm.ours(f"dropout{STOPPED}", early_stopping=True),
    Arm.ours(f"backprop{STOPPED}", **NONE, early_stopping=True),
)

# What the defaults were chosen among, on sets of their own: one setting changed at a time.
CHANGES = (
    {}, {"lr": 0.2}, {"lr": 1.0}, {"lr": 2.0}, {"dropout_hidden": 0.25}, {"dropout_hidden": 0.65},
    {"dropout_visible": 0.1}, {"dropout_visible": 0.2}, {"hidden": (64,)}, {"hidden": (1024,)}, {"hidden": (256, 256)},
    {"units": "logistic"}, {"limit": 3.0}, {"batch": 100}, {"n_nets": 4}, NONE, NONE | {"n_nets": 4},
)  # fmt: skip
CANDIDATES = tuple(
    Arm.ours(", ".join(f"{key}={value}" for key, value in change.items()) or "defaults", **change) for change in CHANGES
)


def compare(
    say: Callable[[str], None],
    *,
    arms: Sequence[Arm] = ARMS + EARLY,
    tables: Sequence[Table] | None = None,
    folds: int = FOLDS,
    repeats: int = REPEATS,
) -> dict[str, Any]:
    """Everyone's errors on every split of every set, as `meannet bench --tables --json` prints them."""
    tables = keel.judged_on() if tables is None else tables
    found: dict[str, dict[str, Any]] = {arm.name: {} for arm in arms}
    for number, table in enumerate(tables, start=1):
        for arm in arms:
            found[arm.name][table.name] = judge(arm, table, folds, repeats)
        least = min(arms, key=lambda arm: np.mean(found[arm.name][table.name]["errors"]))
        share = np.mean(found[least.name][table.name]["errors"])
        say(f"{number} of {len(tables)}: {table.name}, {table.inputs.shape}: least errors {least.name}, {share:.1%}")
    return {
        "recipe": "tables",
        "folds": folds,
        "repeats": repeats,
        "sets": [
            {
                "name": table.name,
                "rows": len(table.labels),
                "columns": table.inputs.shape[1],
                "classes": len(np.unique(table.labels)),
            }
            for table in tables
        ],
        "arms": [{"name": arm.name, "written": arm.written, "sets": found[arm.name]} for arm in arms],
        "device": device.describe(device.choose("cpu")),
        "versions": device.versions() | {"scikit-learn": sklearn.__version__},
    }


def judge(arm: Arm, table: Table, folds: int, repeats: int) -> dict[str, list[float]]:
    """Split by split: the share of test rows that are wrong, their mean log loss, the seconds that fitting takes."""
    errors, losses, seconds = [], [], []
    for seed, (learn, test) in enumerate(table.splits(folds, repeats)):
        estimator = arm.make(seed)
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that something has not converged is part of what users get
            estimator.fit(table.inputs[learn], table.labels[learn])
        seconds.append(round(time.perf_counter() - begun, 4))
        sure = estimator.predict_proba(table.inputs[test])
        wrong = estimator.classes_[sure.argmax(1)] != table.labels[test]
        errors.append(round(float(wrong.mean()), 6))
        losses.append(round(float(log_loss(table.labels[test], sure, labels=estimator.classes_)), 6))
    return {"errors": errors, "log_losses": losses, "seconds": seconds}
