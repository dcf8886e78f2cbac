"""`meannet fit`: a net with dropout for a table of one's own, judged beside the same net without, then saved whole."""

import argparse
import json
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.base import clone
from sklearn.utils import check_random_state

from meannet import export, screen
from meannet.atomic import naming
from meannet.config import nearest
from meannet.console import EXIT_STOPPED_NETS, StopRequest
from meannet.data.columns import Encoding, Task, task
from meannet.data.table import read, short, some
from meannet.device import choose
from meannet.estimators import DropoutClassifier, DropoutRegressor, saved
from meannet.estimators.fitting import TrainingFailed
from meannet.judged import ENOUGH, SEED, arm_of, judged
from meannet.options import Interrupted
from meannet.report.written import plain, rate, several
from meannet.typed import as_typed

KINDS = ("labels", "numbers")
NOTES = 3
NAMES = {
    "dropout": "the net with dropout",
    "backprop": "the net without dropout",
    "random forest": "random forest",
    "commonest": "always the commonest label",
    "mean": "always the mean",
}
FIXED = ("pretrain", "verbose", "warm_start")  # parameters that are no matter of the command line


def fit_and_tell(options: argparse.Namespace) -> int:
    """Judge on rows that were not trained on, train on all of them, save; returns the exit code."""
    stop, out = StopRequest(), None if options.out is None else Path(options.out)
    console = screen.lasting(stderr=options.json)
    check_request(options, out)
    before = _stamp(out)
    try:
        with stop.catching():
            found = fitted(options, out, console)
    except Interrupted:
        console.print("stopped; nothing was written" if _stamp(out) == before else f"stopped after {out} was written")
        return 128 + stop.received
    except TrainingFailed as error:
        print(f"meannet: {error}", file=sys.stderr)
        return EXIT_STOPPED_NETS
    if options.json:
        print(json.dumps(found, allow_nan=False))
    return 0


def fitted(options: argparse.Namespace, out: Path | None, console: Console) -> dict[str, Any]:
    """What `--json` prints; all else goes to the console."""
    chosen = {"drop": options.drop, "words": options.words, "kind": options.kind}
    learn = task(read(options.file), options.column, **chosen, say=console.print)
    net = (DropoutClassifier if learn.labels else DropoutRegressor)(random_state=SEED)
    net.set_params(**settings(net, options.settings))
    told(console, learn, options)
    encoding = Encoding.of(learn)
    start = perf_counter()
    document: dict[str, Any] = {
        "table": options.file,
        "column": options.column,
        "kind": KINDS[not learn.labels],
        "rows": len(learn.target),
        "columns": list(learn.values),
        "inputs": encoding.inputs,
        "folds": options.folds,
        "repeats": options.repeats if options.folds else 0,
        "judged": [],
        "comparison": None,
    }
    with noting(console):
        if options.folds:
            document |= judged(learn, net, options.folds, options.repeats, console)
            tell_judged(console, document)
        if out:
            net.fit(encoding.encode(learn.values), learn.target)
            saved.save(net, out, table=encoding.to_json())
            console.print(f"wrote {out}: {NAMES[arm_of(net)]}, trained on all {len(learn.target):,} rows")
            console.print(f"next, try: {as_typed(f'meannet predict {shlex.quote(str(out))} NEW.csv')}")
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
        raise ValueError(f"-o must name a file that ends in .safetensors, not {options.out!r}")
    export.check_target(out, force=options.force)
    with naming(out), TemporaryFile(dir=out.parent):
        pass  # so that a folder that cannot be written to is told before anything is trained


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """By which a file that was written anew is known."""
    if path is None or not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def settings(net: Any, given: Sequence[str]) -> dict[str, Any]:
    """Parameters of the estimator from NAME=VALUE."""
    known = [name for name in net.get_params(deep=False) if name not in FIXED]
    found = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not text.strip(","):
            raise ValueError(f"--set takes NAME=VALUE, not {one!r}")
        if name not in known:
            raise ValueError(f"no setting {name!r}; {nearest(name, known)}")
        parts = tuple(_value(part) for part in text.split(",") if part)
        found[name] = parts if "," in text else parts[0]
    trial = clone(net).set_params(**found)
    trial._check_parameters()
    check_random_state(trial.random_state)
    choose(trial.device)
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"none": None, "true": True, "false": False}.get(text.lower(), text)


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


def told(console: Console, learn: Task, options: argparse.Namespace) -> None:
    """What was made of the table, so that a mistake is seen."""
    words = {name: len(set(held) - {""}) for name, held in learn.values.items() if held.dtype == object}
    numbers = len(learn.values) - len(words)
    parts = [several(numbers, "column") + " of numbers"] * bool(numbers)
    named = some([f"{short(name)} {count:,}" for name, count in words.items()])
    parts += [f"{several(len(words), 'column')} of words (different ones: {named})"] * bool(words)
    console.print(f"{learn.table.path}: {several(len(learn.target), 'row')}; {' and '.join(parts)}")
    gaps = {name: int(_missing(held).sum()) for name, held in learn.values.items()}
    if named := [f"{short(name)} {count:,}" for name, count in gaps.items() if count]:
        console.print(f"missing, and told to the net as such: {some(named)}")
    if not learn.labels:
        low, mean, high = (plain(float(value)) for value in (f(learn.target) for f in (np.min, np.mean, np.max)))
        console.print(f"{learn.name}: numbers from {low} to {high}, mean {mean} (--as labels takes them for labels)")
        return
    counts = Counter(learn.target.tolist()).most_common()
    other = "" if options.kind or learn.table.no_numbers(learn.name) else " (--as numbers takes them for numbers)"
    shown = some([f"{short(label)} {count:,}" for label, count in counts])
    console.print(f"{learn.name}: {len(counts)} labels, {shown}{other}")
    if rare := [f"{short(label)} {count:,}" for label, count in counts if count < options.folds]:
        console.print(f"note: labels in fewer rows than there are folds: {some(rare)}")


def _missing(held: np.ndarray) -> np.ndarray:
    return held == "" if held.dtype == object else np.isnan(held)


def tell_judged(console: Console, document: dict[str, Any]) -> None:
    labels = document["kind"] == "labels"
    figure = "errors" if labels else "root mean square error"
    times = f", {document['repeats']} times" * (document["repeats"] > 1)
    judged_on = f"on rows not trained on, {document['folds']} folds{times}"
    table = screen.table(judged_on, numbers=(f"{figure}, mean", "± sd over folds"))
    for row in document["judged"]:
        table.add_row(NAMES[row["name"]], _figure(row["mean"], labels), _figure(row["sd"], labels))
    console.print()
    console.print(table)
    if document["comparison"]:
        console.print(compared_told(document["comparison"], labels))
    console.print()


def compared_told(found: dict[str, Any], labels: bool) -> str:
    size, error = (_figure(abs(found[part]), labels).removesuffix(" %") for part in ("difference", "standard_error"))
    fewer = found["difference"] < 0
    told = f"{size} points {'fewer' if fewer else 'more'} errors" if labels else f"{size} {'less' if fewer else 'more'}"
    if found["difference"] == 0:
        told = "as many errors" if labels else "as large an error"
    if found["folds"] < ENOUGH:
        verdict = f"{found['folds']} folds are too few to tell it from chance"
    else:
        verdict = "beyond the spread" if found["beyond_spread"] else "within the spread, so it may be chance"
    return f"with dropout {told}: {verdict} (standard error {error})"


def _figure(value: float, labels: bool) -> str:
    return rate(100 * value) if labels else f"{value:.4g}"
