"""Linear classifiers and naive Bayes on the very documents of a recipe (C), to hold its nets against.

`python -m meannet.relatives.linear reuters.subset` writes `results/reuters.subset/baselines/linear.json`.
The one setting of each is chosen on the recipe's held-out training documents; then it learns from all of them and is
judged on the test documents, once.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from meannet import data, device, recipes
from meannet.atomic import write_atomically
from meannet.data import Cases, Dataset


class Baseline(NamedTuple):
    """A classifier of scikit-learn, the values tried for its one setting, and whether it takes counts C themselves."""

    make: Callable[[float], Any]
    setting: str
    values: tuple[float, ...]
    counts: bool = False


def baselines() -> dict[str, Baseline]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.svm import LinearSVC

    values = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    return {
        "logistic regression": Baseline(lambda c: LogisticRegression(C=c, max_iter=2000), "C", values[2:]),
        "linear SVM": Baseline(lambda c: LinearSVC(C=c, max_iter=20_000, random_state=0), "C", values[:-2]),
        "naive Bayes": Baseline(lambda a: MultinomialNB(alpha=a), "alpha", values[1:], True),
    }


def compare(recipe: str, *, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """What the file of a recipe holds."""
    experiment, started = recipes.get(recipe), time.perf_counter()
    wanted = replace(experiment.data, held_out=True)
    choosing, judging = data.load(wanted, say=lambda _: None), data.load(experiment.data, say=say)
    rows = [_row(name, one, choosing, judging) for name, one in baselines().items()]
    for row in rows:
        percent = 100 * row["errors"] / row["n_test"]
        say(f"{row['name']}: {row['errors']} errors of {row['n_test']:,} ({percent:.2f} %), {row['setting']}")
    return {
        "recipe": recipe,
        "rows": rows,
        "data": {
            "name": judging.name,
            "n_train": len(judging.train.targets),
            "n_test": len(judging.test.targets),
            "digest": judging.digest,
        },
        "device": device.describe(device.choose("cpu")),
        "seconds": round(time.perf_counter() - started, 1),
        "commit": device.commit(),
        "versions": device.versions(),
    }


def _row(name: str, one: Baseline, choosing: Dataset, judging: Dataset) -> dict[str, Any]:
    tried = {value: _errors(one, value, choosing) for value in one.values}
    best = min(tried, key=lambda value: tried[value])
    return {
        "name": name,
        "setting": f"{one.setting} {best:g}",
        "errors": _errors(one, best, judging),
        "n_test": len(judging.test.targets),
        "held_out_errors": {f"{one.setting} {value:g}": errors for value, errors in tried.items()},
        "n_held_out": len(choosing.test.targets),
    }


def _errors(one: Baseline, value: float, dataset: Dataset) -> int:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # a fit that is not one is no baseline
        model = one.make(value).fit(matrix(dataset.train, one.counts), dataset.train.targets.numpy())
    return int((model.predict(matrix(dataset.test, one.counts)) != dataset.test.targets.numpy()).sum())


def matrix(cases: Cases, counts: bool) -> csr_array:
    """The cases' log(1 + C), or their counts C."""
    starts, columns, values = (tensor.numpy() for tensor in cases.inputs.tensors())
    parts = np.expm1(values) if counts else values, columns, starts.astype(np.int32)  # scikit-learn takes no int64
    return csr_array(parts, shape=cases.inputs.shape)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m meannet.relatives.linear", description=__doc__)
    parser.add_argument("recipes", metavar="RECIPE", nargs="+", help="a recipe on documents, such as reuters.subset")
    parser.add_argument("-o", "--out", metavar="DIR", default="results", help="results, where not given")
    options = parser.parse_args(arguments)
    for recipe in options.recipes:
        if recipes.get(recipe).data.selection is None:
            parser.error(f"{recipe} is not about documents; there is reuters.subset and reuters.r21578")
    for recipe in options.recipes:
        found, path = compare(recipe, say=print), Path(options.out) / recipe / "baselines" / "linear.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(found, indent=1) + "\n").encode())
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
