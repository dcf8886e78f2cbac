"""Several processes, started by torchrun, do together what one does alone; one that is killed costs time alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import photographs
import pytest
from safetensors.torch import load_file
from toys import outcome, written

from meannet import cli, ranks
from meannet import experiment as experiments
from meannet.data import imagenet
from meannet.experiment import Interrupted, Options

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    source = photographs.as_folders(root / "source")
    imagenet.prepare(source, out=root / "data" / "imagenet", workers=1, say=lambda _: None, size=40, cases=15)
    return root / "data"


@pytest.fixture
def torchrun(folder, monkeypatch):
    """Start so many processes of a script or of `-m meannet`."""
    monkeypatch.setenv("MEANNET_DATA", str(folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = [str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    started = []

    def start(processes, *arguments, restarts=0):
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        # One rank more or less changes a sum's order; restarting is looked for often, so that tests are short.
        launch += [f"--max-restarts={restarts}", "--monitor-interval=0.1", *map(str, arguments)]
        started.append(subprocess.Popen(launch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait()
        process.stdout.close()


def done(process):
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said


def test_two_ranks_do_what_one_does_with_the_whole_mini_batch(torchrun, tmp_path):
    for world in (1, 2):
        done(torchrun(world, HERE / "two_ranks.py", tmp_path))
    alone, first, second = (load_file(tmp_path / f"{name}.safetensors") for name in ("1-0", "2-0", "2-1"))
    for name in set(alone) - {"masks"}:
        np.testing.assert_array_equal(first[name], second[name])  # both ranks have the same net, to the bit
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(first["loss"], alone["loss"], rtol=1e-5)
    # Masks belong to places in the whole mini-batch: those of the second rank are of its second half.
    np.testing.assert_array_equal(np.concatenate([first["masks"], second["masks"]], 1), alone["masks"])
    assert not np.array_equal(first["masks"], second["masks"])
    for rank in (first, second):
        lengths = [rank[f"weights.{k}"].square().sum(-1).max() for k in range(7)]
        assert 0.49 < max(lengths) <= 0.5 * (1 + 1e-5)  # the bound holds, and did something


def test_a_run_of_two_ranks_has_the_record_of_one(torchrun, tmp_path):
    toy = written(photographs.toy(), tmp_path / "toy.json")
    common = ["-m", "meannet", "run", toy, "--device", "cpu", "--workers", "1", "--out"]
    done(torchrun(2, *common, tmp_path / "two"))
    assert cli.main([str(part) for part in [*common[2:], tmp_path / "one"]]) == 0
    one, two = (outcome(tmp_path / name) for name in ("one", "two"))
    assert [line["epoch"] for line in two["metrics"]] == [1, 2, 3]
    for mine, theirs in zip(one["metrics"], two["metrics"], strict=True):
        assert theirs["train_loss"] == pytest.approx(mine["train_loss"], rel=1e-5)
        assert {k: v for k, v in theirs.items() if k != "train_loss"} == {
            k: v for k, v in mine.items() if k != "train_loss"
        }
    assert two["result"]["ranks"] == 2 and two["result"]["arms"][0]["errors"] == one["result"]["arms"][0]["errors"]


def test_a_killed_worker_is_started_anew_and_the_run_ends_in_the_same_state(torchrun, tmp_path):
    toy = written(photographs.toy(epochs=30, record_every=10), tmp_path / "toy.json")
    common = ["-m", "meannet", "run", toy, "--device", "cpu", "--workers", "0", "--save-epochs", "1", "--out"]
    done(torchrun(2, *common, tmp_path / "whole"))
    process = torchrun(2, *common, tmp_path / "broken", restarts=1)
    previous = tmp_path / "broken" / "state.previous.safetensors"
    while not previous.exists() and process.poll() is None:
        time.sleep(0.01)
    second = _rank(process.pid, 1)
    os.kill(second, signal.SIGKILL)
    said = done(process)
    assert "goes on from epoch" in said and "rank 0 has lost another rank" in said
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


def test_a_rank_that_is_late_finds_no_folder_made_before_it_looked(torchrun, tmp_path, monkeypatch):
    """NCCL joins ranks at their first exchange; so does Gloo where it is told to."""
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", "1")
    out, toy = tmp_path / "run", written(photographs.toy(epochs=1), tmp_path / "toy.json")
    late = "import os, pathlib, runpy, sys, time; "
    late += "made = lambda: os.environ['RANK'] == '0' or pathlib.Path(sys.argv[-1]).exists(); "
    late += "[time.sleep(0.1) for _ in range(30) if not made()]; runpy.run_module('meannet', run_name='__main__')"
    call = ["run", toy, "--device", "cpu", "--workers", "0", "--out", out]
    done(torchrun(2, "--no-python", sys.executable, "-c", late, *call))
    assert outcome(out)["result"]["ranks"] == 2


@pytest.mark.parametrize(("arguments", "code"), [(["show", "imagenet.h_dropout", "--json"], 0), (["show", "no"], 2)])
def test_a_rank_that_leaves_at_once_loses_neither_what_it_said_nor_its_code(arguments, code):
    call = [sys.executable, "-m", "meannet", *arguments]
    environment = os.environ | {"WORLD_SIZE": "2", "RANK": "0", "PYTHONPATH": str(HERE.parent / "src")}
    rank = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=60)
    alone = subprocess.run(call, env=environment | {"WORLD_SIZE": "1"}, capture_output=True, text=True, timeout=60)
    assert (rank.returncode, rank.stdout, rank.stderr) == (code, alone.stdout, alone.stderr)
    assert len(rank.stdout if code == 0 else rank.stderr) > 20


def _rank(parent, rank):
    """The process that torchrun started as this rank."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            owner = int(path.read_text().rsplit(")", 1)[1].split()[1])
            variables = (path.parent / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if owner == parent and f"RANK={rank}".encode() in variables:
            return int(path.parent.name)
    raise AssertionError(f"no rank {rank} among the children of {parent}")


@pytest.mark.parametrize(("rank", "world"), [("2", "2"), ("-1", "2"), ("0", "0"), ("0", "two")])
def test_a_rank_that_cannot_be_is_refused_before_it_waits_for_the_others(rank, world, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(ValueError, match="torchrun sets them"):
        ranks.named()


def test_workers_that_are_started_anew_find_their_run_without_a_folder_named(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MEANNET_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    toy = str(written(photographs.toy(epochs=2), tmp_path / "toy.json"))
    call = ["run", toy, "--device", "cpu", "--workers", "0"]
    for name, value in {"TORCHELASTIC_RUN_ID": "some", "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    assert cli.main(call) == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert cli.main(call) == 2  # a new start is no restart
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert cli.main(call) == 0 and [*(tmp_path / "runs").iterdir()] == [made]


def test_a_rank_that_was_started_anew_goes_on_with_no_other_run(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEANNET_DATA", str(folder))
    toy, out = photographs.toy(epochs=2), tmp_path / "run"
    with pytest.raises(Interrupted):
        experiments.run(toy, out, Options(workers=0, device="cpu", stop=lambda: True))
    for name, value in {"RUN_ID": "some", "RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    other = written(photographs.toy(epochs=3), tmp_path / "other.json")
    assert cli.main(["run", str(other), "--out", str(out)]) == 2
    assert "holds another run; choose another --out" in capsys.readouterr().err
    call = ["run", str(written(toy, tmp_path / "toy.json")), "--out", str(out), "--device", "cpu", "--workers", "0"]
    assert cli.main(call) == 0
    assert "goes on from epoch 1 of 2" in capsys.readouterr().out
    assert cli.main(call) == 0  # a worker that had only to end


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["digits"], "trains in one process"),
        (["TOY", "--set", "optim.batch=7"], "a multiple of the 2 ranks"),
        (["TOY"], "run is there and not empty"),
    ],
)
def test_what_ranks_cannot_share_is_refused_by_each_of_them(torchrun, tmp_path, arguments, says):
    toy, out = written(photographs.toy(), tmp_path / "toy.json"), tmp_path / "run"
    there = ["mine"] if "not empty" in says else []
    for name in there:
        out.mkdir()
        (out / name).write_text("")
    arguments = [toy if part == "TOY" else part for part in arguments]
    process = torchrun(2, "-m", "meannet", "run", *arguments, "--out", out, "--device", "cpu")
    said, _ = process.communicate(timeout=120)
    lines = [line for line in said.splitlines() if line.startswith("meannet: ")]
    assert process.returncode != 0 and lines and all(says in line for line in lines), said
    assert (sorted(path.name for path in out.iterdir()) if out.exists() else []) == there
