"""The benchmark: everyone computes the same, who is missing is named, and figures are what they are said to be."""

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import small

from meannet import cli, outcome, recipes
from meannet.bench import beside, comparison, growth, ours, participants, pretraining, tell, work, worker
from meannet.bench.speeds import ratios
from meannet.bench.work import Settings, Work

CPU = torch.device("cpu")
ONE_BATCH = Settings(sizes=(20, 12, 9, 4), batch=30, updates=1, visible=0.0, hidden=0.0, limit=0.5)
PEERS = [
    pytest.param("torch-eager"),
    pytest.param("torch-compile", marks=pytest.mark.skipif(sys.platform == "win32", reason="needs a compiler")),
    pytest.param(
        "jax-scan", marks=pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed")
    ),
    pytest.param("sklearn"),
]
JSON_ROW = {"who", "net", "units", "nets", "batch", "threads", "path", "updates_per_s", "spread", "repeats", "ratio"}


@pytest.fixture(autouse=True)
def small_and_without_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for the processes that take part; tests run side by side
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "empty"))
    monkeypatch.setattr(work, "LEARNED", 2)


def toy_work(settings: Settings, cases: int) -> Work:
    drawn = np.random.default_rng(0)
    fleet = work.fresh(settings)
    return Work(
        **asdict(settings),
        inputs=drawn.random((cases, settings.sizes[0]), np.float32),
        targets=drawn.integers(0, settings.sizes[-1], cases),
        weights=[30 * weight[0].numpy() for weight in fleet.weights],
        biases=[bias[0].numpy() for bias in fleet.biases],
    )


@pytest.mark.parametrize("units", ["rectified", "logistic"])
@pytest.mark.parametrize("who", PEERS)
def test_peers_without_dropout_lose_what_our_plain_path_loses(who, units, monkeypatch):
    if who == "torch-compile":  # as it is, without minutes of compiling
        monkeypatch.setattr(torch, "compile", lambda function, mode: function)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    same = toy_work(replace(ONE_BATCH, units=units, path="plain"), ONE_BATCH.batch)
    # Whole batches, so that the order of cases makes no difference.
    run, reference = worker.peer(who).prepare(same), ours.prepare(same)
    assert run() == pytest.approx(reference(), rel=1e-5)
    if who != "sklearn":  # which has no bound, and made an update to find its shape
        assert [run() for _ in range(4)] == pytest.approx([reference() for _ in range(4)], rel=1e-4)


