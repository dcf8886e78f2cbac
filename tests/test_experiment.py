"""From an experiment to its result: what result.json says, set against the record and against scipy."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from newswire import collection  # noqa: F401, a fixture
from scipy import stats
from toys import small, written

from meannet import data, device, fast, outcome, recipes
from meannet import experiment as experiments
from meannet.cli import main
from meannet.config import Arm, Experiment, from_json, to_json
from meannet.experiment import Options
from meannet.fleets import load_fleet, trained_fleet
from meannet.runlog import RunFolder

ABSURD = Arm(name="absurd", lr=1e30, limit=math.inf)


@pytest.fixture(scope="module")
def toy() -> Experiment:
    full = small("mnist.a1", epochs=5, seeds=(0, 1, 2))
    slower = replace(full.arms[0], lr=1.0)  # so that no two arms of these tiny nets end alike
    return replace(full, net=replace(full.net, hidden=((6,), (5, 4))), arms=(slower, *full.arms[1:]))


@pytest.fixture(scope="module")
def folder(toy: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("toy") / "run"
    experiments.run(toy, where, Options(command="meannet run toy"))
    return where


@pytest.fixture(scope="module")
def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same arms, and one with a learning rate that no net survives, run from the command line."""
    here = tmp_path_factory.mktemp("diverged")
    full = small("digits", epochs=4)
    both = replace(full, arms=(full.arms[0], ABSURD, *full.arms[1:]))
    assert main(["run", str(written(full, here / "calm.json")), "--out", str(here / "calm")]) == 0
    assert main(["run", str(written(both, here / "both.json")), "--out", str(here / "both")]) == 3
    return here


def test_an_arms_decay_is_that_of_its_nets_and_shrinks_their_weights(tmp_path):
    full = small("claims.shrinking", epochs=3, seeds=(0, 1))
    penalty, neither = (next(arm for arm in full.arms if arm.name.startswith(name)) for name in ("penalty", "neither"))
    full = replace(full, arms=(neither, replace(penalty, lr=neither.lr, weight_decay=1.0)))
    assert experiments.run(full, tmp_path / "run")["path"] == "plain"
    fleet = trained_fleet(full, RunFolder.open(tmp_path / "run"), full.net.hidden[0])
    lengths = fleet.weights[0].square().sum((1, 2))
    assert (lengths[2:] < lengths[:2]).all()


def test_a_result_has_every_field_that_readers_rely_on(result):
    assert {"recipe", "paper", "claim", "claims", "arms", "comparisons", "data", "epochs", "device"} <= result.keys()
    assert {"precision", "path", "seconds", "commit", "versions"} <= result.keys()
    assert result["claim"] == {"arm": "dropout+input", "value": 110.0, "unit": "test errors"} == result["claims"][0]
    assert result["data"].items() >= {"name": "digits", "n_train": 300, "n_test": 1000, "image": [8, 8]}.items()
    assert result["versions"]["torch"] == torch.__version__ and result["epochs"] == 5
    assert result["pace"].keys() == {arm["net"] for arm in result["arms"]}
    for pace in result["pace"].values():
        assert pace["first"][0] == 1 and pace["last"][0] == 5
        assert 0 < pace["first"][1] < pace["last"][1] < result["seconds"] + 1
    for arm in result["arms"]:
        assert {"name", "net", "seeds", "errors", "mean", "sd", "n_test", "curve", "metrics", "stopped"} == arm.keys()
        assert arm["curve"].keys() == {"epochs", "mean", "least", "most", "train"}


def test_arms_stand_in_the_experiments_order_architecture_by_architecture(toy, result):
    expected = [(net, arm.name) for net in ("64-6-10", "64-5-4-10") for arm in toy.arms]
    assert [(arm["net"], arm["name"]) for arm in result["arms"]] == expected


