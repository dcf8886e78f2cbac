"""Signals: save, say how to go on, end with the signal's code, and lose nothing."""

import os
import signal
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from toys import every_update_asks, finish, outcome, small, start, written  # noqa: F401, a fixture

from meannet import console, data, screen
from meannet.cli import main
from meannet.console import StopRequest
from meannet.experiment import Interrupted

LONG = small("digits", epochs=120, samples=0, record_every=7)
LONG = replace(LONG, net=replace(LONG.net, hidden=((6,), (5, 4))))
SIGNALS = [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("unbroken")
    assert finish("run", written(LONG, here / "toy.json"), "--out", "run", cwd=here) in (0, 3)
    return here / "run"


@pytest.mark.parametrize(("name", "code"), SIGNALS)
def test_a_signal_saves_says_how_to_go_on_and_loses_nothing(unbroken, tmp_path, name, code):
    process = start("run", written(LONG, tmp_path / "toy.json"), "--out", "my run", cwd=tmp_path)
    wait_for(tmp_path / "my run" / "state.6.safetensors", process)
    os.kill(process.pid, getattr(signal, name))
    process.join(60)
    assert process.exitcode == code
    assert (tmp_path / "stdout").read_text().endswith("Go on with: meannet run --resume 'my run'\n")
    assert not (tmp_path / "stderr").read_text() and not (tmp_path / "my run" / "result.json").exists()
    assert finish("run", "--resume", "my run", cwd=tmp_path) in (0, 3)
    assert outcome(tmp_path / "my run") == outcome(unbroken)


def test_a_signal_sent_twice_as_timeout_and_torchrun_do_is_one():
    with StopRequest().catching() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert stop()
        stop.at -= 2
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


def test_a_signal_before_the_first_epoch_ends_can_be_resumed(tmp_path, monkeypatch, capsys):
    toy = small("digits", epochs=3, samples=0)
    assert main(["run", str(written(toy, tmp_path / "toy.json")), "--out", str(tmp_path / "unbroken")]) == 0
    asked = []

    def ask(self: StopRequest) -> bool:
        asked.append(self)
        if len(asked) == 2:
            signal.raise_signal(signal.SIGTERM)
        self.training = True
        return bool(self.received)

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__call__", ask)
        assert main(["run", str(tmp_path / "toy.json"), "--out", str(tmp_path / "run")]) == 143
    assert not list((tmp_path / "run").glob("state*"))
    assert f"meannet run --resume {tmp_path / 'run'}" in capsys.readouterr().out
    assert main(["run", "--resume", str(tmp_path / "run")]) == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "unbroken")


def test_a_signal_while_data_is_fetched_stops_at_once_and_writes_nothing(tmp_path, monkeypatch, capsys):
    def endless(*_, **__):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(data, "load", endless)
    assert main(["run", "digits", "--out", str(tmp_path / "run")]) == 130
    assert "nothing was written" in capsys.readouterr().out and not (tmp_path / "run").exists()


def test_a_second_signal_does_not_wait():
    stop = StopRequest()
    with stop.catching():
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop() and stop.received == signal.SIGINT
        stop.at -= 2  # seconds ago
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
    assert stop.received == signal.SIGINT and stop.at_once


def test_what_a_second_signal_may_have_lost_is_told(tmp_path, capsys):
    (tmp_path / "experiment.json").write_text("{}")
    (tmp_path / "state.safetensors").write_bytes(b"")
    for at_once, told in ((True, "epochs since the last saved state may be lost"), (False, "stopped; saved")):
        console.tell_interrupted(screen.console(), tmp_path, at_once)
        assert told in capsys.readouterr().out


def test_a_signal_that_was_ignored_before_stays_ignored():
    """As SIGHUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest().catching() as stop:
            stop()
            signal.raise_signal(signal.SIGHUP)
            assert not stop()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in console.SIGNALS]
    with StopRequest().catching():
        assert all(signal.getsignal(number) not in before for number in console.SIGNALS)
    assert [signal.getsignal(number) for number in console.SIGNALS] == before


def wait_for(path: Path, process: BaseProcess) -> None:
    started = time.monotonic()
    while not path.exists():
        process.join(0.02)
        assert process.exitcode is None and time.monotonic() - started < 60, (path.parents[1] / "stderr").read_text()
