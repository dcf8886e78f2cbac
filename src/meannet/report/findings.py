"""What the numbers say, in one sentence each: the verdict, and the titles of the figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meannet.report.runs import Run
from meannet.report.tables import Comparison, Row, claim_rows, claims_of, comparisons, unit_of
from meannet.report.written import decimal, plain, rate, several, short, signed, spread

CHOICE = 4  # more arms than that are a choice among settings, of which only the best are named


def verdict(result: Mapping[str, Any]) -> str:
    """Whether the headline arm beats the other beyond the spread, also when it does not."""
    if result["data"].get("made_up"):
        return "The data is made up, for time and memory: its errors say nothing."
    rows = claim_rows(result)
    if len({row.arm for row in rows}) > CHOICE:
        return _verdict_of_choice(rows)
    found = headline(result)
    if not found:
        each = "; ".join(f"{_makes(row)} over {several(row.n, 'seed')}" for row in rows)
        one_arm = len({row.arm for row in rows}) == 1
        return f"{each}: {'no other arm to compare with' if one_arm else 'too few seeds to judge a spread by'}."
    if len(found) > 1:
        return _verdict_over_nets(found, unit_of(result), rows[0].n_test)
    pair = found[0]
    one, other = (next(row for row in rows if (row.net, row.arm) == (pair.net, arm)) for arm in (pair.arm, pair.over))
    judged = pair.judgement if pair.beyond_spread else "no difference beyond the spread"
    return (
        f"{_makes(one)} against {pair.over}’s {spread(other.mean, other.sd)}, over {several(pair.n, 'seed')}: "
        f"{judged} ({signed(pair.difference)}, standard error {decimal(pair.standard_error)})."
    )


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
    winners = [min(arms, key=lambda arm: arms[arm]) for arms in finals.values()]
    if not winners:
        return "No net reached the end of an epoch"
    so_far = "is lowest so far" if run.result is None else "ends lowest"
    best = max(winners, key=winners.count)
    if len(winners) > 1:
        return f"{best} {so_far} on {_of_nets(winners.count(best), len(winners))}"
    arms = next(iter(finals.values()))
    at = f"at {_errors(arms[best], run)}"
    others = {arm: figure_of(value, run) for arm, value in arms.items() if arm != best}
    if not others:
        return f"{best} {'is' if run.result is None else 'ends'} {at}"
    if len(others) >= CHOICE:
        low, *_, high = sorted(value for arm, value in arms.items() if arm != best)
        return f"{best} {so_far}, {at}; the others {figure_of(low, run)} to {figure_of(high, run)}"
    return f"{best} {so_far}, {at}; " + ", ".join(f"{arm} at {value}" for arm, value in others.items())


def training_by_epoch(run: Run) -> str:
    """How the training error of the thinned nets compares: with units omitted it is meant to be higher."""
    finals = list(final_means(run, "train_error").values())
    ends = {arm: 100 * float(np.mean([of[arm] for of in finals if arm in of])) for of in finals for arm in of}
    if not ends or len(ends) > CHOICE:
        return "Training error while units are omitted"
    higher, listed = _omitting_or_not(run, ends, rate)
    return f"Omitting units makes training harder: {listed}" if higher else f"Training errors at the end: {listed}"


def loss_by_epoch(run: Run, figure: str) -> str:
    """Where cross-entropy ends, averaged over nets."""
    finals = list(final_means(run, figure).values())
    ends = {arm: float(np.mean([of[arm] for of in finals if arm in of])) for of in finals for arm in of}
    cases = "training" if figure == "train_loss" else run.cases
    if not ends or len(ends) > CHOICE:
        return f"Cross-entropy of {cases} cases"
    return f"Cross-entropy of {cases} cases ends at " + ", ".join(f"{ends[arm]:.2f} for {arm}" for arm in ends)


def sampled(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many sampled nets it takes to match the mean network; `rows` are the seeds of one net and arm."""
    target, means = _sampled_means(rows)
    counts = rows[0]["counts"]
    reached = next((count for count, mean in zip(counts, means, strict=True) if mean <= target), None)
    if reached is None:
        most = several(counts[-1], "sampled net")
        return f"{most} make {decimal(means[-1])} errors, the mean network {decimal(target)}"
    return f"It takes {several(reached, 'sampled net')} to match the mean network"


