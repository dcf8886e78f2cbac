"""A data set in MNIST's format that is small enough to write by hand, and a mirror of it on this machine."""

import contextlib
import gzip
import hashlib
import http.server
import struct
import threading
import time
from pathlib import Path

import pytest

from meannet.data import idx, mnist

CASES, ROWS, COLUMNS = 5, 2, 3


def written(name: str, shape: tuple[int, ...], below: int, start: int) -> tuple[idx.File, bytes]:
    """An IDX file put together byte by byte, and what is known of it."""
    count = 1
    for size in shape:
        count *= size
    content = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(struct.pack(">I", size) for size in shape)
    content += bytes((start + 7 * k) % below for k in range(count))
    return idx.File(name=name, shape=shape, below=below, content=hashlib.sha256(content).hexdigest()), content


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Content of four small files by name; `mnist` then means these, in an empty folder, without any source."""
    made = [
        written("train-images-idx3-ubyte", (CASES, ROWS, COLUMNS), 256, 1),
        written("train-labels-idx1-ubyte", (CASES,), 10, 2),
        written("t10k-images-idx3-ubyte", (CASES, ROWS, COLUMNS), 256, 3),
        written("t10k-labels-idx1-ubyte", (CASES,), 10, 4),
    ]
    monkeypatch.setattr(mnist, "FILES", tuple(file for file, _ in made))
    monkeypatch.setattr(mnist, "MIRRORS", ())
    monkeypatch.setenv("PATH", "")  # no npm
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))
    return {file.name: content for file, content in made}


class Mirror(http.server.ThreadingHTTPServer):
    """Serves `files` by name; what is not bytes is a way to misbehave."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes | str] = {}
        self.asked: list[str] = []
        self.delay = 0.0  # seconds before each answer
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"

    def offer(self, contents: dict[str, bytes]) -> None:
        self.files |= {f"{name}.gz": gzip.compress(content) for name, content in contents.items()}


class Answer(http.server.BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.server.asked.append(name)
        time.sleep(self.server.delay)
        body = self.server.files.get(name, "404")
        if isinstance(body, str):
            self.misbehave(body)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def misbehave(self, how: str) -> None:
        if how == "404":
            self.send_error(404)
        elif how == "silence":
            time.sleep(2)
        elif how == "slow headers":
            for k in range(90):
                self.wfile.write(b"HTTP/1.0 200 OK\r\n" if k == 0 else b"X-More: to come\r\n")
                time.sleep(0.1)
        else:
            self.send_response(200)
            self.end_headers()
            for _ in range(10_000):
                self.wfile.write(bytes(1 << 16) if how == "endless" else b"\x1f")
                time.sleep(0 if how == "endless" else 0.05)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch):
    """A mirror that has nothing yet; `mnist` knows it as its only one."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Mirror()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setattr(mnist, "MIRRORS", (server.url,))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
