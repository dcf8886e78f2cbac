"""Kept results: the result.json files under results/RECIPE/, and what README, paper map and `meannet list` say of them.

`python -m meannet.kept README.md docs/paper-map.md docs/tables.md docs/scale.md …`, as in `make kept`, writes into each
page what stands between its markers, such as `<!-- results -->` and `<!-- /results -->`, and draws the picture that a
`figure` or `ranks` marker shows, and docs/growth.svg for a page that shows it.
"""

import html
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from meannet import recipes
from meannet.report.written import count, duration, plain, short, spread

_FOLDERS = Path(__file__).with_name("results"), Path(__file__).resolve().parents[2] / "results"
FOLDER = next(filter(Path.is_dir, _FOLDERS), _FOLDERS[-1])  # which wheels carry; the checkout's elsewhere
PICTURE, PICTURED = Path("docs") / "errors.svg", ("mnist.a1", "digits")
ARMS = "backprop", "dropout", "dropout+input"
SCALE = "scale"  # results/scale is of `meannet bench --imagenet`, --loader, --ranks and --scaling
GROWTH = Path("..") / "docs" / "growth.svg"  # from the folder of the page that shows it
LABELS = "few_labels"  # results/few_labels is of examples/few_labels.py
TABLES, RANKS = "tables", "ranks.svg"  # results/tables is of no recipe: `meannet bench --tables` made it
TITLES = {"mnist": "MNIST", "digits": "handwritten digits"}
NONE_YET = "not yet"
ASIDES = tuple(f"cifar10.{name}" for name in ("aside", "pools", "saturating", "conv_dropout", "dense_top", "no_top"))
ROUNDING = "mnist.rounding"
TRAINED = 0.25  # the training error that units are timed to (F.3)

Result = dict[str, Any]


def load(recipe: str, folder: Path = FOLDER) -> list[Result]:
    """The kept results of a recipe, by file name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in files(recipe, folder)]


def files(recipe: str, folder: Path = FOLDER) -> list[Path]:
    return sorted((folder / recipe).glob("*.json"))


def summary(recipe: str, folder: Path = FOLDER) -> str:
    """One line about the kept results: each arm's mean over seeds, its range over nets, scattered seeds one by one."""
    found: dict[str, list[float]] = {}
    kept = load(recipe, folder)
    if kept and all(result["data"].get("made_up") for result in kept):
        costs = [f"{duration(r['seconds'])} and {count(r['peak_mib'])} MiB on {r['device']}" for r in kept]
        return f"{'; '.join(costs)}; the data is made up"
    for result in kept:
        for arm in result["arms"]:
            if arm["mean"] is not None:
                found.setdefault(arm["name"], []).extend(arm["errors"] if _scattered(arm) else [arm["mean"]])
    if len(found) > 3:
        best = min(found, key=lambda name: statistics.fmean(found[name]))
        return f"best: {best} ({statistics.fmean(found[best]):.1f})"
    return "; ".join(f"{name} {_span(values)}" for name, values in found.items())


