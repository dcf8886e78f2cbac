"""States: exact, checksummed, written whole or not at all; a run stopped or killed ends as the unbroken one."""

import errno
import gzip
import itertools
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import every_update_asks, finish, no_file_above, outcome, small, start, written  # noqa: F401, a fixture

from meannet import checkpoint, config, data
from meannet import experiment as experiments
from meannet.atomic import written_atomically
from meannet.checkpoint import CheckpointError
from meannet.cli import main
from meannet.config import Arm, Experiment
from meannet.experiment import Interrupted, Options, Progress

TENSORS = {"weights.0": torch.arange(6.0).view(2, 3), "biases.0": torch.tensor([0.5, -0.5])}
FACTS = {"epoch": 3, "faults": []}


@pytest.fixture(scope="module")
def toy() -> Experiment:
    """Two architectures, and an arm that diverges in the middle of the run."""
    full = small("digits", epochs=6, samples=0)
    arms = (*full.arms[:2], Arm(name="wild", lr=40.0, limit=float("inf")))
    return replace(full, net=replace(full.net, hidden=((6,), (5, 4))), arms=arms)


@pytest.fixture(scope="module")
def unbroken(toy: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    experiments.run(toy, folder)
    return folder


@pytest.fixture
def half_done(toy: Experiment, tmp_path: Path) -> Path:
    """A run that was stopped in the second architecture, with two states of the first."""
    return stopped_after(toy, tmp_path / "run", 26)


def stopped_after(toy: Experiment, folder: Path, updates: int) -> Path:
    count = itertools.count()
    with pytest.raises(Interrupted):
        experiments.run(toy, folder, Options(stop=lambda: next(count) >= updates, save_epochs=2))
    return folder


def saved_epochs(folder: Path, **options: Any) -> list[int]:
    """Which epoch the state is of after each epoch of a run that goes on."""
    found: list[int] = []

    def look(_: Progress) -> None:
        found.append(checkpoint.load(folder / "state.safetensors")[1]["epoch"])

    experiments.resume(folder, Options(progress=look, **options))
    return found


def test_a_resumed_run_saves_as_often_as_before_unless_told_otherwise(tmp_path):
    toy = small("digits", epochs=7, samples=0, seeds=(0,))
    folder = stopped_after(toy, tmp_path / "run", 10)  # at epoch 3, having saved every second one
    copies = [Path(shutil.copytree(folder, tmp_path / name)) for name in ("other", "broken")]
    assert saved_epochs(folder) == [3, 5, 5, 7]
    assert saved_epochs(copies[0], save_epochs=3) == [3, 3, 6, 7]
    assert json.loads((copies[0] / "environment.json").read_text())["save_epochs"] == 3
    (copies[1] / "environment.json").write_text('{"save_epochs": "often", "save_minutes": -1}')
    assert saved_epochs(copies[1]) == [3, 3, 3, 7]


def test_what_is_saved_is_what_is_loaded(tmp_path):
    checkpoint.save(tmp_path / "state.safetensors", TENSORS, FACTS)
    tensors, facts = checkpoint.load(tmp_path / "state.safetensors")
    assert facts == FACTS and tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_the_same_state_gives_the_same_bytes(tmp_path):
    path = tmp_path / "state.safetensors"
    contents = set()
    for _ in range(20):
        checkpoint.save(path, TENSORS, FACTS)
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_the_state_before_is_kept(tmp_path):
    path = tmp_path / "state.safetensors"
    for epoch in (1, 2, 3):
        checkpoint.save(path, TENSORS, {"epoch": epoch})
    assert checkpoint.load(path)[1] == {"epoch": 3}
    path.unlink()
    assert checkpoint.load(path)[1] == {"epoch": 2}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.previous.safetensors"]


def test_no_flipped_byte_goes_unnoticed(tmp_path):
    path = tmp_path / "state.safetensors"
    checkpoint.save(path, TENSORS, FACTS)
    whole = path.read_bytes()
    chance = random.Random(0)
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            tensors, facts = checkpoint.load(path)
        except CheckpointError as error:
            assert "state.safetensors" in str(error) and "\n" not in str(error)
            continue
        # Only a blank in the header's padding may be changed for another blank.
        assert facts == FACTS and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
        assert whole[position : position + 1] == b" "


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, -1])
def test_a_truncated_state_falls_back_to_the_one_before(tmp_path, length):
    path = tmp_path / "state.safetensors"
    checkpoint.save(path, TENSORS, {"epoch": 1})
    checkpoint.save(path, TENSORS, {"epoch": 2})
    path.write_bytes(path.read_bytes()[:length])
    assert checkpoint.load(path)[1] == {"epoch": 1}


