"""Worker processes for pictures: each takes jobs and gives answers as JSON, and ends when whoever started it does."""

import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from meannet.data import DataError

Answer = Callable[[dict[str, Any]], Any]
CLOSING = 10.0  # seconds that a worker has to finish what it is doing


class Team:
    """Processes that run `module:function`, which is given `start` and returns what answers a job.

    Not multiprocessing's: its processes would run a user's script anew, and those of a pool outlive a parent that was
    killed. These see the end of their pipe.
    """

    def __init__(self, work: str, start: dict[str, Any], workers: int, files: tuple[int, ...] = ()):
        module, function = work.split(":")
        code = f"from {module} import {function}; from meannet.data.team import serve; serve({function})"
        self.members: list[tuple[subprocess.Popen[bytes], Connection]] = []
        try:
            for _ in range(workers):
                ours, theirs = socket.socketpair()
                with theirs:
                    handles = (theirs.fileno(), *files)
                    call = [sys.executable, "-P", "-c", code, str(theirs.fileno())]
                    # In a group of its own: a Ctrl-C is for whoever started it, from its first moment on.
                    process = subprocess.Popen(call, stdin=subprocess.DEVNULL, pass_fds=handles, process_group=0)
                self.members.append((process, Connection(ours.detach())))
                self.send(len(self.members) - 1, start)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.members)

    def send(self, member: int, job: dict[str, Any]) -> None:
        try:
            self.members[member][1].send_bytes(json.dumps(job).encode())
        except (BrokenPipeError, ConnectionResetError):
            raise self._lost(member) from None

    def receive(self, member: int) -> Any:
        """The next answer of one worker; what went wrong there is raised here."""
        try:
            answer = json.loads(self.members[member][1].recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._lost(member) from None
        if "done" in answer:
            return answer["done"]
        if answer.get("errno"):
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["file"])
        raise DataError(answer["wrong"])

    def waiting(self, timeout: float | None = None) -> list[int]:
        """Workers that have an answer, or are lost."""
        by_connection = {id(connection): k for k, (_, connection) in enumerate(self.members)}
        return [by_connection[id(ready)] for ready in wait([c for _, c in self.members], timeout)]

    def map(self, jobs: Iterator[dict[str, Any]]) -> Iterator[Any]:
        """Answers as they come; each worker has one job at a time."""
        idle, busy = list(range(len(self))), set()
        left = bool(idle)  # nobody works through no jobs
        while left or busy:
            while left and idle:
                job = next(jobs, None)
                left = job is not None
                if job is not None:
                    busy.add(idle[-1])
                    self.send(idle.pop(), job)
            for member in self.waiting() if busy else ():
                yield self.receive(member)
                busy.discard(member)
                idle.append(member)

    def _lost(self, member: int) -> RuntimeError:
        code = self.members[member][0].wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return RuntimeError(f"a worker process {how}; where memory is short, ask for fewer --workers")

    def close(self) -> None:
        for _, connection in self.members:
            connection.close()
        for process, _ in self.members:
            try:
                process.wait(CLOSING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.members = []

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            for process, _connection in self.members:
                process.terminate()  # what it is doing is of no use any more
        self.close()


def serve(make: Callable[[dict[str, Any]], Answer]) -> None:
    """A worker: answer jobs until there is nobody left to answer."""
    connection = Connection(int(sys.argv[1]))
    try:
        answer = make(json.loads(connection.recv_bytes()))
        while True:
            job = json.loads(connection.recv_bytes())
            connection.send_bytes(json.dumps(_answered(answer, job)).encode())
    except (EOFError, ConnectionResetError, BrokenPipeError):
        return


def _answered(answer: Answer, job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"done": answer(job)}
    except OSError as error:
        if error.errno:
            return {"errno": error.errno, "file": str(error.filename or "")}
        return {"wrong": str(error)}
    except DataError as error:
        return {"wrong": str(error)}
    except Exception:
        return {"wrong": f"a worker process failed: {traceback.format_exc(limit=-3)}"}
