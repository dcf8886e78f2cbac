"""The data sets of the paper: where they are, how to get them, and the cases they hold.

Importing this loads neither torch nor a data set; a data set's own module, named after it, is imported when it is asked
for, and offers `load`, `check`, `status` and the `FILES` that can be fetched; where there are any, also `locate` and
`read` for one of them, and the `sources` to fetch from.
"""

import hashlib
import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from meannet import config

if TYPE_CHECKING:
    from torch import Tensor

    from meannet.data.spoken import Spoken
    from meannet.data.texts import Counts

NAMES = (
    "digits",
    "mnist",
    "cifar10",
    "timit",
    "timit-sample",
    "recordings",
    "timit-size",
    "reuters",
    "rcv1-subset",
    "reuters21578",
    "reuters-size",
    "imagenet",
)


class DataError(RuntimeError):
    """Data that is missing, damaged or not what it should be; the message is one line with the remedy."""


@dataclass(frozen=True)
class Cases:
    """Cases and what they should be taken for."""

    # A Tensor, (cases, inputs) float32, pixels in [0, 1]; in colour (cases, channels, rows, columns) uint8; or
    # sparse.Sparse where most are zero; windows.Windows of recordings; or own.OwnInputs where nets have their own.
    inputs: Any
    targets: "Tensor"  # (cases,) int64


@dataclass(frozen=True)
class Dataset:
    """Cases to learn from and cases to be judged on, which are held-out training cases where those were asked for."""

    name: str
    train: Cases
    test: Cases
    classes: tuple[str, ...]
    image: tuple[int, int] | None  # rows and columns, where a case is a picture
    digest: str
    facts: dict[str, Any] = field(default_factory=dict)  # how it was made, as JSON for the run's result
    spoken: "Spoken | None" = None  # of recordings: what recognition needs
    folds: tuple["Dataset", ...] = ()  # where all cases take turns in being judged on; this is then like the first


class Checked(NamedTuple):
    """What became of checking one file."""

    path: Path
    ok: bool
    message: str


class Status(NamedTuple):
    """A line of `meannet data list`."""

    name: str
    where: Path
    present: bool  # there, not yet checked
    size: int  # bytes on disk
    source: str
    licence: str


def folder() -> Path:
    """Where data is kept: MEANNET_DATA, or else the user's cache folder."""
    if chosen := os.environ.get("MEANNET_DATA"):
        return Path(chosen).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "meannet"


def load(data: config.Data, *, say: Callable[[str], None]) -> Dataset:
    """The cases an experiment asks for, verified; fetched on first use, saying so."""
    known = module(data.name)
    more: dict[str, Any] = {}
    if data.selection is not None:
        if not hasattr(known, "SELECTION"):
            raise ValueError(f"data.selection is for data sets of text; {data.name} is none")
        more["selection"] = data.selection
    if data.speech is not None:
        if not hasattr(known, "SPEECH"):
            raise ValueError(f"data.speech is for data sets of speech; {data.name} is none")
        more["speech"] = data.speech
    whole = known.load(held_out=data.held_out, say=say, **more)
    if data.cases is None:
        return whole
    if data.cases > len(whole.train.targets):
        raise ValueError(f"data.cases must be at most {len(whole.train.targets)} for {data.name}, not {data.cases}")
    inputs = whole.train.inputs
    inputs = inputs.first(data.cases) if hasattr(inputs, "first") else inputs[: data.cases]
    train = Cases(inputs, whole.train.targets[: data.cases])
    return replace(whole, train=train, digest=digest(train, whole.test))


def check(name: str) -> list[Checked]:
    """Verify every file of a data set; nothing is changed and nothing fetched."""
    return module(name).check()


def status() -> list[Status]:
    """Every data set: where it is or would be, and where it comes from."""
    return [module(name).status() for name in NAMES]


def module(name: str) -> ModuleType:
    """The module of a data set."""
    if name not in NAMES:
        raise ValueError(f"no data set {name!r}; {config.nearest(name, NAMES)}")
    return importlib.import_module(f"meannet.data.{name.replace('-', '_')}")


def digest(train: Cases, test: Cases) -> str:
    """A hash of the cases themselves, so that a run can tell whether it goes on with the data it began with."""
    state = hashlib.sha256()
    parts: tuple[Any, ...] = (train.inputs, train.targets, test.inputs, test.targets)
    for part in parts:
        made = hasattr(part, "tensors")  # as they are asked for
        if made:
            state.update(f"{type(part).__name__.lower()}{part.shape}".encode())
        for array in part.tensors() if made else (part,):
            state.update(f"{array.dtype}{tuple(array.shape)}".encode())
            state.update(array.contiguous().view(-1).numpy().data)
    return state.hexdigest()


def digest_of(folds: Iterable[Dataset]) -> str:
    """A hash of several data sets that are one."""
    return hashlib.sha256("".join(fold.digest for fold in folds).encode()).hexdigest()


def counts(texts: Iterable[str], n_words: int = 2000, **options: Any) -> "Counts":
    """log(1 + C) of the commonest words that are no stop words, as in C, for texts of one's own; see texts.counts."""
    from meannet.data.texts import counts

    return counts(texts, n_words, **options)
