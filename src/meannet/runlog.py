"""The run folder: settings, environment, a record per epoch, states and the result, readable without this package."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meannet.atomic import write_atomically
from meannet.config import Experiment, from_json, to_json
from meannet.typed import resume_command

try:
    import fcntl
except ImportError:  # Windows has no file locks of this kind; two processes in one folder are then not noticed
    fcntl = None


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path, fold: int | None = None):
        self.path, self.fold = path, fold
        self.metrics = path / "metrics.jsonl"
        self.pretraining = path / "pretrain.jsonl"
        self.result = path / "result.json"

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> "RunFolder":
        """A new folder with the resolved experiment in it."""
        check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        folder.write("experiment.json", to_json(experiment))
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A folder that an earlier run left."""
        if path.is_file():
            raise ValueError(f"{path} is a file; name the folder that a run was written to")
        if not path.is_dir():
            raise ValueError(f"there is no run folder {path}; `meannet run RECIPE --out {path}` makes one")
        if not (path / "experiment.json").is_file():
            raise ValueError(
                f"{path} is not a run folder: it has no experiment.json; name one that a run was written to"
            )
        return cls(path)

    def experiment(self) -> Experiment:
        document = self.read("experiment.json")
        try:
            return from_json(document)
        except ValueError as error:
            raise ValueError(f"{self.path / 'experiment.json'}: {error}") from None

    def read(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(
                f"{self.path} has no {name}: the run has not finished; `{resume_command(self.path)}`"
            ) from None
        except (ValueError, RecursionError) as error:
            remedy = "; remove it, and resuming writes it anew" if path == self.result else ""
            raise ValueError(f"{path}: not valid JSON: {error}{remedy}") from None

    def found(self) -> dict[str, Any]:
        """What result.json says; the run must have finished."""
        result = self.read("result.json")
        if not isinstance(result, dict) or "arms" not in result:
            raise ValueError(f"{self.result} is broken; remove it, and resuming writes it anew")
        return result

    def began_with(self, name: str, otherwise: Any = None) -> Any:
        """What environment.json says of how the run began, such as its command."""
        try:
            found = json.loads((self.path / "environment.json").read_text())
        except (OSError, ValueError):  # it only informs; a run can go on without it
            return otherwise
        return found.get(name, otherwise) if isinstance(found, dict) else otherwise

    def write(self, name: str, document: Any) -> None:
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        write_atomically(self.path / name, text.encode())

    def turn(self, fold: int | None) -> "RunFolder":
        """The same folder for one turn of several, which has files of its own."""
        return RunFolder(self.path, fold)

    def state(self, hidden: Sequence[int], of: int) -> Path:
        """Where the state of an architecture is kept; named by it where the experiment has several."""
        parts = ["-".join(map(str, hidden))] if of > 1 else []
        parts += [f"turn{self.fold}"] if self.fold is not None else []
        return self.path / ".".join(["state", *parts, "safetensors"])

    def pretrained(self, hidden: Sequence[int], of: int) -> Path:
        """Where an architecture's pretrained stack is kept."""
        return self.path / self.state(hidden, of).name.replace("state", "pretrained")

    def recogniser(self, hidden: Sequence[int], of: int) -> Path:
        """Where is kept what recognising phones needs beside an architecture's nets."""
        return self.path / self.state(hidden, of).name.replace("state", "recogniser")

    def append(self, records: Iterable[dict[str, Any]], path: Path | None = None) -> None:
        """Add lines to the record; on the disk when this returns, before the state that builds on them."""
        path = path or self.metrics
        try:
            with path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None

    def records(self, path: Path | None = None) -> list[dict[str, Any]]:
        """All whole lines; a last one that a crash cut short is left out."""
        path = path or self.metrics
        if not path.exists():
            return []
        found = []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                _ = record["epoch"], record["net"], record["seed"], record["seconds"]
            except (ValueError, TypeError, KeyError):
                if number == len(lines):
                    break
                raise ValueError(f"{path}, line {number}: not a record of an epoch; remove the line") from None
            found.append(record)
        return found

    def forget_after(self, epochs: dict[tuple[str, int], int], every: int, say: Callable[[str], None]) -> float:
        """Drop records later than the last saved epoch by net and seed; returns the seconds trained up to there.

        A record of `every` so many epochs should be there; where it was lost, the run goes on and says so.
        """
        kept = [line for line in self.records() if line["epoch"] <= epochs.get((line["net"], line["seed"]), 0)]
        known = {(line["net"], line["seed"]) for line in kept}
        lost = [epoch for net, epoch in epochs.items() if epoch >= every and net not in known]
        if lost:
            say(f"{self.metrics} has lost its first {max(lost)} epochs; curves will begin after them")
        write_atomically(self.metrics, "".join(json.dumps(record) + "\n" for record in kept).encode())
        return max((record["seconds"] for record in kept), default=0.0)

    def forget_pretraining_after(self, saved: dict[tuple[str, int], tuple[int, int]]) -> float:
        """The same of pretraining: `saved` has stage and epoch by net and seed."""
        if not self.pretraining.exists():
            return 0.0
        every = self.records(self.pretraining)
        last = [saved.get((line["net"], line["seed"]), (0, 0)) for line in every]
        kept = [line for line, end in zip(every, last, strict=True) if (line["stage"], line["epoch"]) <= end]
        write_atomically(self.pretraining, "".join(json.dumps(record) + "\n" for record in kept).encode())
        return max((record["seconds"] for record in kept), default=0.0)

    def discard_untrained(self) -> None:
        """Remove what a run wrote that could not begin."""
        if not self.began():
            for name in ("experiment.json", "environment.json", "metrics.jsonl", "pretrain.jsonl"):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    def began(self) -> bool:
        """Whether there is a state to go on from."""
        return any(self.path.glob("state*.safetensors")) or any(self.path.glob("pretrained*.safetensors"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against a second process, and clear away what killed ones left half-written."""
        with (self.path / "experiment.json").open() as handle:
            if not held(handle.fileno()):
                raise OSError(f"another process is running in {self.path}; wait for it or stop it")
            for left in self.path.glob(".*.tmp"):
                left.unlink(missing_ok=True)
            yield


def held(handle: int) -> bool:
    """Lock an open file or folder until it is closed; False where another process has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def check_free(path: Path) -> None:
    """Refuse a folder that already holds anything but what was left by a run killed as it wrote its first file."""
    if (path / "experiment.json").exists():
        raise ValueError(f"{path} holds a run; go on with `{resume_command(path)}` or choose another --out")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; --out names a folder")
    if path.exists() and not set(path.iterdir()) <= set(path.glob(".*.tmp")):
        raise ValueError(f"{path} is there and not empty; choose another --out")