def test_errors_are_the_last_test_errors_on_record(result, records):
    for arm in result["arms"]:
        last = [r for r in records if (r["net"], r["arm"], r["epoch"]) == (arm["net"], arm["name"], 5)]
        assert [round(1000 * r["test_error"]) for r in last] == arm["errors"]
        assert [r["seed"] for r in last] == arm["seeds"] == [0, 1, 2]


def test_mean_and_sd_are_those_of_the_errors(result):
    for arm in result["arms"]:
        errors = torch.tensor(arm["errors"], dtype=torch.float64)
        assert arm["mean"] == pytest.approx(errors.mean().item(), rel=1e-12)
        assert arm["sd"] == pytest.approx(errors.std().item(), rel=1e-12)


def test_log_probability_is_that_of_the_mean_network(toy, folder, result):
    dataset = data.load(toy.data, say=print)
    opened = experiments.RunFolder.open(folder)
    fleet, faults, _ = load_fleet(toy, opened, (5, 4), dataset, torch.device("cpu"))
    net = 2 * 3 + 1  # the third arm, the second seed
    rates, x = [0.2, 0.5, 0.5], dataset.test.inputs.double()
    for k, (weight, bias) in enumerate(zip(fleet.weights, fleet.biases, strict=True)):
        total = x @ (weight[net].double() * (1 - rates[k])).T + bias[net].double()
        x = total.sigmoid()
    right = total.log_softmax(1).gather(1, dataset.test.targets[:, None]).mean().item()
    arm = result["arms"][5]
    assert (
        not faults
        and arm["name"] == "dropout+input"
        and arm["metrics"]["log_probability"][1] == pytest.approx(right, rel=1e-5)
    )


def test_curves_are_mean_least_and_most_over_seeds(result, records):
    arm = result["arms"][4]
    of = arm["net"], arm["name"]
    for k, epoch in enumerate(arm["curve"]["epochs"]):
        errors = [r["test_error"] * 1000 for r in records if (r["net"], r["arm"], r["epoch"]) == (*of, epoch)]
        assert arm["curve"]["mean"][k] == pytest.approx(sum(errors) / 3, abs=0.051)
        assert (arm["curve"]["least"][k], arm["curve"]["most"][k]) == (round(min(errors)), round(max(errors)))
        train = [r["train_error"] for r in records if (r["net"], r["arm"], r["epoch"]) == (*of, epoch)]
        assert arm["curve"]["train"][k] == pytest.approx(sum(train) / 3, abs=1e-6)
    assert arm["curve"]["epochs"] == [1, 2, 3, 4, 5]


def test_a_long_curve_keeps_a_hundred_points_and_the_last():
    records = [{"epoch": epoch, "test_error": 0.5, "train_error": 0.25} for epoch in range(1, 1235)]
    curve = outcome.curve(records, 10)
    assert len(curve["epochs"]) <= 100 and curve["epochs"][-1] == 1234 and curve["mean"][0] == 5.0


def test_errors_of_a_hundred_cases_are_whole_and_per_cent_are_not():
    records = [{"epoch": 1, "test_error": error, "train_error": 0.1} for error in (0.07, 0.08)]
    counts, percents = outcome.curve(records, 100), outcome.curve(records, 100, percent=True)
    assert json.dumps([counts["least"], counts["most"]]) == "[[7], [8]]" and counts["mean"] == [7.5]
    assert json.dumps([percents["least"], percents["most"]]) == "[[7.0], [8.0]]"


def test_the_record_has_a_line_for_every_net_arm_seed_and_epoch(toy, records):
    expected = {
        (n, a.name, s, e) for n in ("64-6-10", "64-5-4-10") for a in toy.arms for s in (0, 1, 2) for e in range(1, 6)
    }
    assert {(r["net"], r["arm"], r["seed"], r["epoch"]) for r in records} == expected and len(records) == len(expected)
    rates = {r["epoch"]: r["lr"] for r in records if r["arm"] == "dropout"}
    assert rates[3] == pytest.approx(toy.optim.lr * toy.optim.decay**2, rel=1e-12)


