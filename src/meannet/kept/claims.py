"""What docs/claims.md shows: errors of the recipes claims.* by setting and learning rate; relatives of dropout."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from meannet.kept import Result, files, link, load, markdown_table, thinned
from meannet.report.written import MINUS, count, decimal, duration, several, short, signed, spread, spread_of

EMPTY = "No result is kept yet."
RELATIVES = "relatives"  # results/relatives is of `python -m meannet.relatives`
TABLES = {  # recipes that share a table, by its marker
    "claims.rates": ("claims.rates",),
    "claims.inputs": ("claims.inputs",),
    "claims.layers": ("claims.layers",),
    "claims.bound": ("claims.bound",),
    "claims.decaying": ("claims.decaying", "claims.constant"),
    "claims.momentum": ("claims.high_momentum", "claims.low_momentum"),
    "claims.shrinking": ("claims.shrinking",),
    "claims.adapted": ("claims.adapted",),
}
DRAWN = {"claims.rates": "rate of hidden units", "claims.inputs": "rate of inputs, hidden units at 0.5"}
SIZE, SHOWN = (900, 340), (30, 120)  # of the picture, in CSS pixels; errors that it shows


def blocks(folder: Path, base: Path) -> dict[str, Callable[[], str]]:
    """What stands between each marker of the page."""
    found: dict[str, Callable[[], str]] = {
        name: lambda which=which: table(which, folder, base) for name, which in TABLES.items()
    }
    return found | {
        "thinned": lambda: thinned.table(folder, base),
        "averaging": lambda: averaging_table(folder, base),
        "naive-bayes": lambda: bayes_table(folder, base),
        "monte-carlo": lambda: chain_table(folder, base),
        "gates": lambda: gates_table(folder, base),
    }


def table(which: Sequence[str], folder: Path, base: Path) -> str:
    """A row a setting, a column a learning rate: test errors, mean and spread over seeds; nets that were stopped."""
    kept = [pair for recipe in which for pair in zip(files(recipe, folder), load(recipe, folder), strict=True)]
    if not kept:
        return EMPTY
    rows: dict[str, dict[float, str]] = {}
    for _, result in kept:
        for (setting, lr), arm in _arms(result).items():
            stopped = f"{len(arm['stopped'])} stopped" if arm["stopped"] else ""
            errors = spread(arm["mean"], arm["sd"]) if arm["seeds"] else ""
            rows.setdefault(setting, {})[lr] = "; ".join(filter(None, (errors, stopped)))
    rates = sorted({lr for cells in rows.values() for lr in cells})
    heads = ("", *(f"lr {lr:g}" for lr in rates))
    cells = [(setting, *(found.get(lr, "") for lr in rates)) for setting, found in rows.items()]
    words = [_words(path, result, base) for path, result in kept]
    return "\n\n".join((markdown_table(heads, cells, right=range(1, len(heads))), *words))


def averaging_table(folder: Path, base: Path) -> str:
    """A row a way of averaging, a column a number of networks."""
    found = _relative("averaging", folder)
    if found is None:
        return EMPTY
    counts = list(dict.fromkeys(row["networks"] for row in found["rows"]))
    cells: dict[str, list[str]] = {}
    for row in found["rows"]:
        cells.setdefault(f"{row['way']}, lr {row['lr']:g}", []).append(spread_of(row["errors"]))
    heads = ("networks averaged", *map(str, counts))
    rows = [(way, *errors) for way, errors in cells.items()]
    first = found["rows"][0]
    repeats = several(len(first["errors"]), "repeat")
    words = f"test errors of {count(first['n_test'])} digits, learning rates chosen on held-out ones, {repeats}"
    return _with_words(heads, rows, found, words, folder, base)


def bayes_table(folder: Path, base: Path) -> str:
    """A row a data set and number of training cases, a column a classifier."""
    found = _relative("naive_bayes", folder)
    if found is None:
        return EMPTY
    ways = list(dict.fromkeys(row["way"] for row in found["rows"]))
    cells: dict[tuple[str, int], list[str]] = {}
    for row in found["rows"]:
        percents = [100 * errors / row["n_test"] for errors in row["errors"]]
        cells.setdefault((row["data"], row["cases"]), []).append(spread_of(percents))
    rows = [(name, count(cases), *errors) for (name, cases), errors in cells.items()]
    heads = ("data", "cases", *(f"{way}, %" for way in ways))
    repeats = several(len(found["rows"][0]["errors"]), "repeat")
    words = f"test errors in per cent, {repeats} with training cases of its own"
    return _with_words(heads, rows, found, words, folder, base)


def chain_table(folder: Path, base: Path) -> str:
    """A row a way of coming by networks and number of them: errors, log probability, time."""
    found = _relative("monte_carlo", folder)
    if found is None:
        return EMPTY
    rows, accepted = [], []
    for row in found["rows"]:
        way, right = f"{row['way']}, {row['setting']}", statistics.fmean(row["log_probability"])
        figures = spread_of(row["errors"]), f"{right:.2f}".replace("-", MINUS), f"{row['cpu_seconds']:.2f}"
        rows.append((way, count(row["networks"]), *figures))
        accepted = row.get("acceptance", accepted)
    heads = ("way", "networks averaged", "errors", "log probability", "CPU, s")
    first = found["rows"][0]
    words = (
        f"test errors of {count(first['n_test'])} digits, mean log probability of the right class, and seconds of CPU "
        f"a repeat, {several(len(first['errors']), 'repeat')}; settings chosen on held-out digits; chains accept "
        f"{min(accepted):.2f} to {max(accepted):.2f} of their proposals"
    )
    return _with_words(heads, rows, found, words, folder, base)


def gates_table(folder: Path, base: Path) -> str:
    """A row a data set and way: errors, what they are more than with a fixed rate, what gates keep."""
    found = _relative("gates", folder)
    if found is None:
        return EMPTY
    fixed = {row["data"]: row["errors"] for row in found["rows"] if row["way"] == "rate 0.5"}
    rows = []
    for row in found["rows"]:
        more = [ours - theirs for ours, theirs in zip(row["errors"], fixed[row["data"]], strict=True)]
        error = statistics.stdev(more) / len(more) ** 0.5
        beside = "" if row["way"] == "rate 0.5" else f"{signed(statistics.fmean(more))} ± {decimal(error)}"
        kept = f"{row['kept']:.2f} ± {row['kept_sd']:.2f}" if "kept" in row else ""
        pace = f", pace {row['pace']:g}" if "pace" in row else ""
        way = f"{row['data']}: {row['way']}, lr {row['lr']:g}{pace}"
        rows.append((way, spread_of(row["errors"]), beside, kept))
    heads = ("data and way", "errors", "more than rate 0.5", "kept")
    first = found["rows"][0]
    words = (
        f"test errors of {count(first['n_test'])}, {several(len(first['errors']), 'seed')}; paired differences with "
        "their standard errors; share of hidden units kept, with its standard deviation over cases"
    )
    return _with_words(heads, rows, found, words, folder, base)


def _relative(name: str, folder: Path) -> Result | None:
    path = folder / RELATIVES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _with_words(
    heads: Sequence[str], rows: Sequence[Sequence[str]], found: Result, words: str, folder: Path, base: Path
) -> str:
    name = found["comparison"]
    where = f"[{name}]({link(folder / RELATIVES / f'{name}.json', base)})"
    table = markdown_table(heads, rows, right=range(1, len(heads)))
    return f"{table}\n\n{where}: {words}; {duration(found['seconds'])} on {found['device']}."


def picture(folder: Path) -> tuple[str, str, str] | None:
    """Errors against the rate of hidden units and of inputs, a line a learning rate: SVG, title and caption."""
    from meannet.report.svg import ARMS, SOFT, drawing, finish, style

    kept = {recipe: load(recipe, folder) for recipe in DRAWN}
    if not all(kept.values()):
        return None
    results = {recipe: found[0] for recipe, found in kept.items()}
    with style():
        made, whole = drawing(*SIZE)
        whole.remove()
        for number, (recipe, below) in enumerate(DRAWN.items()):
            axes = made.add_axes((0.05 + 0.5 * number, 0.15, 0.44, 0.76))
            for k, (lr, line) in enumerate(_lines(results[recipe]).items()):
                axes.plot(list(line), list(line.values()), "o-", color=ARMS[k], linewidth=2.2, markersize=5)
                shown = [(rate, errors) for rate, errors in line.items() if errors < SHOWN[1]]
                for end in shown[-1:]:
                    axes.annotate(f"lr {lr:g}", end, (8, -5), textcoords="offset points", color=ARMS[k])
            axes.set_ylim(*SHOWN)
            judged = count(results[recipe]["data"]["n_test"])
            axes.set_title(f"test errors of {judged}", loc="left", color=SOFT, fontsize=13)
            axes.set_xlabel(below)
        drawn = finish(made, "Test errors by rate of omission, hidden units and inputs")
    return drawn, *_title(results["claims.rates"])


def _title(result: Result) -> tuple[str, str]:
    lines = _lines(result).values()
    none, half = (min(line[rate] for line in lines if rate in line) for rate in (0.0, 0.5))
    title = f"Digits: {short(none)} errors where no unit is omitted, {short(half)} with half of the hidden ones"
    seeds = several(max(len(arm["seeds"]) for arm in result["arms"]), "seed")
    return (
        title,
        f"{result['arms'][0]['net']}, means of {seeds}, a line a learning rate; the title has the best of these",
    )


def _lines(result: Result) -> dict[float, dict[float, float]]:
    """By learning rate, mean errors by rate of omission; settings with which every net was stopped have none."""
    found: dict[float, dict[float, float]] = {}
    for (setting, lr), arm in _arms(result).items():
        if arm["seeds"]:
            found.setdefault(lr, {})[float(setting.removeprefix("rate "))] = arm["mean"]
    return found


def _arms(result: Result) -> dict[tuple[str, float], Result]:
    """By setting and learning rate, which an arm's name ends in."""
    parted = (arm["name"].rpartition(", lr ") for arm in result["arms"])
    return {(name, float(lr)): arm for (name, _, lr), arm in zip(parted, result["arms"], strict=True)}


def _words(path: Path, result: Result, base: Path) -> str:
    data, net = result["data"], result["arms"][0]["net"]
    seeds = several(max(len(arm["seeds"]) for arm in result["arms"]), "seed")
    return (
        f"[{result['recipe']}]({link(path, base)}): test errors of {count(data['n_test'])}, {net}, "
        f"{count(data['n_train'])} training cases, {count(result['epochs'])} epochs, {seeds}; "
        f"{duration(result['seconds'])} on {result['device']}."
    )
