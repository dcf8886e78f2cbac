"""Tables and sentences: what a result.json turns into, and that the sentences say no more than the numbers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meannet.report import findings, runs, tables, written

NET = "784-800-800-10"


def result(
    *, errors: dict[str, list[int]], pairs: list[tuple[str, str, float, float]], claims=(), held_out=False
) -> dict:
    arms = [
        {"name": name, "net": NET, "seeds": list(range(len(counts))), "errors": counts, "mean": float(np.mean(counts)),
         "sd": float(np.std(counts, ddof=1)) if len(counts) > 1 else None, "n_test": 1000, "stopped": []}
        for name, counts in errors.items()
    ]  # fmt: skip
    comparisons = [
        {"net": NET, "arm": arm, "over": over, "difference": difference, "standard_error": error, "n": 10,
         "beyond_spread": abs(difference) > 2 * error}
        for arm, over, difference, error in pairs
    ]  # fmt: skip
    claims = [{"arm": arm, "value": value, "unit": "test errors"} for arm, value in claims]
    data = {"name": "digits", "n_train": 300, "n_test": 1000, "digest": "", "held_out": held_out}
    return {
        "recipe": "digits",
        "claims": claims,
        "arms": arms,
        "comparisons": comparisons,
        "data": data,
        "seconds": 9.0,
    }


@pytest.mark.parametrize(
    ("difference", "error", "says"),
    [
        (-8.4, 0.8, "better beyond the spread (−8.4, standard error 0.8)."),
        (8.4, 0.8, "worse beyond the spread (+8.4, standard error 0.8)."),
        (-1.0, 0.8, "no difference beyond the spread (−1.0, standard error 0.8)."),
    ],
)
def test_the_verdict_is_better_worse_or_neither(difference: float, error: float, says: str):
    found = result(
        errors={"backprop": [40, 43], "dropout": [32, 34]}, pairs=[("dropout", "backprop", difference, error)]
    )
    assert findings.verdict(found) == (
        f"dropout makes 33.0 ± 1.4 errors of 1,000 against backprop’s 41.5 ± 2.1, over 10 seeds: {says}"
    )


def test_the_verdict_is_about_the_arm_of_the_first_claim():
    errors = {"backprop": [40, 43], "dropout": [32, 34], "dropout+input": [30, 31]}
    pairs = [("dropout", "backprop", -8.0, 1.0), ("dropout+input", "backprop", -11.0, 1.0)]
    assert findings.verdict(result(errors=errors, pairs=pairs)).startswith("dropout makes")
    claimed = result(errors=errors, pairs=pairs, claims=[("dropout+input", 30), ("backprop", 40)])
    assert findings.verdict(claimed).startswith("dropout+input makes")
    assert findings.beside_paper(claimed) == "The paper’s figure for dropout+input is 30; ours is 30.5, above it."


def test_one_seed_or_one_arm_is_no_ground_for_a_verdict():
    assert findings.verdict(result(errors={"backprop": [40], "dropout": [32]}, pairs=[])) == (
        "backprop makes 40.0 errors of 1,000 over 1 seed; dropout makes 32.0 errors of 1,000 over 1 seed: "
        "too few seeds to judge a spread by."
    )
    assert findings.verdict(result(errors={"dropout": [32, 34]}, pairs=[])).endswith(": no other arm to compare with.")


def test_of_many_arms_the_verdict_names_the_best_two():
    errors = {f"dropout, lr {k}": [40 - k, 42 - k] for k in range(6)}
    found = findings.verdict(result(errors=errors, pairs=[("dropout, lr 1", "dropout, lr 0", -1.0, 0.1)]))
    assert found == (
        "Of 6 arms, dropout, lr 5 makes 36.0 ± 1.4 errors of 1,000 over 2 seeds, the fewest; "
        "next is dropout, lr 4 with 37.0 ± 1.4."
    )


def test_over_several_nets_the_verdict_counts_them_and_names_the_exceptions():
    found = result(errors={"backprop": [40, 43], "dropout": [32, 34]}, pairs=[("dropout", "backprop", -8.0, 1.0)] * 3)
    for k, pair in enumerate(found["comparisons"]):
        found["comparisons"][k] = pair | {"net": f"net {k}", "difference": -8.0 - k}
    assert "on all 3 nets, by 8.0 to 10.0 errors of 1,000" in findings.verdict(found)
    found["comparisons"][1] |= {"difference": -1.0, "beyond_spread": False}
    assert findings.verdict(found).endswith("on 2 of 3 nets, by 8.0 to 10.0 errors of 1,000, over 10 seeds each; "
                                            "not on net 1 (within the spread).")  # fmt: skip


def test_claim_rows_put_the_paper_beside_ours_unless_the_cases_were_held_out():
    errors = {"backprop": [40, 43], "dropout": [32, 34]}
    rows = tables.claim_rows(result(errors=errors, pairs=[], claims=[("dropout", 30)]))
    assert [(row.arm, row.paper, row.mean, row.n, row.n_test) for row in rows] == [
        ("backprop", None, 41.5, 2, 1000),
        ("dropout", 30, 33.0, 2, 1000),
    ]
    held_out = result(errors=errors, pairs=[], claims=[("dropout", 30)], held_out=True)
    assert [row.paper for row in tables.claim_rows(held_out)] == [None, None]
    assert findings.beside_paper(held_out) == ""


def test_a_setting_differs_only_from_a_value_the_paper_gives(experiment):
    found = {setting.path: setting for setting in tables.settings(experiment)}
    assert [path for path, setting in found.items() if setting.differs] == ["net.hidden", "optim.epochs"]
    assert [path for path, setting in found.items() if setting.left_open] == ["net.units", "arms.backprop.lr"]
    full = replace(experiment, optim=replace(experiment.optim, epochs=3000))
    assert not {setting.path: setting for setting in tables.settings(full)}["optim.epochs"].differs


def test_curves_and_their_mean_are_the_records(fabricate, tmp_path: Path):
    folder = fabricate(tmp_path / "run", stopped=True)
    run = runs.read(folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    wanted = {
        seed: [line["test_error"] for line in lines if (line["arm"], line["seed"]) == ("backprop", seed)]
        for seed in (0, 1, 2)
    }
    curves = run.curves(NET, "backprop", "test_error")
    assert {seed: values.tolist() for seed, (_, values) in curves.items()} == wanted
    epochs, mean = run.mean_curve(NET, "backprop", "test_error")
    assert epochs.tolist() == list(range(1, 301))
    np.testing.assert_allclose(mean, (np.array(wanted[0]) + np.array(wanted[2])) / 2)


def test_an_unfinished_run_stands_at_its_last_whole_line(fabricate, tmp_path: Path):
    run = runs.read(fabricate(tmp_path / "half", until=80))
    standing = tables.standing(run)
    last = [line["test_error"] for line in run.metrics if line["epoch"] == 80 and line["arm"] == "dropout"]
    assert [(at.arm, at.epoch, at.n) for at in standing] == [(arm, 80, 3) for arm in run.arms]
    assert standing[1].mean == pytest.approx(100 * np.mean(last))
    assert standing[1].sd == pytest.approx(100 * np.std(last, ddof=1))


def test_numbers_are_written_for_people():
    assert written.spread(33.14, 2.0) == "33.1 ± 2.0" and written.spread(33.14, None) == "33.1"
    assert written.spread(None, None) == "–" and written.signed(-8.44) == "−8.4" and written.plain(160.0) == "160"
    assert [written.duration(s) for s in (8.23, 271.4, 7500)] == ["8.2 s", "4 min 31 s", "2 h 5 min"]
    assert written.several(1, "seed") == "1 seed" and written.several(2000, "seed") == "2,000 seeds"
