"""`meannet fit`: a net with dropout for a table of one's own, judged beside the same net without, then saved whole."""

import argparse
import json
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold

from meannet import export, screen
from meannet.config import nearest
from meannet.console import StopRequest
from meannet.data import table as tables
from meannet.data.table import Encoding, Task
from meannet.estimators import DropoutClassifier, DropoutRegressor, saved
from meannet.options import Interrupted
from meannet.report.written import MINUS, duration, plain, several
from meannet.typed import as_typed

KINDS = ("labels", "numbers")
SEED = 0  # of folds, and of the nets where none is set
NOTES = 3
LONG = 30.0  # seconds, which are worth a word
FIXED = ("pretrain", "verbose", "warm_start")  # parameters that are no matter of the command line


def fit_and_tell(options: argparse.Namespace) -> int:
    """Judge on rows that were not trained on, train on all of them, save; returns the exit code."""
    stop = StopRequest()
    console = screen.console(stderr=options.json)
    try:
        with stop.catching():
            found = fitted(options, console)
    except Interrupted:
        console.print("stopped; nothing was written")
        return 128 + stop.received
    if options.json:
        print(json.dumps(found))
    return 0


def fitted(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """What `--json` prints; all else goes to the console."""
    out = Path(options.out) if options.out else None
    check_request(options, out)
    table = tables.read(Path(options.file))
    task = tables.task(
        table, options.column, drop=options.drop, words=options.words, kind=options.kind, say=console.print
    )
    net = (DropoutClassifier if task.labels else DropoutRegressor)(random_state=SEED)
    net.set_params(**settings(net, options.settings))
    told(console, task, options.column)
    start = perf_counter()
    document: dict[str, Any] = {
        "table": options.file,
        "column": options.column,
        "kind": KINDS[not task.labels],
        "rows": len(task.target),
        "columns": list(task.values),
        "inputs": Encoding.of(task.values).inputs,
        "folds": options.folds,
        "repeats": options.repeats if options.folds else 0,
        "judged": [],
        "comparison": None,
    }
    with noting(console):
        if options.folds:
            document |= judged(task, net, options, console)
            tell_judged(console, document)
        if out:
            encoding = Encoding.of(task.values)
            net.fit(encoding.encode(task.values), task.target)
            saved.save(net, out, columns=encoding.to_json())
            console.print(f"wrote {out}: the net with dropout, trained on all {len(task.target):,} rows")
            console.print(f"next, try: {as_typed(f'meannet predict {out} NEW.csv')}")
    return document | {"wrote": str(out) if out else None, "seconds": round(perf_counter() - start, 1)}


def check_request(options: argparse.Namespace, out: Path | None) -> None:
    """Refuse what cannot be done, before any work."""
    if options.kind not in (None, *KINDS):
        raise ValueError(f"--as must be {' or '.join(KINDS)}, not {options.kind!r}")
    if options.folds == 1 or options.folds < 0:
        raise ValueError(f"--folds must be 2 or more, or 0 to judge nothing, not {options.folds}")
    if options.repeats < 1:
        raise ValueError(f"--repeats must be 1 or more, not {options.repeats}")
    if out is None:
        if not options.folds:
            raise ValueError("--folds 0 judges nothing, and without -o nothing is saved; give -o FILE.safetensors")
        return
    if out.suffix != ".safetensors":
        raise ValueError(f"{out} must end in .safetensors, as in {out.with_suffix('.safetensors')}")
    export.check_target(out, force=options.force)


def settings(net: Any, given: Sequence[str]) -> dict[str, Any]:
    """Parameters of the estimator from NAME=VALUE; a wrong value is refused by the fit."""
    known = [name for name in net.get_params(deep=False) if name not in FIXED]
    found = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not text:
            raise ValueError(f"--set takes NAME=VALUE, not {one!r}")
        if name not in known:
            raise ValueError(f"no setting {name!r}; {nearest(name, known)}")
        parts = tuple(_value(part) for part in text.split(",") if part)
        found[name] = parts if "," in text else parts[0]
    net.__class__(**net.get_params(deep=False) | found)._check_parameters()
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"none": None, "true": True, "false": False}.get(text, text)


