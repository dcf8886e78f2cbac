"""What the numbers say, in one sentence each: the verdict, and the titles of the figures."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from meannet.report.written import decimal, plain, several, short, signed, spread
from meannet.report.runs import Run
from meannet.report.tables import Comparison, Row, claim_rows, claims_of, comparisons, unit_of


def verdict(result: Mapping[str, Any]) -> str:
    """Whether the headline arm beats backprop beyond the spread, also when it does not."""
    rows = {(row.net, row.arm): row for row in claim_rows(result)}
    found = headline(result)
    if not found:
        row = next(iter(rows.values()))
        return f"{_makes(row)} over {several(row.n, 'seed')}; there is no other arm to compare it with."
    if len(found) > 1:
        return _verdict_over_nets(found, unit_of(result), next(iter(rows.values())).n_test)
    pair = found[0]
    one, other = rows[pair.net, pair.arm], rows[pair.net, pair.over]
    start = f"{_makes(one)} against {pair.over}’s {spread(other.mean, other.sd)}, over {several(pair.n, 'seed')}"
    if pair.difference is None:
        return f"{start}: too few nets were left to compare."
    if pair.n < 2:
        return f"{start}: {signed(pair.difference)}, but one seed says nothing about the spread."
    judged = pair.judgement if pair.beyond_spread else "no difference beyond the spread"
    return f"{start}: {judged} ({signed(pair.difference)}, standard error {decimal(pair.standard_error)})."


def beside_paper(result: Mapping[str, Any]) -> str:
    """The headline claim of the paper and where ours stands to it; empty where the paper makes none."""
    claims = claims_of(result)
    if not claims:
        return ""
    arm, paper = claims[0]["arm"], claims[0]["value"]
    means = [row.mean for row in claim_rows(result) if row.arm == arm and row.mean is not None]
    if not means:
        return f"The paper’s figure for {arm} is {plain(paper)}; no net of ours was left to hold against it."
    low, high = min(means), max(means)
    ours = decimal(low) if len(means) == 1 else f"{decimal(low)} to {decimal(high)}, depending on the net"
    side = "at or below it" if high <= paper else "above it" if low > paper else "on both sides of it"
    return f"The paper’s figure for {arm} is {plain(paper)}; ours is {ours}, {side}."


def headline(result: Mapping[str, Any]) -> list[Comparison]:
    """The comparison that matters most, for each net: the first claim's arm over backprop, else the first there is."""
    found = comparisons(result)
    claimed = [claim["arm"] for claim in claims_of(result)]
    found.sort(key=lambda pair: (pair.over != "backprop", pair.arm != claimed[0] if claimed else False))
    return [pair for pair in found if (pair.arm, pair.over) == (found[0].arm, found[0].over)]


def errors_by_epoch(run: Run) -> str:
    """Which arm ends lowest."""
    finals = final_means(run, "test_error")
    winners = {net: min(arms, key=lambda arm: arms[arm]) for net, arms in finals.items() if arms}
    if not winners:
        return "No epoch is on record yet"
    so_far = "is lowest so far" if run.result is None else "ends lowest"
    best = max(winners.values(), key=list(winners.values()).count)
    wins = list(winners.values()).count(best)
    if len(winners) > 1:
        return f"{best} {so_far} on {f'all {wins}' if wins == len(winners) else f'{wins} of {len(winners)}'} nets"
    arms = next(iter(finals.values()))
    if len(arms) == 1:
        return f"{best} ends at {_errors(arms[best], run)}"
    others = ", ".join(f"{arm} at {_figure(value, run)}" for arm, value in arms.items() if arm != best)
    return f"{best} {so_far}, at {_errors(arms[best], run)}; {others}"


def training_by_epoch(run: Run) -> str:
    """How the training error of the thinned nets compares: dropout's is meant to be higher."""
    finals = final_means(run, "train_error")
    if not finals:
        return "No epoch is on record yet"
    arms = {arm: np.mean([of[arm] for of in finals.values() if arm in of]) for of in finals.values() for arm in of}
    ends = ", ".join(f"{100 * value:.1f} % for {arm}" for arm, value in arms.items())
    return f"Training errors at the end, while units are omitted: {ends}"


def sampled(rows: list[Mapping[str, Any]]) -> str:
    """How many sampled nets it takes to match the mean network; `rows` are the seeds of one net and arm."""
    target = float(np.mean([row["mean_network"] for row in rows]))
    counts = rows[0]["counts"]
    means = np.mean([row["arithmetic"] for row in rows], axis=0)
    reached = next((count for count, mean in zip(counts, means, strict=True) if mean <= target), None)
    mean_net = f"the mean network’s {short(target)} errors"
    if reached is None:
        return f"{several(counts[-1], 'sampled net')} make {short(means[-1])} errors, still more than {mean_net}"
    return f"It takes {several(reached, 'sampled net')} to match {mean_net}"


def features(smoothness: Mapping[str, float]) -> str:
    """How alike neighbouring weights are, arm by arm."""
    parts = ", ".join(f"{value:.2f} for {arm}" for arm, value in smoothness.items())
    return f"Neighbouring weights of a first-layer feature correlate: {parts}"


def final_means(run: Run, figure: str) -> dict[str, dict[str, float]]:
    """By net and arm, the mean over seeds at the last recorded epoch; a fraction of the cases."""
    found: dict[str, dict[str, float]] = {}
    for net in run.nets:
        for arm in run.arms:
            _, values = run.mean_curve(net, arm, figure)
            if len(values) and np.isfinite(values[-1]):
                found.setdefault(net, {})[arm] = float(values[-1])
    return found


def _verdict_over_nets(found: list[Comparison], unit: str, n_test: int) -> str:
    arm, over = found[0].arm, found[0].over
    better = [pair for pair in found if pair.beyond_spread and pair.difference is not None and pair.difference < 0]
    seeds = several(min(pair.n for pair in found), "seed")
    if not better:
        return f"{arm} beats {over} beyond the spread on none of {len(found)} nets, over {seeds} each."
    gains = [-pair.difference for pair in better if pair.difference is not None]
    which = f"all {len(found)}" if len(better) == len(found) else f"{len(better)} of {len(found)}"
    rest = [f"{pair.net} ({pair.judgement})" for pair in found if pair not in better]
    return (
        f"{arm} beats {over} beyond the spread on {which} nets, by {decimal(min(gains))} to {decimal(max(gains))} "
        f"{unit.removeprefix('test ')} of {n_test:,}, over {seeds} each" + (f"; not on {', '.join(rest)}." if rest else ".")
    )


def _makes(row: Row) -> str:
    if row.mean is None:
        return f"{row.arm} has no net left that was not stopped,"
    return f"{row.arm} makes {spread(row.mean, row.sd)} {row.unit.removeprefix('test ')} of {row.n_test:,}"


def _figure(fraction: float, run: Run) -> str:
    return short(fraction * run.n_test) if run.n_test else f"{100 * fraction:.2f} %"


def _errors(fraction: float, run: Run) -> str:
    return f"{_figure(fraction, run)} {run.cases} errors of {run.n_test:,}" if run.n_test else _figure(fraction, run)
