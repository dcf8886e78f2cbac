"""What docs/tables.md says of the comparison on small tables that is kept under results/tables."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meannet.bench.standing import STOPPED, against, critical_difference, errors, friedman, picture, standings
from meannet.kept import RANKS, markdown_table
from meannet.report.written import count, duration, signed


def blocks(judged: dict[str, Any] | None, chosen: dict[str, Any] | None) -> dict[str, Callable[[], str]]:
    """What stands between the page's markers, by their names."""

    def block(document: dict[str, Any] | None, made: Callable[[dict[str, Any]], str]) -> Callable[[], str]:
        return lambda: made(document) if document else "No comparison is kept yet."

    shown = {"ranks": ranks_link, "standings": standings_table, "sets": sets_table, "early": early_table}
    return {name: block(judged, made) for name, made in shown.items()} | {"defaults": block(chosen, choices_table)}


def contestants(document: dict[str, Any]) -> list[str]:
    """The arms that are ranked, ours first; those that stop early are only compared with themselves."""
    return [arm["name"] for arm in document["arms"] if not arm["name"].endswith(STOPPED)]


def words(document: dict[str, Any]) -> tuple[str, str]:
    """The picture's title, which is its finding, and what it shows."""
    names, sets = contestants(document), len(document["sets"])
    found = standings(document, names)
    if found[0].name == names[0] and found[0].rank < found[1].rank:
        title = f"{names[0].capitalize()} has the best mean rank of {len(names)} on {sets} small tables"
    else:
        title = f"Mean ranks on {sets} small tables: {', '.join(f'{one.name} {one.rank:.2f}' for one in found[:3])}"
    splits = f"{document['folds']} folds, {document['repeats']} times"
    return title, f"ranks of test errors, 1 is best, {splits}; arms under one bar differ by no more than chance would"


def ranks_link(document: dict[str, Any]) -> str:
    return f"![{'. '.join(words(document))}]({RANKS})"


def drawn(document: dict[str, Any]) -> str:
    names = contestants(document)
    return picture(standings(document, names), critical_difference(len(names), len(document["sets"])))


def standings_table(document: dict[str, Any]) -> str:
    """An arm a row, and what the ranks and differences say."""
    names, sets = contestants(document), len(document["sets"])
    written = {arm["name"]: arm["written"] for arm in document["arms"]}
    rows = [
        (
            one.name, f"`{written[one.name]}`", f"{one.rank:.2f}", str(one.wins), f"{100 * one.error:.2f} %",
            f"{one.log_loss:.3f}", f"{one.seconds:.2f} s",
        )
        for one in standings(document, names)
    ]  # fmt: skip
    heads = ("arm", "as a user writes it", "mean rank", "wins", "mean error", "mean log loss", "median fit")
    critical, chance = critical_difference(len(names), sets), friedman(document, names)
    test = "p < 0.0001" if chance < 1e-4 else f"p = {chance:.2g}"
    about = (
        f"{count(sets)} sets, {document['folds']} folds, {document['repeats']} times; {document['device']}; the whole "
        f"comparison took {duration(document['seconds'])}. Wins count sets on which nobody makes fewer errors. Ranks "
        f"that differ by less than {critical:.2f} could do so by chance (Nemenyi, 5 %); that all are alike has {test} "
        "(Friedman)."
    )
    table = markdown_table(heads, rows, right=(2, 3, 4, 5, 6))
    return "\n\n".join((table, about, versus(document, names[0], names[1:])))


def versus(document: dict[str, Any], one: str, others: Sequence[str]) -> str:
    """A sentence for each of the others."""
    lines = []
    for other in others:
        found = against(document, one, other)
        verdict = "no difference beyond the spread"
        if found["beyond_spread"]:
            verdict = "better beyond the spread" if found["difference"] < 0 else "worse beyond the spread"
        lines.append(
            f"- {one} against {other}: {signed(found['difference'])} points of error (standard error over sets "
            f"{found['standard_error']:.1f}), fewer errors on {found['fewer']} sets and more on {found['more']}: "
            f"{verdict}."
        )
    return "\n".join(lines)


def early_table(document: dict[str, Any]) -> str:
    """The last epoch beside early stopping, with dropout and without."""
    names = [arm["name"] for arm in document["arms"]]
    rows, lines = [], []
    for name in (name for name in names if f"{name}{STOPPED}" in names):
        both = (name, f"{name}{STOPPED}")
        last, stopped = errors(document, both).mean(0)
        losses = [np.mean([np.mean(s["log_losses"]) for s in _sets(document, arm).values()]) for arm in both]
        rows.append(
            (name, f"{100 * last:.2f} %", f"{100 * stopped:.2f} %", f"{losses[0]:.3f}", f"{losses[1]:.3f}")
        )  # fmt: skip
        lines.append(versus(document, both[1], both[:1]))
    heads = ("arm", "error, last epoch", "error, stopped early", "log loss, last epoch", "log loss, stopped early")
    return "\n\n".join((markdown_table(heads, rows, right=(1, 2, 3, 4)), "\n".join(lines)))


def sets_table(document: dict[str, Any]) -> str:
    """Each arm's mean error on each set, in per cent, the least in bold."""
    names = contestants(document)
    rows = []
    for one, wrong in zip(document["sets"], errors(document, names), strict=True):
        cells = [f"**{100 * share:.1f}**" if share == wrong.min() else f"{100 * share:.1f}" for share in wrong]
        rows.append((one["name"], count(one["rows"]), str(one["columns"]), str(one["classes"]), *cells))
    heads = ("set", "rows", "columns", "classes", *names)
    return markdown_table(heads, rows, right=range(1, len(heads)))


def choices_table(document: dict[str, Any]) -> str:
    """The settings that defaults were chosen among, the best mean rank first."""
    found = standings(document, [arm["name"] for arm in document["arms"]])
    rows = [
        (f"`{one.name}`", f"{one.rank:.2f}", f"{100 * one.error:.2f} %", f"{one.log_loss:.3f}", f"{one.seconds:.2f} s")
        for one in found
    ]
    sets = ", ".join(one["name"] for one in document["sets"])
    heads = ("settings", "mean rank", "mean error", "mean log loss", "median fit")
    return "\n\n".join((markdown_table(heads, rows, right=(1, 2, 3, 4)), f"Sets: {sets}."))


def _sets(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(arm["sets"] for arm in document["arms"] if arm["name"] == name)