def test_sparse_records_still_have_the_last_epoch(tmp_path):
    result = experiments.run(small("digits", epochs=5, samples=0, record_every=2), tmp_path / "run")
    assert all(arm["curve"]["epochs"] == [2, 4, 5] for arm in result["arms"])


def test_the_folder_holds_the_experiment_the_environment_and_the_sampled_networks(toy, folder):
    assert from_json(json.loads((folder / "experiment.json").read_text())) == toy
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["command"] == "meannet run toy" and environment["device"] == "cpu"
    assert {
        "device_name",
        "threads",
        "precision",
        "path",
        "python",
        "platform",
        "commit",
        "versions",
    } < environment.keys()
    evaluation = json.loads((folder / "eval.json").read_text())
    assert evaluation["samples"] == 2 and len(evaluation["rows"]) == 2 * 3 * 3


def test_a_resumed_run_keeps_the_command_that_began_it(toy, tmp_path):
    short = replace(toy, optim=toy.optim.compressed(2), samples=0)
    experiments.run(short, tmp_path / "run", Options(command="meannet run it"))
    (tmp_path / "run" / "result.json").unlink()
    experiments.resume(tmp_path / "run", Options(command="meannet run --resume it"))
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["command"] == "meannet run it"


def test_one_seed_has_no_sd_and_nothing_to_compare(tmp_path):
    result = experiments.run(small("digits", epochs=1, samples=0, seeds=(7,)), tmp_path / "run")
    assert [arm["sd"] for arm in result["arms"]] == [None] * 3 and result["comparisons"] == []
    assert all(arm["mean"] == arm["errors"][0] and arm["seeds"] == [7] for arm in result["arms"])


def test_comparisons_are_paired_over_seeds_as_scipy_pairs_them(result):
    assert [(c["net"], c["arm"], c["over"]) for c in result["comparisons"]] == [
        (net, arm, "backprop") for net in ("64-6-10", "64-5-4-10") for arm in ("dropout", "dropout+input")
    ]
    errors = {(arm["net"], arm["name"]): arm["errors"] for arm in result["arms"]}
    for found in result["comparisons"]:
        test = stats.ttest_rel(errors[found["net"], found["arm"]], errors[found["net"], "backprop"])
        assert found["difference"] / found["standard_error"] == pytest.approx(test.statistic, rel=1e-9)
        assert found["beyond_spread"] == (abs(test.statistic) > 2) and found["n"] == test.df + 1


def test_comparisons_use_only_seeds_that_both_arms_finished():
    arms = [
        {"net": "n", "name": "backprop", "seeds": [0, 1, 2, 3], "errors": [10, 20, 30, 40]},
        {"net": "n", "name": "dropout", "seeds": [1, 3, 5], "errors": [13, 31, 99]},
        {"net": "n", "name": "lonely", "seeds": [2], "errors": [1]},
    ]
    (found,) = outcome.compare(arms)
    test = stats.ttest_rel([13, 31], [20, 40])
    assert found["difference"] == -8.0 and found["n"] == 2 and found["beyond_spread"]
    assert found["difference"] / found["standard_error"] == pytest.approx(test.statistic, rel=1e-12)


def test_a_difference_without_spread_is_beyond_it_unless_it_is_zero():
    arms = [
        {"net": "n", "name": name, "seeds": [0, 1], "errors": errors}
        for name, errors in (("base", [5, 6]), ("same", [5, 6]), ("two fewer", [3, 4]))
    ]
    assert [found["beyond_spread"] for found in outcome.compare(arms)] == [False, True]


