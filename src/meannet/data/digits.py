"""The 1,797 handwritten digits that come with scikit-learn: real data at hand everywhere, 8 x 8 pixels in [0, 1].

Dropout is for nets that are large for their data, so few cases are for training and most are for judging. The split
was fixed before any net was trained on it: one permutation, cut in three.
"""

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from meannet.data import Cases, Checked, DataError, Dataset, Status, digest

NAME = "digits"
FILES = ()  # nothing to fetch
IMAGE = (8, 8)
CLASSES = tuple("0123456789")
LARGEST = 16  # value of a pixel
SPLIT_SEED = 2012
N_TRAIN, N_HELD_OUT, N_TEST = 300, 497, 1000
# Of the inputs as float64 and the targets as int64.
SHA256 = "f6d9e39f37dc45d327f6db33428ee58970ccceabb2535a5c179de35886b70443"
SOURCE = "part of scikit-learn; the test set of UCI's Optical Recognition of Handwritten Digits"
LICENCE = "CC BY 4.0; by E. Alpaydin and C. Kaynak"


def load(*, held_out: bool, say: Callable[[str], None]) -> Dataset:
    """300 cases to learn from, judged on 1,000 others; or, where choices are made, on 497 that are in neither."""
    import torch

    from meannet.core import philox

    data, target = _arrays()
    inputs = torch.from_numpy(data).float().div_(LARGEST)
    targets = torch.from_numpy(target).long()
    order = philox.order(torch.tensor([SPLIT_SEED]), 0, len(inputs))[0]
    train, validation, test = (
        Cases(inputs[part], targets[part]) for part in order.split([N_TRAIN, N_HELD_OUT, N_TEST])
    )
    judged = validation if held_out else test
    return Dataset(NAME, train, judged, CLASSES, IMAGE, digest(train, judged))


def check() -> list[Checked]:
    try:
        _arrays()
    except DataError as error:
        return [Checked(where(), False, str(error).removeprefix(f"{where()}: "))]
    return [Checked(where(), True, "as published")]


def status() -> Status:
    present = where().exists()
    return Status(NAME, where(), present, where().stat().st_size if present else 0, SOURCE, LICENCE)


def where() -> Path:
    spec = importlib.util.find_spec("sklearn")
    root = Path(spec.origin).parent if spec and spec.origin else Path("sklearn")
    return root / "datasets" / "data" / "digits.csv.gz"


def _arrays() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    data, target = load_digits(return_X_y=True)
    data, target = np.ascontiguousarray(data, "<f8"), np.ascontiguousarray(target, "<i8")
    if hashlib.sha256(data.tobytes() + target.tobytes()).hexdigest() != SHA256:
        raise DataError(f"{where()}: checksum is wrong, these are not the digits known here; reinstall scikit-learn")
    return data, target