def all_sampled(groups: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Whether one pass of the mean network does as well as all the sampled nets together."""
    most = several(groups[0][0]["counts"][-1], "sampled net")
    ends = [(target, means[-1]) for target, means in map(_sampled_means, groups)]
    if len(ends) == 1:
        target, mean = ends[0]
        return f"The mean network makes {short(target)} errors in one pass, {most} averaged {short(mean)}"
    wins = sum(target <= mean for target, mean in ends)
    does = "falls short of" if wins == 0 else "matches or beats"
    where = "" if wins in (0, len(ends)) else f" for {wins} of {len(ends)} arms"
    return f"The mean network, in one pass, {does} {most} averaged{where}"


def _sampled_means(rows: Sequence[Mapping[str, Any]]) -> tuple[float, list[float]]:
    """Errors of the mean network and of the arithmetic mean at each count, averaged over seeds."""
    means = np.mean([row["arithmetic"] for row in rows], axis=0)
    return float(np.mean([row["mean_network"] for row in rows])), means.tolist()


def features(run: Run, smoothness: Mapping[str, float]) -> str:
    """Whose features are smoother, by how alike neighbouring weights are."""
    higher, listed = _omitting_or_not(run, smoothness, "{:.2f}".format)
    return f"{'Omitting units gives smoother features: n' if higher else 'N'}eighbouring weights correlate {listed}"


def final_means(run: Run, figure: str) -> dict[str, dict[str, float]]:
    """By net and arm, the mean over seeds at the last recorded epoch; a fraction of the cases."""
    found: dict[str, dict[str, float]] = {}
    for net in run.nets:
        for arm in run.arms:
            _, values = run.mean_curve(net, arm, figure)
            if len(values) and np.isfinite(values[-1]):
                found.setdefault(net, {})[arm] = float(values[-1])
    return found


def _omitting_or_not(run: Run, values: Mapping[str, float], form: Callable[[float], str]) -> tuple[bool, str]:
    """Whether the arms that omit units all have the higher values, and the values in words, those arms then first."""
    omitting = run.experiment.omitting()
    omit, keep = ([arm for arm in values if (arm in omitting) == omits] for omits in (True, False))
    written = {arm: f"{form(value)} for {arm}" for arm, value in values.items()}
    least, most = (min(omit, key=values.__getitem__), max(keep, key=values.__getitem__)) if omit and keep else ("", "")
    if least and values[least] > values[most] and form(values[least]) != form(values[most]):
        return True, ", against ".join(" and ".join(written[arm] for arm in arms) for arms in (omit, keep))
    return False, ", ".join(written.values())


def _verdict_over_nets(found: Sequence[Comparison], unit: str, n_test: int) -> str:
    arm, over = found[0].arm, found[0].over
    better = [pair for pair in found if pair.beyond_spread and pair.difference < 0]
    seeds = several(min(pair.n for pair in found), "seed")
    if not better:
        return f"{arm} beats {over} beyond the spread on none of {len(found)} nets, over {seeds} each."
    gains = sorted(-pair.difference for pair in better)
    by = decimal(gains[0]) if len(gains) == 1 else f"{decimal(gains[0])} to {decimal(gains[-1])}"
    rest = ", ".join(f"{pair.net} ({pair.judgement})" for pair in found if pair not in better)
    return (
        f"{arm} beats {over} beyond the spread on {_of_nets(len(better), len(found))}, by {by} "
        f"{_of(unit, n_test)}, over {seeds} each" + (f"; not on {rest}." if rest else ".")
    )


def _verdict_of_choice(rows: Sequence[Row]) -> str:
    """The best arm of many, as where settings are chosen."""
    ranked = sorted((row for row in rows if row.mean is not None), key=lambda row: row.mean or 0.0)
    if not ranked:
        return f"None of {len(rows)} arms has a net left that was not stopped."
    best, *others = ranked
    start = f"Of {len(rows)} arms, {_makes(best)} over {several(best.n, 'seed')}, the fewest"
    return f"{start}; next is {others[0].arm} with {spread(others[0].mean, others[0].sd)}." if others else f"{start}."


def _of_nets(some: int, every: int) -> str:
    if some == every:
        return "both nets" if every == 2 else f"all {every} nets"
    return f"{some} of {every} nets"


def _makes(row: Row) -> str:
    if row.mean is None:
        return f"{row.arm} has no net left that was not stopped"
    return f"{row.arm} makes {spread(row.mean, row.sd)} {_of(row.unit, row.n_test)}"


def _of(unit: str, n_test: int) -> str:
    return unit if unit.startswith("%") else f"{unit.removeprefix('test ')} of {n_test:,}"


def figure_of(fraction: float, run: Run) -> str:
    """A count of errors once the number of cases is known, per cent before."""
    return short(fraction * run.n_test) if run.n_test else f"{100 * fraction:.2f} %"


def _errors(fraction: float, run: Run) -> str:
    return figure_of(fraction, run) + (f" {run.cases} errors of {run.n_test:,}" if run.n_test else "")
