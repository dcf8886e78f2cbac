"""How a run is to go on a machine, what it tells meanwhile, and that it was asked to stop."""

from collections.abc import Callable
from dataclasses import dataclass

from meannet.pretrain.stack import Done
from meannet.train import Epoch


class Interrupted(Exception):
    """The run was asked to stop and has saved; it can be resumed."""


@dataclass(frozen=True)
class Progress:
    """Told to the caller after every epoch."""

    net: str  # and, while it is pretrained, which stage of that
    epoch: Epoch | Done
    epochs: int
    test_error: dict[str, float]  # mean over seeds, by arm; empty where not recorded
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run, as far as it does not decide the numbers of the plain path."""

    device: str = "auto"
    path: str = "auto"
    precision: str = "auto"  # of products, where the path has a choice
    pretrain_path: str = ""  # by which pretraining's precision is decided, where a run goes on; empty: `path`
    save_minutes: float = 0.0  # 0: as the run began; a new one saves every minute
    save_epochs: int | None = None  # None: as the run began; a new one has no such rule
    workers: int | None = None  # processes that decode pictures in shards; as many as there are cores
    command: str = ""
    say: Callable[[str], None] = lambda line: None
    progress: Callable[[Progress], None] = lambda progress: None
    stop: Callable[[], bool] = lambda: False