def test_a_net_that_diverges_is_named_by_arm_seed_layer_epoch_and_rate(diverged):
    arms = json.loads((diverged / "both" / "result.json").read_text())["arms"]
    absurd = next(arm for arm in arms if arm["name"] == "absurd")
    assert absurd["errors"] == [] and absurd["mean"] is None and absurd["sd"] is None
    assert [stop["seed"] for stop in absurd["stopped"]] == [0, 1]
    for stop in absurd["stopped"]:
        assert (
            stop["epoch"] >= 1
            and stop["layer"] in (1, 2, 3)
            and stop["lr"] == pytest.approx(1e30, rel=0.5)
            and stop["why"]
        )


def test_the_others_do_as_well_as_without_the_net_that_diverged(diverged):
    calm, both = (json.loads((diverged / name / "result.json").read_text()) for name in ("calm", "both"))
    assert calm["arms"] == [arm for arm in both["arms"] if arm["name"] != "absurd"]
    assert calm["comparisons"] == both["comparisons"]


def test_sampled_networks_leave_out_nets_that_were_stopped(diverged, capsys):
    rows = json.loads((diverged / "both" / "eval.json").read_text())["rows"]
    assert len(rows) == 6 and {row["arm"] for row in rows} == {"backprop", "dropout", "dropout+input"}
    assert main(["eval", str(diverged / "both"), "--samples", "2"]) == 0
    assert "absurd" not in capsys.readouterr().out
    assert json.loads((diverged / "both" / "eval.json").read_text())["rows"] == rows


def test_what_diverged_is_told_and_a_finished_run_is_done(diverged, capsys):
    assert main(["run", "--resume", str(diverged / "both")]) == 0
    told = capsys.readouterr().out
    assert "0 (2 stopped)" in told and "absurd, seed 1, layer" in told and "learning rate 1e+30" in told


def test_a_run_in_which_every_net_diverges_ends_with_exit_3(tmp_path, capsys):
    toy = written(small("digits", epochs=3, arms=(ABSURD,), samples=1), tmp_path / "toy.json")
    assert main(["run", str(toy), "--out", str(tmp_path / "run")]) == 3
    told = capsys.readouterr()
    assert "stopped: 64-8-8-10, arm absurd, seed 0, layer" in told.out and not told.err
    assert main(["eval", str(tmp_path / "run")]) == 1
    assert "every net" in capsys.readouterr().err


def test_what_a_run_cannot_begin_with_leaves_no_folder(tmp_path):
    toy = small("digits")
    for options, message in ((Options(path="quick"), "--path"), (Options(device="tpu"), "--device")):
        with pytest.raises(ValueError, match=message):
            experiments.run(toy, tmp_path / "run", options)
    assert not (tmp_path / "run").exists()


def test_running_out_of_memory_names_what_was_asked_what_there_is_and_what_to_lower():
    for error in (
        torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has\na total capacity of 139 GiB"
        ),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 20.00 GiB"),
    ):
        with pytest.raises(device.OutOfMemory) as caught, device.naming_memory(torch.device("cpu"), "64-8-10, 20 nets"):
            raise error
        message = str(caught.value)
        assert all(
            part in message for part in ("64-8-10, 20 nets", "20.00 GiB", "--seeds", "net.hidden", "optim.batch")
        )
    with pytest.raises(RuntimeError, match="another matter"), device.naming_memory(torch.device("cpu"), "x"):
        raise RuntimeError("another matter")


def test_every_field_of_an_experiment_survives_the_run_folder(toy, folder):
    document = json.loads((folder / "experiment.json").read_text())
    assert document == json.loads(json.dumps(to_json(toy))) and len(document) == len(fields(Experiment))


