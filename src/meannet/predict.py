"""`meannet predict` and `meannet export`: labels and probabilities for new cases, and the net in other forms."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meannet import export, plain
from meannet.atomic import write_atomically
from meannet.data import files
from meannet.data.columns import Encoding
from meannet.data.table import read as read_table
from meannet.estimators.cases import chunks
from meannet.judged import known_errors
from meannet.trained import Choice, Trained, open_trained

FORMS = (".csv", ".json")
BEST = 5  # labels of a photograph, of a thousand


def predict_and_tell(options: argparse.Namespace) -> int:
    """Answers as CSV or JSON on stdout or in a file; which net gave them is said on stderr."""
    out = Path(options.out) if options.out else None
    if out:
        if options.json:
            raise ValueError(f"--json is for stdout; drop it, and {out.with_suffix('.json')} will hold JSON")
        if out.suffix not in FORMS:
            raise ValueError(f"{out} must end in {' or '.join(FORMS)}")
        export.check_target(out, force=options.force)
    trained = _trained(options)
    facts = trained.facts
    paths = [Path(path) for path in options.files]
    table = read_table(_only(paths)) if "table" in facts else None
    if table is not None:
        cases, inputs = range(len(table)), Encoding.from_json(facts["table"]).encode_new(table, _say)
    else:
        cases, inputs = files.read(paths, _wanted(facts), _say)
    outputs = _outputs(trained, inputs)
    as_json = options.json or (out is not None and out.suffix == ".json")
    text = (_json if as_json else _csv)(facts, cases, outputs)
    if out is not None:
        write_atomically(out, text.encode())
    _say(f"mean network of {trained.chosen}")
    if table is not None:
        classes = facts["classes"] and facts["classes"][0]
        for line in known_errors(table, facts["table"]["target"], plain.answers(facts, outputs), classes):
            _say(line)
    sys.stdout.write(text if out is None else f"wrote {out}: {len(cases):,} cases\n")
    return 0


def _wanted(facts: dict[str, Any]) -> files.Wanted:
    return files.Wanted(
        facts["sizes"][0],
        facts["image"],
        facts["names"],
        facts["largest"],
        facts.get("channels", 1),
        squeezed=facts.get("views", 1) > 1,
    )


def _only(paths: Sequence[Path]) -> Path:
    if len(paths) > 1 or paths[0].suffix == ".npy":
        raise ValueError("the net takes one table at a time, a file with names in its first line")
    return paths[0]


def export_and_tell(options: argparse.Namespace) -> int:
    """The mean network in a form that needs no meannet."""
    out = Path(options.out)
    export.check(out, options.to, force=options.force)
    trained = _trained(options)
    found = export.write(trained.network, trained.facts, out, options.to, force=options.force)
    _say(f"mean network of {trained.chosen}")
    if "table" in trained.facts:
        names = trained.facts["names"]
        _say(f"it takes {len(names)} numbers, not the table: words as 0 and 1, missing ones filled in; named in {out}")
    print(f"wrote {out}: {found}")
    return 0


def _trained(options: argparse.Namespace) -> Trained:
    choice = Choice(net=options.net, arm=options.arm, seed=options.seed, divide=options.divide)
    return open_trained(Path(options.run), choice)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


@torch.no_grad()
def _outputs(trained: Trained, inputs: np.ndarray | files.Pictures) -> torch.Tensor:
    parts = chunks(inputs, max(trained.facts["sizes"]))
    return torch.cat([trained.network(torch.from_numpy(part)) for part in parts])


def _csv(facts: dict[str, Any], cases: Sequence[int | str], outputs: torch.Tensor) -> str:
    """A line a case: its number or name, what it is taken for, and each probability; of photographs the best five."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if facts.get("views", 1) > 1:
        more = [name for place in range(2, BEST + 1) for name in (f"label_{place}", f"p_{place}")]
        writer.writerow(["case", "label", "p", *more])
        for case, best in zip(cases, _best(facts, outputs), strict=True):
            given = [cell for one in best for cell in (one["label"], f"{one['probability']:.6g}")]
            writer.writerow([case, *given, *[""] * (2 * (BEST - len(best)))])
        return text.getvalue()
    answer, probabilities = _columns(facts)
    writer.writerow(["case", *answer, *probabilities])
    for case, found, row in zip(cases, plain.answers(facts, outputs), outputs.tolist(), strict=True):
        given = [f"{value:.6g}" for value in row] if probabilities else []
        writer.writerow([case, *(found if isinstance(found, list) else [found]), *given])
    return text.getvalue()


def _best(facts: dict[str, Any], outputs: torch.Tensor) -> list[list[dict[str, Any]]]:
    """The five best labels of each case, or as many as there are."""
    found, (classes,) = outputs.topk(min(BEST, outputs.shape[1])), facts["classes"]
    return [
        [{"label": classes[label], "probability": p} for label, p in zip(labels, values, strict=True)]
        for labels, values in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]


def _columns(facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names of the columns with answers and of those with probabilities."""
    kind, outputs = facts["answers"], range(facts["sizes"][-1])
    if kind == "number":
        return ["prediction"], []
    if kind == "numbers":
        return [f"prediction_{number}" for number in outputs], []
    if kind == "multilabel":
        return [f"label_{number}" for number in outputs], [f"p_{number}" for number in outputs]
    if kind == "single":
        return ["label"], [f"p_{label}" for label in facts["classes"][0]]
    targets = list(enumerate(facts["classes"]))
    probabilities = [f"p_{target}_{label}" for target, known in targets for label in known]
    return [f"label_{target}" for target, _ in targets], probabilities


def _json(facts: dict[str, Any], cases: Sequence[int | str], outputs: torch.Tensor) -> str:
    """The net, its classes, and for each case `label` or `labels` and `probabilities`, or `prediction`.

    For photographs also `best`, five labels with their probabilities.
    """
    kind = facts["answers"]
    key = {"single": "label", "several": "labels", "multilabel": "labels"}.get(kind, "prediction")
    if kind == "several":
        sizes = [len(known) for known in facts["classes"]]
        given = list(zip(*(part.tolist() for part in outputs.split(sizes, -1)), strict=True))
    else:
        given = outputs.tolist()
    rows = []
    for case, found, row in zip(cases, plain.answers(facts, outputs), given, strict=True):
        rows.append({"case": case, key: found} | ({"probabilities": row} if key != "prediction" else {}))
    if facts.get("views", 1) > 1:
        rows = [row | {"best": best} for row, best in zip(rows, _best(facts, outputs), strict=True)]
    classes = facts["classes"] if kind == "several" or facts["classes"] is None else facts["classes"][0]
    return json.dumps({"net": facts["of"], "classes": classes, "cases": rows}) + "\n"