def test_recovery_puts_the_whole_state_where_the_next_save_keeps_it(tmp_path):
    path, said = tmp_path / "state.safetensors", []
    checkpoint.save(path, TENSORS, {"epoch": 1})
    checkpoint.save(path, TENSORS, {"epoch": 2})
    path.write_bytes(b"")
    assert checkpoint.recover(path, said.append) == {"epoch": 1}
    assert len(said) == 1 and "state.safetensors" in said[0] and "epoch 1" in said[0]
    checkpoint.save(path, TENSORS, {"epoch": 5})
    path.unlink()
    assert checkpoint.load(path)[1] == {"epoch": 1}


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_state_and_no_other_file(tmp_path, monkeypatch, fails):
    path = tmp_path / "state.safetensors"
    checkpoint.save(path, TENSORS, {"epoch": 1})
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left|File too large") as caught:
        if fails == "fsync":
            patch.setattr(os, "fsync", full)
        elif fails == "replace":
            patch.setattr(Path, "replace", full)
        with no_file_above(len(before) // 2 if fails == "write" else 1 << 30):
            checkpoint.save(path, TENSORS, {"epoch": 2})
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("error", [gzip.BadGzipFile("not a gzipped file"), OSError(errno.EIO, "Input/output error")])
def test_what_goes_wrong_while_content_is_made_is_not_laid_on_the_file_it_was_for(tmp_path, error):
    with pytest.raises(OSError) as caught, written_atomically(tmp_path / "file"):
        raise error
    assert caught.value is error and caught.value.filename is None and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("updates", [0, 1, 3, 4, 11, 17, 18, 19, 25, 35])
def test_a_run_stopped_after_any_update_ends_as_the_unbroken_one(toy, unbroken, tmp_path, updates):
    folder = stopped_after(toy, tmp_path / "run", updates)
    assert not (folder / "result.json").exists()
    experiments.resume(folder)
    assert outcome(folder) == outcome(unbroken)


@pytest.mark.parametrize("updates", [4, 10])
def test_a_stopped_run_forgets_nothing_that_tells_a_collapse_from_chance(tmp_path, monkeypatch, updates):
    toy = small("digits", epochs=9, samples=0)
    toy = replace(toy, arms=(*toy.arms, Arm(name="silent", initial_bias=-100.0)))
    whole = experiments.run(toy, tmp_path / "once")
    assert [net["epoch"] for net in whole["arms"][-1]["stopped"]] == [1, 1]
    monkeypatch.setattr("meannet.train.ENOUGH", 4 * whole["data"]["n_train"])  # as if there were few cases
    whole = experiments.run(toy, tmp_path / "whole")
    assert [net["epoch"] for net in whole["arms"][-1]["stopped"]] == [4, 4]
    folder = stopped_after(toy, tmp_path / "run", updates)
    experiments.resume(folder)
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_state_that_says_nothing_of_what_was_not_judged_is_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr("meannet.train.ENOUGH", 10**6)
    folder = stopped_after(small("digits", epochs=6, samples=0), tmp_path / "run", 10)
    tensors, facts = checkpoint.read(folder / "state.safetensors")
    del facts["unjudged"]  # as states were once
    checkpoint.save(folder / "state.safetensors", tensors, facts)
    assert experiments.resume(folder)["epochs"] == 6


def test_a_run_stopped_again_and_again_ends_as_the_unbroken_one(toy, unbroken, tmp_path):
    folder = stopped_after(toy, tmp_path / "run", 2)
    for updates in itertools.cycle((1, 4, 7)):
        count = itertools.count()
        try:
            experiments.resume(folder, Options(stop=lambda count=count, updates=updates: next(count) >= updates))
            break
        except Interrupted:
            continue
    assert outcome(folder) == outcome(unbroken)


def test_the_unbroken_run_has_nets_that_were_stopped(unbroken):
    arms = outcome(unbroken)["result"]["arms"]
    assert any(1 < stop["epoch"] < 6 for arm in arms for stop in arm["stopped"]) and any(arm["seeds"] for arm in arms)


def test_a_run_in_which_every_net_stopped_ends_the_same_when_resumed(tmp_path):
    wild = small("digits", epochs=9, samples=0, arms=(Arm(name="wild", lr=1e30, limit=float("inf")),))
    experiments.run(wild, tmp_path / "unbroken")
    experiments.run(wild, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    experiments.resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "unbroken")


def test_a_stop_while_networks_are_sampled_is_heard_and_loses_nothing(tmp_path):
    toy, said = small("digits", epochs=2, samples=2), []
    experiments.run(toy, tmp_path / "unbroken")
    sampling = Options(say=said.append, stop=lambda: any("sampled networks" in line for line in said))
    with pytest.raises(Interrupted):
        experiments.run(toy, tmp_path / "run", sampling)
    experiments.resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "unbroken")


def test_a_run_killed_before_it_wrote_its_result_only_writes_that(unbroken, tmp_path):
    folder = Path(shutil.copytree(unbroken, tmp_path / "run"))
    (folder / "result.json").unlink()
    experiments.resume(folder)
    assert outcome(folder) == outcome(unbroken)