@pytest.mark.parametrize("who", PEERS[:1] + PEERS[2:3])
def test_peers_with_dropout_omit_and_bound_units(who, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    settings = replace(ONE_BATCH, visible=0.2, hidden=0.5, updates=3)
    run = worker.peer(who).prepare(toy_work(settings, 90))
    losses = [run() for _ in range(3)]
    assert all(map(math.isfinite, losses)) and len(set(losses)) == 3


def test_peers_start_from_the_mean_network():
    settings = replace(ONE_BATCH, visible=0.2, hidden=0.5)
    given = toy_work(settings, 30)
    for mean, weight, keep in zip(given.mean_weights, given.weights, (0.8, 0.5, 0.5), strict=True):
        np.testing.assert_allclose(mean, keep * weight, rtol=1e-6)


def test_without_mnist_digits_of_its_size_stand_in_and_nothing_is_fetched():
    cases, name = work.cases(3000)
    assert cases.inputs.shape == (3000, 784) and name == work.INSTEAD
    assert 0.1 < float((cases.inputs > 0).float().mean()) < 0.25
    torch.testing.assert_close(cases.inputs[:100].sum(1), 4 * _digits()[:100].sum(1))


def _digits():
    from meannet.data import digits

    return digits.load(held_out=False, say=print).test.inputs


def test_work_is_read_as_it_was_written(tmp_path):
    settings = replace(Settings(), sizes=(784, 5, 10), units="logistic")
    cases, _ = work.cases(40)
    fleet = work.begun(settings, cases, updates=1)
    work.write(tmp_path, cases, {"logistic": fleet})
    found = work.read(tmp_path, work.from_json(json.loads(json.dumps(asdict(settings)))))
    assert (found.sizes, found.step, found.rates) == (settings.sizes, pytest.approx(1.0), [0.2, 0.5])
    np.testing.assert_array_equal(found.weights[0], fleet.weights[0][0].numpy())
    np.testing.assert_array_equal(found.inputs, cases.inputs.numpy())
    assert work.read(tmp_path, replace(settings, units="rectified")).weights == []


def test_everyone_is_compared_and_who_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(worker.PEERS, "nobody", "no_such_peer")
    toy = Settings(sizes=(784, 8, 10), batch=10, updates=2)
    plans = {"meannet": [replace(toy, path="plain"), replace(toy, nets=3)], "torch-eager": [toy], "nobody": [toy]}
    said = []
    document = comparison.compare(CPU, said.append, plans=plans, repeats=3)
    rows = document["rows"]
    assert [(row["who"], row["path"], row["nets"]) for row in rows] == [
        ("meannet", "plain", 1),
        ("meannet", "auto", 3),
        ("torch-eager", "", 1),
    ]
    assert all(set(row) == JSON_ROW for row in rows)
    assert {row["repeats"] for row in rows} == {3} and {row["units"] for row in rows} == {"relu"}
    assert document["data"] == work.INSTEAD and document["device"]
    (line,) = [line for line in said if line.startswith("left out: ")]
    assert line.startswith("left out: nobody, rectified: ")


def test_a_participant_that_dies_is_named_with_its_last_words(tmp_path, monkeypatch):
    toy = Settings(sizes=(784, 8, 10), batch=10, updates=2)
    with participants.taking_part({"meannet": [toy]}, tmp_path) as (one,):
        pass  # there are no cases in the folder
    assert "work.safetensors" in one.failed[0]
    assert one.process.returncode is not None


def test_a_participant_that_dies_while_it_waits_is_left_out_and_the_others_go_on(tmp_path):
    toy = Settings(sizes=(784, 8, 10), batch=10, updates=2)
    cases, _ = work.cases(20)
    work.write(tmp_path, cases, {"rectified": work.begun(toy, cases, updates=1)})
    plans = {"meannet": [replace(toy, path="plain")] * 2, "torch-eager": [toy]}
    with participants.taking_part(plans, tmp_path) as (one, other):
        one.process.kill()
        one.process.wait()
        assert one.timed(0) is None and one.timed(1) is None
        assert one.failed == dict.fromkeys((0, 1), "its process ended with -9")
        assert other.timed()["seconds"] > 0


def test_a_fleets_updates_are_counted_net_by_net_and_the_spread_is_between_quartiles():
    class Someone:
        who, threads, failed = "meannet", 2, {}
        rows = [Settings(nets=4, updates=10, path="fast")]  # noqa: RUF012

        def timed(self, number):
            return {"seconds": 0.5, "loss": 1.0}

    row = comparison.Row(Someone(), 0)
    row.measure()
    assert row.speeds == [80.0]
    row.speeds = [1.0, 2.0, 3.0, 4.0, 9.0]
    assert (row.to_json()["updates_per_s"], row.to_json()["spread"]) == (3.0, 2.0)
    assert comparison.spread([5.0]) == 0.0


def test_a_loss_that_is_not_finite_leaves_a_row_out(tmp_path):
    someone = participants.Participant.__new__(participants.Participant)
    someone.failed, someone.rows = {}, [Settings()]
    someone.process = type("P", (), {"stdin": type("S", (), {"write": print, "flush": lambda self: None})()})()
    someone._reply = lambda: {"seconds": 1.0, "loss": math.nan}
    assert someone.timed() is None and someone.failed == {0: "its loss is not finite"}
    assert someone.timed() is None


def test_the_usual_plan_has_both_units_for_everyone_and_fleets_on_a_gpu():
    for where in ("cpu", "cuda"):
        plans = comparison.usual(where)
        assert {"meannet", "torch-eager", "torch-compile", "jax-scan"} <= set(plans) <= {"meannet", *worker.PEERS}
        for rows in plans.values():
            assert {row.units for row in rows} == {"rectified", "logistic"}
            assert {row.device for row in rows} == {where}
        assert {row.path for row in plans["meannet"]} == {"fast", "plain"}
        assert any(row.nets > 1 for row in plans["meannet"]) == (where == "cuda")


def test_ratios_are_to_eager_with_the_same_units():
    row = dict.fromkeys(JSON_ROW, 1) | {"path": "", "spread": 0.5}
    rows = [
        row | {"who": "meannet", "path": "fast", "units": "relu", "updates_per_s": 300.0},
        row | {"who": "torch-eager", "units": "relu", "updates_per_s": 60.0},
        row | {"who": "sklearn", "units": "logistic", "updates_per_s": 70.0},
    ]
    assert ratios(rows) == [5.0, 1.0, None]
    table = tell.comparison_table([row | {"ratio": ratio} for row, ratio in zip(rows, ratios(rows), strict=True)])
    assert list(table.columns[4].cells) == ["5.00", "1.00", "–"]
    assert list(table.columns[0].cells)[2] == "sklearn (no dropout, no norm bound)"


def test_growth_measures_each_point_and_adds_its_parts(monkeypatch):
    monkeypatch.setattr(growth, "REPEATS", 2)
    toy = Settings(sizes=(784, 8, 10), batch=10, updates=2, path="plain")
    (point,) = growth.measure(CPU, lambda line: None, [("width", 8, toy)])
    assert (point.varied, point.value, point.repeats) == ("width", 8, 2) and point.milliseconds > 0
    weights, biases = 784 * 8 + 8 * 10, 8 + 10
    assert growth.parts(toy) == {"state": 8 * (weights + biases), "cases": 20 * (784 * 4 + 8), "order": 160}
    drawn = growth.picture([point, replace(point, varied="nets"), replace(point, varied="batch")], "toy")
    assert drawn.startswith("<svg") and "units a hidden layer" in drawn


def test_growth_leaves_out_what_would_not_fit(monkeypatch):
    said = []
    monkeypatch.setattr(growth.device, "memory", lambda where: 1000)
    assert growth.measure(CPU, said.append, [("nets", 1, Settings(sizes=(784, 8, 10)))]) == []
    assert said == ["nets 1: left out, it would need more than half of the memory"]


def test_growth_covers_the_ranges_asked_for():
    found = growth.points("cpu")
    for varied, least, most in (("width", 400, 8000), ("nets", 1, 64), ("batch", 1, 1000)):
        values = [value for name, value, _ in found if name == varied]
        assert (min(values), max(values)) == (least, most)
    assert all(30 <= one.updates <= 400 for _, _, one in found)


def test_memory_is_told_and_its_peak_can_be_forgotten():
    if not worker.memory("VmRSS"):
        pytest.skip("the system does not tell")
    large = np.ones(30_000_000, np.uint8)
    assert worker.memory("VmHWM") >= worker.memory("VmRSS") > large.nbytes
    with_it = worker.memory("VmHWM")
    del large
    worker.forget_peak()
    assert worker.memory("VmHWM") <= with_it


@pytest.mark.skipif(not hasattr(beside.os, "sched_setaffinity"), reason="processes cannot choose their cores here")
@pytest.mark.skipif(not list(Path("/proc/self/task").glob("*/children")), reason="/proc does not tell of children here")
def test_a_busy_neighbour_ends_with_whoever_started_it():
    core = min(os.sched_getaffinity(0))
    lines = "import time", "from meannet.bench.beside import _busy", f"with _busy([{core}]):"
    program = "\n".join((*lines, "    print(flush=True)", "    time.sleep(60)"))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.kill()
    until = time.monotonic() + 30
    while time.monotonic() < until and "python" in _command(child):
        time.sleep(0.1)
    assert "python" not in _command(child)


def _command(pid):
    """Of a process that runs; nothing of one that is gone or dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.skipif(not hasattr(beside.os, "sched_setaffinity"), reason="processes cannot choose their cores here")
def test_a_neighbour_is_measured_in_turns(monkeypatch):
    if len(beside.os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core only")
    toy = Settings(sizes=(784, 8, 10), batch=10, updates=2, path="plain")
    found = beside.neighbour(print, {"meannet": [toy]}, repeats=2)
    (row,) = found["neighbour"]
    assert found["left_out"] == []
    assert row["times_slower"] == pytest.approx(row["alone"] / row["beside"], rel=0.05) and row["repeats"] == 2


def test_overhead_is_what_a_run_takes_beside_its_updates_and_tests(monkeypatch):
    monkeypatch.setattr(beside, "_starting", lambda: 1.0)
    judged = outcome.judged

    def slowly(*arguments):
        time.sleep(0.3)
        return judged(*arguments)

    monkeypatch.setattr(outcome, "judged", slowly)
    chosen = beside.fast.engine
    found = beside.overhead("cpu", replace(small("digits", epochs=4), record_every=1))
    assert beside.fast.engine is chosen and outcome.judged is slowly
    assert found["epochs"] == 4 and found["before_s"] >= 1.0
    assert found["tests_s"] > 0.9 > found["between_s"] and found["after_s"] > 0.3  # three tests, and one after the last
    # Both are rounded, and here they are next to nothing.
    between, updates = found["between_s"], found["updates_s"]
    least = 100 * (between - 0.001) / (updates + 0.01)
    assert least <= found["between_percent"] and found["between_percent"] * (updates - 0.01) <= 100 * (between + 0.001)


def test_prediction_is_compared_with_the_same_net():
    (row,) = beside.prediction(CPU, sizes=(20, 12, 4), batches=(3,), seconds=0.0)
    assert row["batch"] == 3
    assert row["times_faster"] == pytest.approx(row["torch"]["ms"] / row["meannet"]["ms"], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--scaling", "--neighbour"], "one at a time: --scaling or --neighbour"),
        (["-o", "a.svg"], "ask for --scaling too"),
        (["--scaling", "-o", "a.png"], "-o takes the name of an .svg file, not 'a.png'"),
        (["--scaling", "-o", "nosuch/a.svg"], "there is no folder nosuch"),
        (["--device", "tpu"], "--device must be one of"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(arguments, says, capsys):
    assert cli.main(["bench", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_the_command_prints_one_json_document(monkeypatch, capsys):
    toy = Settings(sizes=(784, 8, 10), batch=10, updates=2)
    monkeypatch.setattr(comparison, "usual", lambda where: {"meannet": [toy]})
    monkeypatch.setattr(comparison, "REPEATS", 1)
    assert cli.main(["bench", "--json", "--device", "cpu"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"device", "data", "rows", "seconds"} <= set(document)
    assert document["rows"][0]["net"] == "784-8-10"
    assert statistics.fmean(row["updates_per_s"] for row in document["rows"]) > 0
    monkeypatch.setattr(beside, "neighbour", lambda say: {"neighbour": [], "left_out": []})
    assert cli.main(["bench", "--neighbour", "--json", "--device", "cpu"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert all(again[name] == document[name] for name in ("date", "commit", "versions"))


def test_the_settings_are_those_of_the_recipe():
    recipe = recipes.get("mnist.a1")
    assert (Settings().visible, Settings().hidden) == (recipe.dropout.visible, recipe.dropout.hidden)
    assert (Settings().batch, Settings().limit) == (recipe.optim.batch, recipe.optim.limit)
    assert work.SIZES[1:-1] in recipe.net.hidden
    for name, units in (("mnist.a1", "logistic"), ("mnist.a1_relu", "rectified")):
        found = recipes.get(name)
        assert (found.optim.lr, found.net.initial_bias) == (work.LEARNING_RATES[units], work.INITIAL_BIASES[units])


def test_contrastive_divergence_of_everyone_learns_the_same_cases_about_as_well(monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    drawn = np.random.default_rng(0)
    kinds = (drawn.random((4, 30)) > 0.6).astype(np.float32)
    settings = Settings(sizes=(30, 20), batch=20, updates=400)
    given = Work(**asdict(settings), inputs=kinds[drawn.integers(0, 4, 8000)], targets=[], weights=[], biases=[])
    spread_of_data = float(((given.inputs - given.inputs.mean(0)) ** 2).sum(1).mean())
    for who in ("meannet-rbm", "torch-rbm", "sklearn-rbm"):
        assert worker.peer(who).prepare(given)() < 0.5 * spread_of_data, who


def test_pretraining_is_compared_and_told(monkeypatch, capsys):
    toy = Settings(sizes=(784, 8), batch=10, updates=2)
    plans = {"meannet-rbm": [toy, replace(toy, path="plain", nets=2)], "sklearn-rbm": [replace(toy, path="float64")]}
    monkeypatch.setattr(pretraining, "usual", lambda where: plans)
    monkeypatch.setattr(pretraining.compare, "__kwdefaults__", {"plans": None, "repeats": 2})
    assert cli.main(["bench", "--pretrain", "--device", "cpu", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["who"] for row in document["rows"]] == ["meannet-rbm", "meannet-rbm", "sklearn-rbm"]
    assert [row["nets"] for row in document["rows"]] == [1, 2, 1] and document["left_out"] == []
    for row in document["rows"]:
        assert row["epochs_per_s"] == pytest.approx(row["updates_per_s"] * 10 / 60000, abs=1e-4)
    assert document["rows"][-1]["note"] == "float64, persistent chains"
