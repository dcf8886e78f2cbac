"""Whether dropout helps on a table of one's own: errors on rows not trained on, beside the same net without."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold

from meannet.data import marks
from meannet.data.columns import Encoding, Task
from meannet.data.table import Table, some
from meannet.report.written import duration, rate, several

SEED = 0  # of folds, and of the nets where none is set
ENOUGH = 5  # folds, to say that a difference is beyond the spread
ROUNDING = 1e-9  # of errors; a smaller difference is none
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
    if abs(mean) < ROUNDING * max(np.mean(dropout), np.mean(backprop)):
        mean = 0.0
    return {
        "arm": "dropout",
        "over": "backprop",
        "difference": mean,
        "standard_error": error,
        "n": count,
        "folds": folds,
        "beyond_spread": folds >= ENOUGH and abs(mean) > 2 * error,
    }


def known_errors(table: Table, target: str, answers: Sequence[Any], classes: Sequence[str] | None) -> list[str]:
    """What there is to say of answers where a new table has the target, too; `classes` is None for numbers."""
    rows = [row for row, cell in enumerate(table.columns.get(target, [])) if cell]
    if not rows:
        return []
    if classes is None:
        lines, right, given = _known_numbers(table, target, rows, answers)
        error = error_of(np.array(given, np.float64), np.array(right, np.float64), labels=False) if right else 0.0
        told = f"root mean square error {error:.4g}"
    else:
        lines, right, given = _known_labels(table, target, rows, answers, classes)
        error = error_of(np.array(given, object), np.array(right, object), labels=True)
        told = f"{rate(100 * error)} of its answers are wrong"
    return [*lines, f"{target} is known for {several(len(right), 'row')}: {told}"] if right else lines


Known = tuple[list[str], list[Any], list[Any]]  # what is to be said, what is right, and what was answered


def _known_numbers(table: Table, target: str, rows: Sequence[int], answers: Sequence[Any]) -> Known:
    odd, held = table.no_numbers(target), table.spelled(target)
    if unclear := table.unclear(target):
        return [f"{table.told(target, unclear[0])}, which may be meant in two ways; no errors are told"], [], []
    count = several(len(odd), "such row")
    lines = [f"{table.told(target, row)}, no number that can be used ({count} in all)" for row in odd[:1]]
    good = [row for row in rows if held[row] is not None]
    return lines, [held[row] for row in good], [answers[row] for row in good]


def _known_labels(
    table: Table, target: str, rows: Sequence[int], answers: Sequence[Any], classes: Sequence[str]
) -> Known:
    """Where the net's labels are numbers, equal numbers are equal labels, however they are spelled."""
    cells, held = table.columns[target], table.spelled(target)
    numbers = {label: marks.spelled(label, "", commas=True) for label in classes}
    if None in numbers.values():
        keys: dict[str, Any] = {label: label for label in classes}
        right: list[Any] = [cells[row] for row in rows]
    else:
        keys = {label: Decimal(str(text)) for label, text in numbers.items()}
        right = [Decimal(text) if (text := held[row]) is not None else cells[row] for row in rows]
    new = [cells[row] for row, key in zip(rows, right, strict=True) if key not in keys.values()]
    named = some(sorted({*new}))
    lines = [f"{target} holds {named} in {several(len(new), 'row')}, no label of the net"] * bool(new)
    return lines, right, [keys[answers[row]] for row in rows]


def error_of(answers: np.ndarray, right: np.ndarray, *, labels: bool) -> float:
    """The share of wrong labels, or the root mean square error."""
    return float((answers != right).mean() if labels else np.sqrt(np.mean((answers - right) ** 2)))


def _shown(splits: list[Any], console: Console) -> Iterator[Any]:
    shown = console.is_terminal
    yield from track(splits, description="judging", console=console, transient=True, disable=not shown)
