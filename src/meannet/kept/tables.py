"""Tables of kept results, in markdown: errors beside the paper's, choices, asides, baselines."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meannet.kept import NONE_YET, Result, files, judged_on, link, load, markdown_table, scattered
from meannet.report.written import count, decimal, duration, plain, spread, spread_of

ARMS = "backprop", "dropout", "dropout+input"
LABELS = "few_labels"  # results/few_labels is of examples/few_labels.py
TITLES = {"mnist": "MNIST", "digits": "handwritten digits"}
ASIDES = tuple(f"cifar10.{name}" for name in ("aside", "pools", "saturating", "conv_dropout", "dense_top", "no_top"))
HEADLINES = {  # what the body of the paper reports, where its data is free: recipes by what they are
    "MNIST from scratch, four nets (Fig. 1)": ("mnist.a1",),
    "MNIST, pretrained deep belief net": ("mnist.a2_dbn",),
    "MNIST, pretrained deep Boltzmann machine": ("mnist.a2_dbm",),
    "CIFAR-10, three hidden layers; with dropout four, in the last": ("cifar10.g_conv", "cifar10.g_local_dropout"),
}
ROUNDING, MOMENTA = "mnist.rounding", "timit.rates"  # and timit.rates_m50, timit.rates_m98
TRAINED = 0.25  # the training error that units are timed to (F.3)


def results_table(folder: Path, base: Path) -> str:
    """What was judged on test sets, a net a row, in bold where it beats backprop; links start from the folder `base`.

    What the paper has a figure for comes first, the longest training before others. Runs that compare settings have
    tables of their own.
    """
    from meannet.report.tables import claim_rows

    kept = [
        (path, result, claim_rows(result))
        for path, result in judged_on(folder, held_out=False)
        if not _settings(result)
    ]
    kept.sort(key=lambda one: (all(row.paper is None for row in one[2]), -one[1]["epochs"]))
    if not kept:
        return "No result is kept yet."
    arms = [arm for arm in ARMS if any(row.arm == arm for _, _, found in kept for row in found)]
    rows = []
    for path, result, found in kept:
        name = f"[{result['recipe']}/{path.stem}]({link(path, base)})"
        of = "% of frames" if result["data"].get("percent") else count(result["data"]["n_test"])
        seen = [f"{name}, {count(result['epochs'])} epochs", of, f"{duration(result['seconds'])}, {result['device']}"]
        for net in dict.fromkeys(row.net for row in found):
            cells = {row.arm: _cell(row, result) for row in found if row.net == net}
            seeds = max(row.n for row in found if row.net == net)
            rows.append((seen[0], net, *(cells.get(arm, "") for arm in arms), seen[1], str(seeds), seen[2]))
            seen = ["", "", ""]
    heads = ("experiment", "net", *(f"errors, {arm}" for arm in arms), "of", "seeds", "time of the whole run")
    return markdown_table(heads, rows, right=range(2, 4 + len(arms)))


def headlines_table(folder: Path, base: Path) -> str:
    """The paper's experiments, one a row: errors of each arm, over several nets the least and the most mean; paper.

    In bold where every net makes fewer than with backprop, beyond the spread.
    """
    from meannet.report.tables import claim_rows

    rows = []
    for title, names in HEADLINES.items():
        found = [(row, result) for name in names for result in load(name, folder) for row in claim_rows(result)]
        cells = [_headline([one for one in found if one[0].arm == arm and one[0].mean is not None]) for arm in ARMS]
        seeds = sorted({row.n for row, _ in found})
        if found:
            rows.append((title, *cells, " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))))
    if not rows:
        return "No result is kept yet."
    heads = ("errors on test sets of 10,000", "nothing omitted", "hidden units", "hidden and visible units", "seeds")
    return markdown_table(heads, rows, right=range(1, len(heads)))


def _headline(found: Sequence[tuple[Any, Result]]) -> str:
    if not found:
        return ""
    means, one = sorted(row.mean for row, _ in found), found[0][0]
    span = " to ".join(dict.fromkeys((decimal(means[0]), decimal(means[-1]))))
    ours = spread(means[0], one.sd) if len(found) == 1 else span
    if all(_ahead(row, result) for row, result in found):
        ours = f"**{ours}**"
    return ours + (f" (paper: {plain(one.paper)})" if one.paper is not None else "")


def settings_table(folder: Path, base: Path) -> str:
    """How little or much errors depend on learning rate and momentum (B.2): one an arm and row, a run a column."""
    kept = [pair for pair in judged_on(folder, held_out=False) if pair[1]["recipe"].startswith(MOMENTA)]
    if not kept:
        return "No result is kept yet."
    names = list(dict.fromkeys(arm["name"] for _, result in kept for arm in result["arms"]))
    found = [{arm["name"]: spread(arm["mean"], arm["sd"]) for arm in result["arms"]} for _, result in kept]
    heads = ("arm", *(f"[{result['recipe']}]({link(path, base)})" for path, result in kept))
    rows = [(name, *(one.get(name, "") for one in found)) for name in names]
    return markdown_table(heads, rows, right=range(1, len(heads)))


def _settings(result: Result) -> bool:
    return any(arm["name"] not in ARMS for arm in result["arms"])


def _cell(row: Any, result: Result) -> str:
    """An arm's mean and spread, bold if beyond the spread below backprop's; each seed where those say little; paper."""
    arm = next(a for a in result["arms"] if (a["net"], a["name"]) == (row.net, row.arm))
    ours = ", ".join(map(count, arm["errors"])) if scattered(arm) else spread(row.mean, row.sd)
    if _ahead(row, result):
        ours = f"**{ours}**"
    stopped = f"; {row.stopped} stopped" if row.stopped else ""
    paper = f" (paper: {plain(row.paper)})" if row.paper is not None else ""
    return f"{ours}{stopped}{paper}"


def _ahead(row: Any, result: Result) -> bool:
    """Whether an arm makes fewer errors than backprop in the same net, beyond the spread."""
    judged = [pair for pair in result["comparisons"] if (pair["net"], pair["arm"]) == (row.net, row.arm)]
    return any(pair["over"] == "backprop" and pair["beyond_spread"] and pair["difference"] < 0 for pair in judged)


def choices_table(folder: Path, base: Path) -> str:
    """How settings were chosen: of each kind of arm the two that made fewest errors on held-out training cases."""
    rows = []
    for path, result in judged_on(folder, held_out=True):
        if not result["recipe"].partition(".")[2].startswith("choose"):
            continue
        name = f"[{result['recipe']}]({link(path, base)})"
        kinds: dict[str, list[dict[str, Any]]] = {}
        for arm in result["arms"]:
            kinds.setdefault(arm["name"].partition(",")[0], []).append(arm)
        for kind, arms in kinds.items():
            ranked = sorted((arm for arm in arms if arm["mean"] is not None), key=lambda arm: arm["mean"])
            shown = [
                f"{arm['name'].partition(', ')[2] or kind}: {spread(arm['mean'], arm['sd'])} ({len(arm['seeds'])})"
                for arm in ranked[:2]
            ]
            rows.append((name, arms[0]["net"], kind, str(len(arms)), *shown, *[""] * (2 - len(shown))))
            name = ""
    if not rows:
        return "No choice is kept yet."
    heads = ("experiment", "net", "arm", "settings", "fewest held-out errors (n)", "next")
    return markdown_table(heads, rows, right=(3,))


def rounding_table(folder: Path, base: Path) -> str:
    """Whether errors depend on the precision of products: arms by precision, on held-out cases."""
    rows, arms = [], []
    for path, result in zip(files(ROUNDING, folder), load(ROUNDING, folder), strict=True):
        arms = [arm["name"] for arm in result["arms"]]
        cells = [spread(arm["mean"], arm["sd"]) for arm in result["arms"]]
        rows.append((f"[{result['precision']}]({link(path, base)})", *cells, duration(result["seconds"])))
    if not rows:
        return NONE_YET
    return markdown_table(("products in", *arms, "time"), rows, right=range(1, len(arms) + 2))


def asides_table(folder: Path, base: Path) -> str:
    """What the paper says of image nets in passing: held-out errors, and epochs to a given training error."""
    rows = []
    for path, result in judged_on(folder, held_out=True):
        if result["recipe"] not in ASIDES:
            continue
        name = f"[{result['recipe']}]({link(path, base)})"
        for arm in result["arms"]:
            epochs = [
                e for e, share in zip(arm["curve"]["epochs"], arm["curve"]["train"], strict=True) if share <= TRAINED
            ]
            reached = str(epochs[0]) if epochs else f"not in {result['epochs']}"
            rows.append(
                (name, arm["net"], arm["name"], spread(arm["mean"], arm["sd"]), str(len(arm["seeds"])), reached)
            )
            name = ""
    if not rows:
        return "No aside is kept yet."
    heads = ("experiment", "net", "arm", "held-out errors", "seeds", f"epochs to {TRAINED:.0%} training errors")
    return markdown_table(heads, rows, right=(3, 4, 5))


def baselines_table(folder: Path, base: Path) -> str:
    """Linear classifiers and naive Bayes on the documents of a recipe, a row each."""
    rows = []
    for path in sorted(folder.glob("*/baselines/linear.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        name = f"[{found['recipe']}]({link(path, base)})"
        for row in found["rows"]:
            share = f"{100 * row['errors'] / row['n_test']:.2f} %"
            rows.append((name, row["name"], row["setting"], f"{count(row['errors'])} of {count(row['n_test'])}", share))
            name = ""
    if not rows:
        return "No baseline is kept yet."
    heads = ("documents of", "classifier", "chosen on held-out documents", "test errors", "")
    return markdown_table(heads, rows, right=(3, 4))


def labels_table(folder: Path, base: Path) -> str:
    """Test errors of nets from scratch and of pretrained ones, by number of labels, from examples/few_labels.py."""
    rows, words, heads = [], [], ("where", "labels", "from scratch", "pretrained")
    for path, result in zip(files(LABELS, folder), load(LABELS, folder), strict=True):
        where = f"[{path.stem}]({link(path, base)})"
        for row in result["rows"]:
            rows.append(
                (where, count(row["labels"]), *(_share(row["errors"][name], row["n_test"]) for name in heads[2:]))
            )
            where = ""
        name = TITLES.get(result["data"], result["data"])
        pretrained = f"{name}, pretrained on all {count(result['pictures'])} pictures without labels"
        words.append(f"{path.stem}: {pretrained}, {result['seeds']} seeds; {result['device']}, {result['date']}.")
    return "\n\n".join((markdown_table(heads, rows, right=(1, 2, 3)), *words)) if rows else "No result is kept yet."


def _share(errors: Sequence[int], n_test: int) -> str:
    return f"{spread_of([100 * wrong / n_test for wrong in errors])} %"


BLOCKS = {  # by the marker of a page
    "headlines": headlines_table,
    "results": results_table,
    "choices": choices_table,
    "asides": asides_table,
    "rounding": rounding_table,
    "baselines": baselines_table,
    "few-labels": labels_table,
    "settings": settings_table,
}
