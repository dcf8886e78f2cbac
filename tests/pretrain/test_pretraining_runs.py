"""Runs that pretrain: resumed they are the unbroken ones, and a damaged file goes back one state."""

import json
from dataclasses import replace

import numpy as np
import pytest
from toys import outcome, small

from meannet import checkpoint
from meannet import experiment as experiments
from meannet.cli import main
from meannet.experiment import Interrupted, Options
from meannet.runlog import RunFolder

BOTH = pytest.mark.parametrize("recipe", ["mnist.a2_dbn", "mnist.a2_dbm"])


def toy(recipe):
    made = small(recipe, epochs=2, samples=2)
    return replace(made, pretrain=replace(made.pretrain, epochs=(2,), joint=replace(made.pretrain.joint, epochs=2)))


def timeless(folder):
    lines = [json.loads(line) for line in (folder / "pretrain.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def stopping_after(updates):
    asked = iter(range(10**6))
    return lambda: next(asked) >= updates


@BOTH
def test_a_run_stopped_anywhere_and_resumed_is_the_unbroken_one(recipe, tmp_path):
    whole = tmp_path / "whole"
    result = experiments.run(toy(recipe), whole)
    for updates in (1, 4, 8, 13, 17, 20, 25):
        folder = tmp_path / f"stopped-{updates}"
        stop = stopping_after(updates)
        with pytest.raises(Interrupted):
            experiments.run(toy(recipe), folder, Options(stop=stop, save_epochs=1 if updates % 2 else None))
        experiments.resume(folder)
        assert outcome(folder) == outcome(whole) and timeless(folder) == timeless(whole)
    stages = [entry["stage"] for entry in result["pretraining"]]
    assert len(stages) == len(set(stages)) == 4
    assert all(len(entry["values"]) == 2 and entry["epochs"] >= 1 for entry in result["pretraining"])


@BOTH
def test_a_damaged_stack_goes_back_to_the_one_before_it(recipe, tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "broken"
    experiments.run(toy(recipe), whole)
    with pytest.raises(Interrupted):
        experiments.run(toy(recipe), folder, Options(stop=stopping_after(11), save_epochs=1))
    path = folder / "pretrained.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 1
    path.write_bytes(damaged)
    said = []
    experiments.resume(folder, Options(say=said.append))
    assert any("going back to the state before it" in line for line in said)
    assert outcome(folder) == outcome(whole) and timeless(folder) == timeless(whole)


@BOTH
def test_what_was_saved_is_not_gone_on_with_under_other_settings(recipe, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        experiments.run(toy(recipe), folder, Options(stop=stopping_after(5)))
    document = json.loads((folder / "experiment.json").read_text())
    document["pretrain"]["lr"] = [0.07]
    (folder / "experiment.json").write_text(json.dumps(document))
    with pytest.raises(checkpoint.CheckpointError, match=r"since pretrained.safetensors .* pretrain.lr"):
        experiments.resume(folder)


@BOTH
def test_evaluating_a_finished_run_sees_the_nets_own_inputs(recipe, tmp_path, capsys):
    result = experiments.run(toy(recipe), tmp_path / "run")
    assert main(["eval", str(tmp_path / "run"), "--samples", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["mean_network"] for row in rows] == [error for arm in result["arms"] for error in arm["errors"]]
    width = 64 if "dbn" in recipe else 64 + 8
    assert {row["net"] for row in rows} == {arm["net"] for arm in result["arms"]}
    assert result["arms"][0]["net"].startswith(f"{width}-8-")


def test_the_stack_is_kept_with_samples_from_the_model(tmp_path):
    experiments.run(toy("mnist.a2_dbm"), tmp_path / "run")
    tensors, facts = checkpoint.load(RunFolder(tmp_path / "run").pretrained((8, 8), 1))
    assert facts["complete"] and tensors["samples"].shape == (2, 100, 64)
    assert tensors["samples"].min() >= 0 and tensors["samples"].max() <= 1


def test_the_command_line_shows_sets_and_runs_pretraining(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["show", "mnist.a2_dbm", "--set", "pretrain.joint.lr=0.5", "--set", "pretrain.epochs=3,4"]) == 0
    shown = capsys.readouterr().out
    assert "pretrain.joint.lr" in shown and "3,4" in shown and "the authors' public code" in shown
    assert main(["show", "mnist.a1", "--set", "pretrain.lr=1"]) == 2
    assert "does not pretrain" in capsys.readouterr().err
    assert main(["show", "mnist.a2_dbm", "--set", "net.hidden=5,5,5"]) == 2
    assert "two layers for a deep Boltzmann machine" in capsys.readouterr().err
    assert main(["show", "mnist.a2_dbn", "--set", "pretrain.lr=-1"]) == 2
    assert "pretrain.lr must be" in capsys.readouterr().err


def test_predict_takes_a_finetuned_belief_net_and_refuses_a_boltzmann_machine_in_one_line(tmp_path, capsys):
    np.save(tmp_path / "cases.npy", np.random.default_rng(0).random((3, 64)))
    for recipe in ("mnist.a2_dbn", "mnist.a2_dbm"):
        experiments.run(toy(recipe), tmp_path / recipe)
    assert main(["predict", str(tmp_path / "mnist.a2_dbn"), str(tmp_path / "cases.npy")]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 3
    assert main(["predict", str(tmp_path / "mnist.a2_dbm"), str(tmp_path / "cases.npy")]) == 2
    assert "activities of their own deep Boltzmann machines" in capsys.readouterr().err
