"""Runs that pretrain: resumed they are the unbroken ones, and a damaged file goes back one state."""

import json
import re
import runpy
from dataclasses import replace

import numpy as np
import pytest
import torch
from toys import outcome, small, written

from meannet import checkpoint, data
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
def test_a_run_on_the_plain_path_is_the_same_whichever_version_draws_states(recipe, tmp_path, monkeypatch):
    experiments.run(toy(recipe), tmp_path / "compiled", Options(path="plain"))
    monkeypatch.setattr("meannet.pretrain.draws.library", lambda: None)
    experiments.run(toy(recipe), tmp_path / "plain", Options(path="plain"))
    assert outcome(tmp_path / "compiled") == outcome(tmp_path / "plain")
    assert timeless(tmp_path / "compiled") == timeless(tmp_path / "plain")


@BOTH
def test_a_stop_while_samples_are_drawn_loses_nothing_and_resuming_draws_them(recipe, tmp_path):
    whole, folder, epochs = tmp_path / "whole", tmp_path / "stopped", []
    experiments.run(toy(recipe), whole, Options(progress=lambda progress: epochs.append(progress.net)))
    pretraining = sum("," in name for name in epochs)
    told = []
    with pytest.raises(Interrupted):
        experiments.run(toy(recipe), folder, Options(progress=told.append, stop=lambda: len(told) == pretraining))
    tensors, facts = checkpoint.read(folder / "pretrained.safetensors")
    assert not facts["complete"] and "samples" not in tensors and len(told) == pretraining
    experiments.resume(folder, Options(progress=told.append))
    assert len(told) == len(epochs)
    assert outcome(folder) == outcome(whole) and timeless(folder) == timeless(whole)


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
    for setting in ("pretrain.steps=1000", "pretrain.joint.steps=1000", "pretrain.steps_every=0,0,1"):
        assert main(["show", "mnist.a2_dbm", "--set", "pretrain.epochs=1000", "--set", setting]) == 2
        assert f"{setting.partition('=')[0]} must be" in capsys.readouterr().err
    assert main(["show", "mnist.a2_dbm", "--set", "pretrain.epochs=999", "--set", "pretrain.steps_every=1"]) == 0


@BOTH
def test_predictions_of_a_run_and_of_its_exports_make_the_errors_that_it_counted(recipe, tmp_path, capsys):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    dataset = data.load(toy(recipe).data, say=print)
    inputs, right = dataset.test.inputs.numpy(), dataset.test.targets.numpy()
    np.save(tmp_path / "cases.npy", inputs)
    result = experiments.run(toy(recipe), tmp_path / "run")
    for arm in result["arms"]:
        for seed, errors in zip(arm["seeds"], arm["errors"], strict=True):
            which = [str(tmp_path / "run"), "--arm", arm["name"], "--seed", str(seed)]
            assert main(["predict", *which, str(tmp_path / "cases.npy"), "--json"]) == 0
            found = json.loads(capsys.readouterr().out)["cases"]
            assert sum(int(case["label"]) != label for case, label in zip(found, right, strict=True)) == errors
    which = [str(tmp_path / "run"), "--seed", "all", "--to"]
    assert main(["predict", *which[:-1], str(tmp_path / "cases.npy"), "--json"]) == 0
    expected = np.array([case["probabilities"] for case in json.loads(capsys.readouterr().out)["cases"]])
    assert main(["export", *which, "onnx", "-o", str(tmp_path / "it.onnx")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "it.onnx")
    np.testing.assert_allclose(session.run(["probabilities"], {"inputs": inputs})[0], expected, atol=1e-5)
    assert main(["export", *which, "torch", "-o", str(tmp_path / "it.safetensors")]) == 0
    network, _ = runpy.run_path(str(tmp_path / "it.py"))["load"]()
    np.testing.assert_allclose(network(torch.from_numpy(inputs)), expected, atol=1e-12)
    assert main(["export", *which, "pt2", "-o", str(tmp_path / "it.pt2")]) == 0
    program = torch.export.load(tmp_path / "it.pt2").module()
    np.testing.assert_allclose(program(torch.from_numpy(inputs).double()), expected, atol=1e-12)


@pytest.mark.parametrize("which", ["state", "pretrained"])
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_files_of_a_finished_run_that_are_not_whole_are_named_and_made_anew_by_resuming(which, how, tmp_path, capsys):
    experiments.run(toy("mnist.a2_dbm"), tmp_path / "run")
    before, file = outcome(tmp_path / "run"), tmp_path / "run" / f"{which}.safetensors"
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content) if how == "damaged" else file.unlink()
    np.save(tmp_path / "cases.npy", np.zeros((3, 64)))
    for command in (["eval"], ["predict", str(tmp_path / "cases.npy")]):
        assert main([command[0], str(tmp_path / "run"), *command[1:]]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and f"{which}.safetensors is {how}" in said and "meannet run --resume" in said
    (tmp_path / "run" / "result.json").unlink()
    assert main(["run", "--resume", str(tmp_path / "run")]) == 0
    assert outcome(tmp_path / "run") == before


def test_pretraining_that_diverges_is_one_line_and_exit_3(tmp_path, capsys):
    experiment = toy("mnist.a2_dbn")
    assert experiment.pretrain is not None
    wild = replace(experiment, pretrain=replace(experiment.pretrain, lr=(1e30,)))
    assert main(["run", str(written(wild, tmp_path / "wild.json")), "--out", str(tmp_path / "run")]) == 3
    assert re.fullmatch(r"meannet: pretraining diverged: .*; lower pretrain.lr\n", capsys.readouterr().err)