def judged(task: Task, net: Any, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Errors of each fold on rows that were not trained on: a share of them, or a root mean square error."""
    folds = options.folds
    most = max(Counter(task.target.tolist()).values()) if task.labels else len(task.target)
    if folds > most:
        raise ValueError(f"--folds {folds} are more than there are rows{' of any label' * task.labels}, {most}")
    kind = RepeatedStratifiedKFold if task.labels else RepeatedKFold
    splits = list(kind(n_splits=folds, n_repeats=options.repeats, random_state=SEED).split(task.target, task.target))
    models = beside(task, net)
    errors: dict[str, list[float]] = {name: [] for name in models}
    began = perf_counter()
    for done, (train, test) in enumerate(_shown(splits, console)):
        encoding = Encoding.of(task.values, train)
        known, new = (encoding.encode(task.values, rows) for rows in (train, test))
        for name, model in models.items():
            answers = clone(model).fit(known, task.target[train]).predict(new)
            errors[name].append(_error(answers, task.target[test], labels=task.labels))
        left = (perf_counter() - began) * (len(splits) - 1)
        if not done and left > LONG and not console.is_terminal:
            console.print(f"some {duration(left)} for the other {len(splits) - 1} folds")
    rows = [
        {"name": name, "errors": held, "mean": float(np.mean(held)), "sd": float(np.std(held, ddof=1))}
        for name, held in errors.items()
    ]
    both = [errors[name] for name in ("dropout", "backprop") if name in errors]
    return {"judged": rows, "comparison": compared(*both, folds=folds) if len(both) == 2 else None}


def beside(task: Task, net: Any) -> dict[str, Any]:
    """Who is judged: the net, the same without dropout, a forest, and an answer that looks at no column."""
    rates = {"dropout_hidden": 0.0, "dropout_visible": 0.0}
    found = {"dropout": net}
    if any(getattr(net, name) != rate for name, rate in rates.items()):
        found["backprop"] = clone(net).set_params(**rates)
    if task.labels:
        return found | {
            "random forest": RandomForestClassifier(random_state=SEED),
            "commonest": DummyClassifier(strategy="most_frequent"),
        }
    return found | {"random forest": RandomForestRegressor(random_state=SEED), "mean": DummyRegressor()}


def compared(dropout: Sequence[float], backprop: Sequence[float], *, folds: int) -> dict[str, Any]:
    """The mean difference over folds; its standard error allows for folds that train on the same rows.

    The variance is that of single folds times 1/n + 1/(folds - 1), of which the second part is the ratio of test rows
    to training rows (Nadeau and Bengio, 2003).
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
        "beyond_spread": abs(mean) > 2 * error,
    }


def _error(answers: np.ndarray, right: np.ndarray, *, labels: bool) -> float:
    return float((answers != right).mean() if labels else np.sqrt(np.mean((answers - right) ** 2)))


def _shown(splits: list[Any], console: Console) -> Iterator[Any]:
    shown = console.is_terminal
    yield from track(splits, description="judging", console=console, transient=True, disable=not shown)


@contextmanager
def noting(console: Console) -> Iterator[None]:
    """Warnings of fits as notes, each once, but for that of labels in few rows: their counts are told before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    ours = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    notes = [note for note in dict.fromkeys(ours) if "least populated class" not in note]
    for note in notes[:NOTES]:
        console.print(f"note: {note}")
    if notes[NOTES:]:
        console.print(f"and {several(len(notes) - NOTES, 'note')} like these")


def told(console: Console, task: Task, column: str) -> None:
    """What was made of the table, so that a mistake is seen."""
    words = [name for name, held in task.values.items() if held.dtype == object]
    numbers = [name for name in task.values if name not in words]
    parts = [several(len(numbers), "column") + " of numbers"] * bool(numbers)
    parts += [several(len(words), "column") + " of words"] * bool(words)
    console.print(f"{task.table.path}: {several(len(task.target), 'row')}; {' and '.join(parts)}")
    gaps = {name: int(sum(_missing(held))) for name, held in task.values.items()}
    if any(gaps.values()):
        named = ", ".join(f"{name} {count:,}" for name, count in gaps.items() if count)
        console.print(f"missing, and told to the net as such: {named}")
    if not task.labels:
        low, mean, high = (plain(float(value)) for value in _range(task.target))
        console.print(f"{column}: numbers from {low} to {high}, mean {mean} (--as labels takes them for labels)")
        return
    counts = Counter(task.target.tolist()).most_common()
    shown = ", ".join(f"{label} {count:,}" for label, count in counts[:8]) + " …" * (len(counts) > 8)
    console.print(f"{column}: {len(counts)} labels, {shown}")


def _missing(held: np.ndarray) -> np.ndarray:
    return held == "" if held.dtype == object else np.isnan(held)


def _range(target: np.ndarray) -> tuple[float, float, float]:
    return target.min(), target.mean(), target.max()


def tell_judged(console: Console, document: dict[str, Any]) -> None:
    labels = document["kind"] == "labels"
    names = {
        "dropout": "net with dropout",
        "backprop": "the same net without",
        "random forest": "random forest",
        "commonest": "always the commonest label",
        "mean": "always the mean",
    }
    figure = "errors" if labels else "root mean square error"
    times = f", {document['repeats']} times" * (document["repeats"] > 1)
    table = screen.table(f"rows not trained on, {document['folds']} folds{times}", numbers=(figure, "± sd over folds"))
    for row in document["judged"]:
        table.add_row(names[row["name"]], _figure(row["mean"], labels), _figure(row["sd"], labels))
    console.print()
    console.print(table)
    found = document["comparison"]
    if found:
        fewer = found["difference"] <= 0
        unit = " points" * labels
        verb = ("fewer" if fewer else "more") if labels else ("lower" if fewer else "higher")
        beyond = "beyond the spread" if found["beyond_spread"] else "within the spread, so it may be chance"
        size = _figure(abs(found["difference"]), labels).removesuffix(" %")
        error = _figure(found["standard_error"], labels).removesuffix(" %")
        what = f"{size}{unit} {verb} errors" if labels else f"an error {size} {verb}"
        console.print(f"with dropout: {what}, {beyond} (standard error {error})")
    console.print()


def _figure(value: float, labels: bool) -> str:
    return (f"{100 * value:.1f} %" if labels else f"{value:.4g}").replace("-", MINUS)