def test_runs_killed_at_random_moments_end_as_the_unbroken_one(toy, tmp_path):
    toy_file = written(toy, tmp_path / "toy.json")
    assert finish("run", toy_file, "--out", "unbroken", cwd=tmp_path) == 3
    expected, chance, kills, runs = outcome(tmp_path / "unbroken"), random.Random(2012), 0, 0
    while kills < 10:
        name, runs = f"run{runs}", runs + 1
        begin = ("run", toy_file, "--out", name, "--save-epochs", 1)
        while not (tmp_path / name / "report.html").exists():
            process = start(*begin, cwd=tmp_path)
            process.join(chance.uniform(0.0, 0.4) if kills < 10 else 60)
            if process.exitcode is None:
                process.kill()
                process.join()
                kills += 1
            if (tmp_path / name / "experiment.json").exists():
                begin = ("run", "--resume", name, "--save-epochs", 1)
        assert outcome(tmp_path / name) == expected
        assert not list((tmp_path / name).glob(".*"))


def test_a_run_killed_as_it_wrote_its_first_file_can_be_begun_again(toy, tmp_path):
    left = tmp_path / "run" / ".experiment.json.0123abcd.tmp"
    left.parent.mkdir()
    left.write_text("{")
    experiments.run(toy, left.parent)
    assert not left.exists() and (left.parent / "result.json").exists()


def test_a_damaged_state_is_named_and_the_one_before_it_taken(toy, half_done, unbroken, capsys):
    state = half_done / "state.5-4.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"\xff")
    assert main(["run", "--resume", str(half_done)]) == 3
    assert "state.5-4.safetensors is damaged" in capsys.readouterr().out
    assert outcome(half_done) == outcome(unbroken)


def test_a_record_that_was_lost_is_told_and_the_run_goes_on(half_done, unbroken, capsys):
    (half_done / "metrics.jsonl").write_text("")
    assert main(["run", "--resume", str(half_done)]) == 3
    assert "metrics.jsonl has lost its first 6 epochs; curves will begin after them" in capsys.readouterr().out
    assert outcome(half_done)["result"]["arms"][0]["errors"] == outcome(unbroken)["result"]["arms"][0]["errors"]


def test_two_damaged_states_are_one_line_and_exit_1(half_done, capsys):
    for path in half_done.glob("state.6.*"):
        path.write_bytes(b"")
    assert main(["run", "--resume", str(half_done)]) == 1
    message = capsys.readouterr().err
    assert "no usable state" in message and "state.6.previous.safetensors" in message and message.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "named"),
    [("optim.lr=2", "optim.lr was 1.0"), ("seeds=0,2", "seeds was [0, 1]"), ("net.hidden=6;5,5", "net.hidden was")],
)
def test_changed_settings_are_refused_by_name(toy, half_done, capsys, setting, named):
    changed = config.to_json(config.override(toy, [setting]))
    (half_done / "experiment.json").write_text(json.dumps(changed))
    assert main(["run", "--resume", str(half_done)]) == 1
    message = capsys.readouterr().err
    assert named in message and message.count("\n") == 1


def test_arms_in_another_order_are_refused(toy, half_done, capsys):
    (half_done / "experiment.json").write_text(json.dumps(config.to_json(replace(toy, arms=toy.arms[::-1]))))
    assert main(["run", "--resume", str(half_done)]) == 1
    assert "another order" in capsys.readouterr().err


def test_changed_data_is_refused_by_name(half_done, capsys, monkeypatch):
    load = data.load
    monkeypatch.setattr(data, "load", lambda *a, **k: replace(load(*a, **k), digest="other"))
    assert main(["run", "--resume", str(half_done)]) == 1
    message = capsys.readouterr().err
    assert "the digits data changed" in message and message.count("\n") == 1


def test_a_half_written_last_line_of_the_record_is_made_good(half_done, unbroken):
    metrics = half_done / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"epoch": 4, "net": "64-5-')
    experiments.resume(half_done)
    assert outcome(half_done) == outcome(unbroken)


def test_a_full_disk_is_one_line_and_exit_1_and_costs_nothing(tmp_path, capsys):
    toy = small("digits", epochs=4, samples=0)
    toy = replace(toy, net=replace(toy.net, hidden=((40,),)))
    experiments.run(toy, tmp_path / "unbroken")
    folder = stopped_after(toy, tmp_path / "run", 7)
    before = (folder / "state.safetensors").read_bytes()
    with no_file_above(len(before) // 2):
        assert main(["run", "--resume", str(folder)]) == 1
    message = capsys.readouterr().err
    assert "File too large" in message and f"meannet run --resume {folder}" in message and message.count("\n") == 1
    assert (folder / "state.safetensors").read_bytes() == before and not list(folder.glob(".*"))
    experiments.resume(folder)
    assert outcome(folder) == outcome(tmp_path / "unbroken")
