"""What every test has: real data where there is some, no network but this machine, and signals that are heard."""

import os
import signal
import socket
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with real data, which MEANNET_DATA then names."""
    chosen = os.environ.get("MEANNET_DATA")
    where = Path(chosen).absolute() if chosen else PROJECT.parent / "shared" / "data"
    if not (where / "mnist").is_dir():
        pytest.skip(f"no MNIST in {'MEANNET_DATA' if chosen else '../shared/data, and MEANNET_DATA is not set'}")
    monkeypatch.setenv("MEANNET_DATA", str(where))
    return where


@pytest.fixture(scope="session", autouse=True)
def signals_are_heard():
    """A shell has what it starts in the background ignore Ctrl-C, and nohup SIGHUP; tests send both."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def no_network():
    """Refuse connections to anywhere but this machine."""
    connect = socket.socket.connect

    def connect_here(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise ConnectionRefusedError(f"a test tried to reach {address[0]}")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_here)
        yield
