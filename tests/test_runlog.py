"""The run folder: made anew or refused, written whole, read back in spite of a crash, held by one process at a time."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from toys import small, start, written

from meannet.cli import main
from meannet.runlog import RunFolder

TOY = small("digits", epochs=3, samples=0)


def line(epoch: int, net: str = "a", seconds: float = 1.0) -> dict:
    return {"epoch": epoch, "net": net, "seed": 0, "seconds": seconds}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "deep" / "run", TOY)


def test_a_new_folder_holds_the_experiment_as_it_was(folder):
    assert RunFolder.open(folder.path).experiment() == TOY


def test_an_empty_folder_is_taken(tmp_path):
    assert RunFolder.create(tmp_path, TOY).experiment() == TOY


def test_a_folder_with_a_run_in_it_is_refused_with_the_way_to_go_on(folder):
    with pytest.raises(ValueError, match=f"meannet run --resume {folder.path}"):
        RunFolder.create(folder.path, TOY)


def test_a_folder_with_anything_else_in_it_is_refused_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        RunFolder.create(tmp_path, TOY)
    with pytest.raises(ValueError, match="is a file"):
        RunFolder.create(tmp_path / "thesis.tex", TOY)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no experiment\.json"):
        RunFolder.open(tmp_path)
    with pytest.raises(ValueError, match="there is no run folder"):
        RunFolder.open(tmp_path / "nosuch")
    (tmp_path / "net.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="is a file; name the folder"):
        RunFolder.open(tmp_path / "net.safetensors")


@pytest.mark.parametrize("content", [b"", b"{", b'{"recipe": 3}', b"\xff\xfe", b"[]", b"null"])
def test_a_broken_experiment_file_is_named(folder, content):
    (folder.path / "experiment.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"experiment\.json"):
        folder.experiment()


def test_records_come_back_as_they_went(folder):
    folder.append([line(1), line(1, "b")])
    folder.append([line(2)])
    assert folder.records() == [line(1), line(1, "b"), line(2)]


@pytest.mark.parametrize("cut", range(1, len(json.dumps(line(2))) + 1))
def test_a_last_line_cut_short_anywhere_is_left_out(folder, cut):
    folder.append([line(1), line(2)])
    folder.metrics.write_bytes(folder.metrics.read_bytes()[: -cut - 1])
    assert folder.records() == [line(1)]


def test_a_broken_line_in_the_middle_is_named(folder):
    folder.append([line(1)])
    with folder.metrics.open("a") as file:
        file.write("half a li\n")
    folder.append([line(2)])
    with pytest.raises(ValueError, match="line 2"):
        folder.records()


def test_records_after_the_saved_epoch_of_their_net_are_forgotten(folder):
    folder.append([line(1, "a", 3.0), line(2, "a", 4.0), line(1, "b", 5.0), line(2, "b", 6.0), line(1, "c", 7.0)])
    assert folder.forget_after({("a", 0): 2, ("b", 0): 1}, 1, print) == 5.0
    assert folder.records() == [line(1, "a", 3.0), line(2, "a", 4.0), line(1, "b", 5.0)]


def test_states_are_named_by_architecture_where_there_are_several(folder):
    assert folder.state((800, 800), 1).name == "state.safetensors"
    assert folder.state((800, 800), 2).name == "state.800-800.safetensors"
    assert folder.turn(3).state((800, 800), 2).name == "state.800-800.turn3.safetensors"
    assert folder.turn(3).pretrained((800, 800), 1).name == "pretrained.turn3.safetensors"


def test_a_folder_is_held_by_one_at_a_time(folder):
    second = RunFolder.open(folder.path)
    with folder.locked(), pytest.raises(OSError, match="another process is running"), second.locked():
        raise AssertionError("held twice")
    with folder.locked():
        pass


def test_what_a_killed_process_left_half_written_is_cleared_away(folder):
    (folder.path / ".state.safetensors.123.tmp").write_bytes(b"half")
    with folder.locked():
        assert [path.name for path in folder.path.iterdir()] == ["experiment.json"]


def test_a_second_process_in_the_same_folder_gets_one_line(tmp_path, capsys):
    slow = replace(TOY, optim=TOY.optim.compressed(5000), record_every=100)
    process = start("run", written(slow, tmp_path / "toy.json"), "--out", "run", cwd=tmp_path)
    while not (tmp_path / "run" / "state.safetensors").exists():
        process.join(0.05)
        assert process.exitcode is None, (tmp_path / "stderr").read_text()
    try:
        assert main(["run", "--resume", str(tmp_path / "run")]) == 1
    finally:
        process.kill()
        process.join()
    message = capsys.readouterr().err
    assert "another process is running in" in message and message.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line_and_exit_1(tmp_path, capsys):
    toy = written(TOY, tmp_path / "toy.json")
    assert main(["run", str(toy), "--out", str(toy / "run")]) == 1
    message = capsys.readouterr().err
    assert str(toy) in message and message.count("\n") == 1


def test_a_read_only_folder_is_one_line_and_exit_1(tmp_path, capsys, monkeypatch):
    folder = RunFolder.create(tmp_path / "run", TOY)
    opened = Path.open

    def read_only(path: Path, mode: str = "r", *arguments, **named):
        if set(mode) & set("wa"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, mode, *arguments, **named)

    monkeypatch.setattr(Path, "open", read_only)
    assert main(["run", "--resume", str(folder.path)]) == 1
    message = capsys.readouterr().err
    assert "Read-only file system" in message and str(folder.path) in message and message.count("\n") == 1
