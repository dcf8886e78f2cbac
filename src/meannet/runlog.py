"""The run folder: settings, environment, a record per epoch, states and the result, readable without this package."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meannet.checkpoint import write_atomically
from meannet.config import Experiment, from_json, to_json

try:
    import fcntl
except ImportError:  # Windows has no file locks of this kind; two processes in one folder are then not noticed
    fcntl = None


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.result = path / "result.json"

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> "RunFolder":
        """A new folder with the resolved experiment in it; one that already holds anything is refused."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(
                f"{path} is already there; go on with `meannet run --resume {path}` or choose another --out"
            )
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        folder.write("experiment.json", to_json(experiment))
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A folder that an earlier run left."""
        if not (path / "experiment.json").is_file():
            raise ValueError(f"{path} is not a run folder: it has no experiment.json")
        return cls(path)

    def experiment(self) -> Experiment:
        try:
            return from_json(self.read("experiment.json"))
        except ValueError as error:
            raise ValueError(f"{self.path / 'experiment.json'}: {error}") from None

    def read(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise ValueError(
                f"{self.path} has no {name}: the run has not finished; `meannet run --resume {self.path}`"
            ) from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not valid JSON: {error}") from None

    def write(self, name: str, document: Any) -> None:
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        write_atomically(self.path / name, text.encode())

    def state(self, hidden: Sequence[int], of: int) -> Path:
        """Where the state of an architecture is kept; named by it where the experiment has several."""
        return self.path / ("state.safetensors" if of == 1 else f"state.{'-'.join(map(str, hidden))}.safetensors")

    def append(self, records: Iterable[dict[str, Any]]) -> None:
        with self.metrics.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def records(self) -> list[dict[str, Any]]:
        """All whole lines; a last one that a crash cut short is left out."""
        found = []
        for line in self.metrics.read_text().splitlines() if self.metrics.exists() else []:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return found

    def forget_after(self, epochs: dict[str, int]) -> float:
        """Drop records later than each net's last saved epoch; returns the seconds trained up to there."""
        kept = [record for record in self.records() if record["epoch"] <= epochs.get(record["net"], 0)]
        write_atomically(self.metrics, "".join(json.dumps(record) + "\n" for record in kept).encode())
        return max((record["seconds"] for record in kept), default=0.0)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, so that no second process writes into it."""
        if fcntl is None:
            yield
            return
        with (self.path / "experiment.json").open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OSError(f"another process is running in {self.path}; wait for it or stop it") from None
            yield