def results_table(folder: Path, base: Path) -> str:
    """What was judged on test sets, a net a row, in bold where it beats backprop; links start from the folder `base`.

    What the paper has a figure for comes first, the longest training before others. Runs that compare settings of one
    arm have a table of their own.
    """
    from meannet.report.tables import claim_rows

    kept = [
        (path, result, claim_rows(result)) for path, result in _kept(folder, held_out=False) if not _settings(result)
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


def settings_table(folder: Path, base: Path) -> str:
    """How little or much errors on test cases depend on settings: one an arm and row, a run a column."""
    kept = [(path, result) for path, result in _kept(folder, held_out=False) if _settings(result)]
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
    ours = ", ".join(map(count, arm["errors"])) if _scattered(arm) else spread(row.mean, row.sd)
    judged = [pair for pair in result["comparisons"] if (pair["net"], pair["arm"]) == (row.net, row.arm)]
    if any(pair["over"] == "backprop" and pair["beyond_spread"] and pair["difference"] < 0 for pair in judged):
        ours = f"**{ours}**"
    stopped = f"; {row.stopped} stopped" if row.stopped else ""
    paper = f" (paper: {plain(row.paper)})" if row.paper is not None else ""
    return f"{ours}{stopped}{paper}"


def choices_table(folder: Path, base: Path) -> str:
    """How settings were chosen: of each kind of arm the two that made fewest errors on held-out training cases."""
    rows = []
    for path, result in _kept(folder, held_out=True):
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
    rows = []
    for path, result in zip(files(ROUNDING, folder), load(ROUNDING, folder), strict=True):
        cells = [spread(arm["mean"], arm["sd"]) for arm in result["arms"]]
        rows.append((f"[{result['precision']}]({link(path, base)})", *cells, duration(result["seconds"])))
    if not rows:
        return NONE_YET
    arms = [arm["name"] for arm in load(ROUNDING, folder)[0]["arms"]]
    return markdown_table(("products in", *arms, "time"), rows, right=range(1, len(arms) + 2))


def asides_table(folder: Path, base: Path) -> str:
    """What the paper says of image nets in passing: held-out errors, and epochs to a given training error."""
    rows = []
    for path, result in _kept(folder, held_out=True):
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
    per_cent = [100 * wrong / n_test for wrong in errors]
    return f"{spread(statistics.fmean(per_cent), statistics.stdev(per_cent) if len(per_cent) > 1 else None)} %"


def picture(results: Sequence[Result]) -> str:
    """The paper's Fig. 1 from kept results, as SVG on a white card: test errors by epoch, a band over seeds."""
    from meannet.report.figures import WIDE, Ending, frame
    from meannet.report.svg import INK, arm_colour, drawing, finish, style

    title, caption = picture_words(results)
    last, names = ends(results), [arm["name"] for arm in results[0]["arms"]]
    published = [claim["value"] for claim in results[0]["claims"] if claim["arm"] == "backprop"]
    with style():
        made, axes = drawing(*WIDE)
        for arm in (arm for result in results for arm in result["arms"] if arm["curve"]["epochs"]):
            colour, curve = arm_colour(names, arm["name"]), arm["curve"]
            axes.fill_between(curve["epochs"], curve["least"], curve["most"], color=colour, alpha=0.18, linewidth=0)
            axes.plot(curve["epochs"], curve["mean"], color=colour, linewidth=2.2)
        endings = [
            Ending(name, _range(values), statistics.fmean(values), arm_colour(names, name))
            for name, values in last.items()
        ]
        for value in published:
            axes.axhline(value, color=INK, linewidth=1.2, dashes=(5, 4))
            endings.append(Ending("best published", short(value), value, INK))
        levels = [*map(statistics.fmean, last.values()), *published]
        # A logistic net's slow start at 90 % would flatten all that matters.
        limits = 0.5 * min(levels), 1.6 * max(levels)
        frame(axes, f"test errors of {count(results[0]['data']['n_test'])}", "epoch", limits, endings, whole=True)
        return _card(finish(made, title), *WIDE, title, caption)


def pictured(folder: Path) -> list[Result]:
    """The kept results to draw: of the first recipe that has some, all with means that say something."""
    for recipe in PICTURED:
        results = load(recipe, folder)
        if results and not any(_scattered(arm) for result in results for arm in result["arms"]):
            return results
    return []


def _scattered(arm: dict[str, Any]) -> bool:
    """Whether the seeds differ by more than their mean, so that they are better named one by one."""
    return arm["sd"] is not None and arm["sd"] > arm["mean"]


def picture_words(results: Sequence[Result]) -> tuple[str, str]:
    """The picture's title, which is its finding, and what its lines and bands are."""
    last = ends(results)
    best = min(last, key=lambda arm: statistics.fmean(last[arm]))
    name = TITLES.get(results[0]["data"]["name"], results[0]["data"]["name"])
    judged = [pair for result in results for pair in result["comparisons"] if pair["arm"] == best]
    if judged and all(pair["beyond_spread"] and pair["difference"] < 0 for pair in judged):
        over = judged[0]["over"]
        title = f"Omitting units takes test errors on {name} from {_range(last[over])} to {_range(last[best])}"
    else:
        title = f"Test errors on {name}: " + ", ".join(f"{arm} {_range(values)}" for arm, values in last.items())
    nets = ", ".join(dict.fromkeys(arm["net"] for result in results for arm in result["arms"]))
    seeds = max(len(arm["seeds"]) for result in results for arm in result["arms"])
    lines = "a line each, mean" if "," in nets else "mean"
    return title, f"{nets}: {lines} of {seeds} seeds; bands: least to most"


def fill(text: str, folder: Path, base: Path) -> str:
    """A page with what stands between its markers made anew; `base` is the folder that the page is in."""
    from meannet.bench import scale, speeds, written

    def figure() -> str:
        results = pictured(folder)
        alt = ". ".join(picture_words(results)) if results else ""
        return f"![{alt}]({PICTURE.as_posix()})" if results else "No picture yet: it is drawn from the kept results."

    def kept(recipe: str) -> str:
        links = ", ".join(f"[{path.stem}]({link(path, base)})" for path in files(recipe, folder))
        return f"{links}: {summary(recipe, folder)}" if links else NONE_YET

    blocks: dict[str, Callable[[], str]] = {
        "results": lambda: results_table(folder, base),
        "choices": lambda: choices_table(folder, base),
        "asides": lambda: asides_table(folder, base),
        "rounding": lambda: rounding_table(folder, base),
        "baselines": lambda: baselines_table(folder, base),
        "figure": figure,
        "few-labels": lambda: labels_table(folder, base),
        "settings": lambda: settings_table(folder, base),
    }
    blocks |= speeds.blocks(folder, base)
    blocks |= written.blocks(tables(folder, "cpu"), tables(folder, "choose"))
    blocks |= scale.blocks({path.stem: json.loads(path.read_text("utf-8")) for path in files(SCALE, folder)})
    for name, made in blocks.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if marked.search(text):
            content = made()
            text = marked.sub(lambda found, content=content: f"{found[1]}{content}\n{found[2]}", text)
    line = r"(<!-- kept ([\w.]+) -->).*?(<!-- /kept -->)"
    return re.sub(line, lambda found: f"{found[1]}{kept(found[2])}{found[3]}", text)


def rewrite(page: Path, folder: Path = FOLDER) -> list[Path]:
    """Bring a page, and the picture it shows, up to date with the kept results; returns what was written."""
    text = page.read_text(encoding="utf-8")
    page.write_text(fill(text, folder, page.resolve().parent), encoding="utf-8")
    results, ranked, grown = pictured(folder), tables(folder, "cpu"), folder / SCALE / "growth.json"
    pictures: dict[Path, Callable[[], str]] = {}
    if "<!-- figure -->" in text and results:
        pictures[PICTURE] = lambda: picture(results)
    if "<!-- ranks -->" in text and ranked:
        pictures[Path(RANKS)] = lambda: ranks_picture(ranked)
    if f"]({GROWTH.as_posix()})" in text and grown.exists():
        pictures[GROWTH] = lambda: growth_picture(json.loads(grown.read_text(encoding="utf-8")))
    for path, made in pictures.items():
        (page.resolve().parent / path).write_text(made(), encoding="utf-8")
    return [page, *(page.resolve().parent / path for path in pictures)]


def tables(folder: Path, name: str) -> Result | None:
    """A kept comparison on small tables."""
    path = folder / TABLES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def ranks_picture(document: Result) -> str:
    """Mean ranks over small tables with their critical difference, as SVG on a white card."""
    from meannet.bench import standing, written

    return _card(written.drawn(document), standing.WIDTH, standing.HEIGHT, *written.words(document))


def growth_picture(document: Result) -> str:
    """How time and memory grow, as `meannet bench --scaling` draws it, on a white card."""
    from meannet.bench.growth import DRAWN, Point, picture

    drawn = picture([Point(**row) for row in document["scaling"]], document["device"])
    return _card(drawn, *DRAWN, "How time and memory of an update grow", document["device"])


def _kept(folder: Path, *, held_out: bool) -> Iterator[tuple[Path, Result]]:
    """Results judged on held-out cases, or on test sets, in the order of the recipes; none on made-up data."""
    for recipe in recipes.RECIPES:
        for path, result in zip(files(recipe, folder), load(recipe, folder), strict=True):
            if result["data"]["held_out"] == held_out and not result["data"].get("made_up"):
                yield path, result


def ends(results: Sequence[Result]) -> dict[str, list[float]]:
    """Errors after the last epoch by arm, averaged over seeds: one figure a net."""
    found: dict[str, list[float]] = {}
    for arm in (arm for result in results for arm in result["arms"] if arm["mean"] is not None):
        found.setdefault(arm["name"], []).append(arm["mean"])
    return found


def _range(values: Sequence[float]) -> str:
    """One figure, or the least and the most of several."""
    return "–".join(dict.fromkeys((short(min(values)), short(max(values)))))


def _card(drawn: str, width: int, height: int, title: str, caption: str) -> str:
    """A drawing under its title on white, so that it reads on a dark page too; colours plain, not CSS variables."""
    from meannet.report.svg import FONT, INK, PAPER, RULE, SOFT

    around, head = 16, 62
    wide, high = width + 2 * around, height + head + around
    inner = re.sub(r"var\(--[\w-]+, (#\w+)\)", r"\1", drawn.strip())
    title, caption = html.escape(title), html.escape(caption)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'role="img" aria-label="{title}. {caption}." style="{FONT}">\n'
        f'<rect x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="6" fill="{PAPER}" stroke="{RULE}"/>\n'
        f'<text x="{around}" y="30" font-size="18" font-weight="bold" fill="{INK}">{title}</text>\n'
        f'<text x="{around}" y="51" font-size="13" fill="{SOFT}">{caption}</text>\n'
        f'<svg x="{around}" y="{head}" width="{width}" height="{height}">\n{inner}\n</svg>\n</svg>\n'
    )


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A markdown table; the columns named in `right` are set flush right."""
    rule = ["--:" if column in right else "---" for column in range(len(heads))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def link(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path.resolve(), base)).as_posix()


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.1f}" if len(values) == 1 else f"{low:.1f} to {high:.1f}"


def main(pages: Sequence[str]) -> int:
    if not pages:
        print("usage: python -m meannet.kept README.md docs/paper-map.md docs/tables.md", file=sys.stderr)
        return 2
    for page in pages:
        print("wrote", ", ".join(map(str, rewrite(Path(page)))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
