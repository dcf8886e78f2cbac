"""`python -m meannet.relatives averaging naive_bayes …`: relatives of dropout compared, into results/relatives."""

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from meannet import data, device, recipes
from meannet.atomic import write_atomically
from meannet.config import Data
from meannet.relatives import averaging, gates, monte_carlo, naive_bayes

OF_DIGITS = {
    "averaging": averaging,
    "monte_carlo": monte_carlo,
    "gates": gates,
}  # with settings chosen on held-out ones
NAMES = *OF_DIGITS, "naive_bayes"


def document(name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """What the file of a comparison holds."""
    started, digits = time.perf_counter(), data.load(Data(name="digits"), say=say)
    used = [digits]
    if name in OF_DIGITS:
        choosing = data.load(Data(name="digits", held_out=True), say=say)
        rows = OF_DIGITS[name].compare((choosing.train, choosing.test), (digits.train, digits.test), say)
    else:
        used.append(data.load(recipes.get("reuters.r21578").data, say=say))
        curves = naive_bayes.of_digits(digits), naive_bayes.of_documents(used[1])
        rows = [row for one in curves for row in naive_bayes.compare(one, say)]
    return {
        "comparison": name,
        "date": datetime.date.today().isoformat(),
        "rows": rows,
        "data": [{"name": one.name, "n_train": len(one.train.targets), "digest": one.digest} for one in used],
        "device": device.describe(device.choose("cpu")),
        "seconds": round(time.perf_counter() - started, 1),
        "commit": device.commit(),
        "versions": device.versions(),
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m meannet.relatives", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="+", choices=NAMES, help=" or ".join(NAMES))
    parser.add_argument(
        "-o", "--out", metavar="DIR", default="results/relatives", help="results/relatives, unless given"
    )
    options = parser.parse_args(arguments)
    for name in options.names:
        path = Path(options.out) / f"{name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, (json.dumps(document(name, print), indent=1) + "\n").encode())
        except (data.DataError, OSError) as error:
            print(f"meannet.relatives: {error}", file=sys.stderr)
            return 1
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