def test_a_run_on_documents_writes_its_classes_and_holds_percentages_against_counts(collection, tmp_path):  # noqa: F811
    full = recipes.get("reuters.c_2000_1000")
    selection = replace(full.data.selection, words=30, largest=0.4)
    toy = replace(full, data=replace(full.data, selection=selection), net=replace(full.net, hidden=((12, 8),)))
    toy = replace(toy, optim=replace(toy.optim, epochs=60, batch=10), seeds=(0, 1), record_every=20)
    said = []
    result = experiments.run(toy, tmp_path / "run", Options(say=said.append))
    assert result["data"]["classes_by_size"] == {"C11": 40, "E21": 30, "GSPO": 25, "M14": 6}
    assert result["data"]["paper"] == {"classes": 50, "documents": 402_738}
    assert "4 classes, 101 documents of 210 (the paper's data: 50 classes, 402,738 documents)" in said[0]
    assert result["claim"] == {"arm": "dropout+input", "value": round(0.2962 * 51, 1), "unit": "test errors"}
    assert result["peak_mib"] > 0 and {arm["net"] for arm in result["arms"]} == {"30-12-8-4"}
    assert min(arm["mean"] for arm in result["arms"]) < 0.2 * 51  # 20 of 51 are in the largest class
    assert main(["eval", str(tmp_path / "run"), "--samples", "2"]) == 0


def test_an_arm_with_rates_of_its_own_is_the_arm_that_has_them_otherwise(tmp_path):
    """Rates of each layer and of inputs, against the shared ones that they stand in for, and against their fleet."""
    arms = (
        Arm(name="backprop"),
        Arm(name="dropout+input", hidden=True, visible=True),
        Arm(name="no rates", hidden=True, visible=True, hidden_rates=(0.0, 0.0), visible_rate=0.0),
        Arm(name="the same rates", hidden=True, visible=True, hidden_rates=(0.5,), visible_rate=0.2),
        Arm(name="the second layer", hidden=True, hidden_rates=(0.0, 0.5)),
    )
    toy = replace(small("digits", samples=0), arms=arms, seeds=(0,))
    experiments.run(toy, tmp_path / "run")
    folder, digits = RunFolder.open(tmp_path / "run"), data.load(toy.data, say=print)
    fleet, _, _ = load_fleet(toy, folder, toy.net.hidden[0], digits, torch.device("cpu"))
    assert [rate.flatten().tolist() for rate in fleet.rates] == [
        [0, 0.2, 0, 0.2, 0], [0, 0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5, 0.5]
    ]  # fmt: skip
    for weight in fleet.weights:
        assert torch.equal(weight[2], weight[0]) and torch.equal(weight[3], weight[1])
        assert not torch.equal(weight[4], weight[0]) and not torch.equal(weight[4], weight[1])
    trained = trained_fleet(toy, folder, toy.net.hidden[0])
    assert all(torch.equal(one, other) for one, other in zip(trained.rates, fleet.rates, strict=True))


@pytest.mark.parametrize("options", [{"precision": "half"}, {"precision": "tf32"}, {"path": "quick"}])
def test_a_path_or_precision_that_is_not_there_is_refused_before_anything_is_trained(options, tmp_path):
    with pytest.raises(ValueError, match=r"^--(path|precision)"):
        experiments.run(small("mnist.a2_dbn"), tmp_path / "run", Options(device="cpu", **options))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("began", "given", "wanted"),
    [
        ("float32", {}, "float32"),
        ("float32", {"path": "plain"}, "float32"),
        ("float32", {"precision": "float32"}, "float32"),
        ("tf32", {}, "auto"),  # begun on a GPU and gone on with on a CPU, which has none
        ("half", {}, "auto"),
    ],
)
def test_a_resumed_run_has_the_precision_it_began_with_where_there_is_such(began, given, wanted, tmp_path, monkeypatch):
    toy, folder, asked = small("digits", samples=0), tmp_path / "run", []
    with pytest.raises(experiments.Interrupted):
        experiments.run(toy, folder, Options(device="cpu", precision="float32", stop=lambda: True))
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps(environment | {"asked_precision": began}))
    engine = fast.engine
    monkeypatch.setattr(fast, "engine", lambda *a, precision, **k: asked.append(precision) or engine(*a, **k))
    experiments.resume(folder, Options(device="cpu", **given))
    assert asked == [wanted]
