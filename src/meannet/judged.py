"""Whether dropout helps on a table of one's own: errors on rows not trained on, beside the same net without."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold

from meannet.data.columns import Encoding, Task
from meannet.data.table import Table, some
from meannet.report.written import duration, rate, several

SEED = 0  # of folds, and of the nets where none is set
ENOUGH = 5  # folds, to say that a difference is beyond the spread
LONG = 30.0  # seconds, which are worth a word


def judged(learn: Task, net: Any, folds: int, repeats: int, console: Console) -> dict[str, Any]:
    """Errors of each fold on rows that were not trained on: a share of them, or a root mean square error."""
    most = max(Counter(learn.target.tolist()).values()) if learn.labels else len(learn.target)
    if folds > most:
        numbers = learn.labels and not learn.table.no_numbers(learn.name)
        remedy = "; --as numbers takes the labels for numbers" * numbers
        raise ValueError(
            f"--folds {folds} are more than there are rows{' of any label' * learn.labels}, {most}{remedy}"
        )
    kind = RepeatedStratifiedKFold if learn.labels else RepeatedKFold
    splits = list(kind(n_splits=folds, n_repeats=repeats, random_state=SEED).split(learn.target, learn.target))
    models = beside(learn, net)
    errors: dict[str, list[float]] = {name: [] for name in models}
    began = perf_counter()
    for done, (train, test) in enumerate(_shown(splits, console)):
        encoding = Encoding.of(learn, train)
        known, new = (encoding.encode(learn.values, rows) for rows in (train, test))
        for name, model in models.items():
            answers = clone(model).fit(known, learn.target[train]).predict(new)
            errors[name].append(error_of(answers, learn.target[test], labels=learn.labels))
        left = (perf_counter() - began) * (len(splits) - 1)
        if not done and left > LONG and not console.is_terminal:
            console.print(f"some {duration(left)} for the other {len(splits) - 1} folds")
    rows = [
        {"name": name, "errors": held, "mean": float(np.mean(held)), "sd": float(np.std(held, ddof=1))}
        for name, held in errors.items()
    ]
    both = [errors[name] for name in ("dropout", "backprop") if name in errors]
    return {"judged": rows, "comparison": compared(*both, folds=folds) if len(both) == 2 else None}


def beside(learn: Task, net: Any) -> dict[str, Any]:
    """Who is judged: the net, the same without dropout, a forest, and an answer that looks at no column."""
    found = {arm_of(net): net, "backprop": clone(net).set_params(dropout_hidden=0.0, dropout_visible=0.0)}
    if learn.labels:
        return found | {
            "random forest": RandomForestClassifier(random_state=SEED),
            "commonest": DummyClassifier(strategy="most_frequent"),
        }
    return found | {"random forest": RandomForestRegressor(random_state=SEED), "mean": DummyRegressor()}


def arm_of(net: Any) -> str:
    return "dropout" if net.dropout_hidden or net.dropout_visible else "backprop"


def compared(dropout: Sequence[float], backprop: Sequence[float], *, folds: int) -> dict[str, Any]:
    """The mean difference over folds; its standard error allows for folds that train on the same rows.

    The variance is that of single folds times 1/n + 1/(folds - 1), of which the second part is the ratio of test rows
    to training rows (Nadeau and Bengio, 2003). With fewer than five folds nothing is beyond the spread, which few
    folds show too badly.
    """
    differences = np.subtract(dropout, backprop)
    count = len(differences)
    error = float(differences.std(ddof=1) * math.sqrt(1 / count + 1 / (folds - 1)))
    mean = float(differences.mean())
    return {
        "arm": "dropout",
        "over": "backprop",
        "difference": mean,
        "standard_error": error,
        "n": count,
        "folds": folds,
        "beyond_spread": folds >= ENOUGH and abs(mean) > 2 * error > 0,
    }


def known_errors(table: Table, target: str, answers: Sequence[Any], classes: Sequence[str] | None) -> list[str]:
    """What there is to say of answers where a new table has the target, too; `classes` is None for numbers."""
    cells = table.columns.get(target, [])
    rows = [row for row, cell in enumerate(cells) if cell]
    if classes is None:
        odd = table.no_numbers(target) if rows else []
        lines = [f"{table.told(target, row)}, which is no number" for row in odd[:1]]
        rows = sorted({*rows} - {*odd})
        right, given = [table.number(cells[row]) for row in rows], [answers[row] for row in rows]
    else:
        numeric = all(table.number(label) is not None for label in classes)  # then equal numbers are equal labels
        keys = {label: table.number(label) if numeric else label for label in {*cells, *classes}}
        known = {keys[label] for label in classes}
        right, given = [keys[cells[row]] for row in rows], [keys[answers[row]] for row in rows]
        new = [cells[row] for row in rows if keys[cells[row]] not in known]
        named = some(sorted({*new}))
        lines = [f"{target} holds {named} in {several(len(new), 'row')}, no label of the net"] * bool(new)
    if not rows:
        return lines
    kind = np.float64 if classes is None else object
    error = error_of(np.array(given, kind), np.array(right, kind), labels=classes is not None)
    told = f"root mean square error {error:.4g}" if classes is None else f"{rate(100 * error)} of its answers are wrong"
    return [*lines, f"{target} is known for {several(len(rows), 'row')}: {told}"]


def error_of(answers: np.ndarray, right: np.ndarray, *, labels: bool) -> float:
    """The share of wrong labels, or the root mean square error."""
    return float((answers != right).mean() if labels else np.sqrt(np.mean((answers - right) ** 2)))


def _shown(splits: list[Any], console: Console) -> Iterator[Any]:
    shown = console.is_terminal
    yield from track(splits, description="judging", console=console, transient=True, disable=not shown)
