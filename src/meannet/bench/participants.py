"""Processes that take part in a comparison, started side by side and asked one at a time."""

import json
import math
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meannet.bench.work import Settings
from meannet.cli import SPINS

WAITING = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"  # the latter is set by the command line, whose children these are
PATIENCE = 120.0  # seconds until a peer must be ready, and for one timing


class Participant:
    """One process, its rows, and why some were left out."""

    def __init__(self, who: str, rows: Sequence[Settings], folder: Path, cores: Sequence[int] = ()):
        self.who, self.rows, self.folder = who, list(rows), folder
        plan = {"rows": [asdict(row) for row in rows], "cores": list(cores)}
        (folder / f"{who}.json").write_text(json.dumps(plan))
        # Everyone waits as their own defaults say; our threads that are torch's as the command line has them wait.
        environment = {name: value for name, value in os.environ.items() if name not in WAITING}
        if who.startswith("meannet"):
            environment["GOMP_SPINCOUNT"] = SPINS
        with (folder / f"{who}.err").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "meannet.bench.worker", who, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        self.replies: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.threads = self.empty = self.peak = 0  # memory with nothing made yet, and at most until it was ready
        self.failed: dict[int, str] = {}

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.replies.put(line)
        self.replies.put("")

    def get_ready(self) -> None:
        answer = self._reply()
        if answer:
            self.threads, self.empty, self.peak = answer["threads"], answer["empty"], answer["peak"]
            self.failed |= {int(row): why for row, why in answer["failed"].items()}

    def timed(self, row: int = 0) -> dict[str, float] | None:
        """One timing of a row; None where it fails or has failed."""
        if row in self.failed:
            return None
        assert self.process.stdin
        with suppress(BrokenPipeError):  # one that has died gives no answer
            self.process.stdin.write(f"{row}\n")
            self.process.stdin.flush()
        answer = self._reply()
        if answer and not math.isfinite(answer["loss"]):
            self.failed[row] = "its loss is not finite"
            return None
        return answer

    def _reply(self) -> dict[str, Any] | None:
        try:
            line, why = self.replies.get(timeout=PATIENCE), ""
        except queue.Empty:
            line, why = "", f"no answer within {PATIENCE:.0f} s"
        if line:
            return json.loads(line)
        self.stop()
        last = (self.folder / f"{self.who}.err").read_text(errors="replace").strip().splitlines()[-1:]
        why = why or (last[0] if last else f"its process ended with {self.process.returncode}")
        self.failed |= {row: why for row in range(len(self.rows)) if row not in self.failed}
        return None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            with suppress(BrokenPipeError):  # what it was asked and did not read
                pipe.close()


@contextmanager
def taking_part(
    plans: dict[str, Sequence[Settings]], folder: Path, cores: Sequence[int] = ()
) -> Iterator[list[Participant]]:
    """All of them, ready; gone at the end, come what may."""
    started: list[Participant] = []
    try:
        started += (Participant(who, rows, folder, cores) for who, rows in plans.items())
        for one in started:
            one.get_ready()
        yield started
    finally:
        for one in started:
            if one.process.poll() is None:
                one.stop()
