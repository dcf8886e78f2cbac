"""Word counts of 30,000 documents of RCV1-v2, 27,613 of them distinct: real documents for C's experiment, too few for
its number.

The counts were inferred from the published vectors, which are TF-IDF of unit length: exactly for most documents. Words
have no names there, and stop words were taken out before the vectors were made.
"""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np

from meannet.config import Selection
from meannet.data import Checked, DataError, Dataset, Status, documents, folder
from meannet.data.documents import Matrix, Say
from meannet.data.reuters import SECOND_LEVEL

NAME = "rcv1-subset"
FILES = ()
SELECTION = Selection()
SHA256 = "6273b3d8ca157cc34899387dc9647e66a7155e4dc7234c76d7b462d6c0a28d07"
MOST = 1 << 26  # bytes of an array, by far
ARRAYS = {"counts": "u2", "indices": "i4", "indptr": "i8", "shape": "i8", "labels": "u1", "first_occurrence": "?"}
SOURCE = "cannot be fetched; made from vectors of RCV1-v2 (LYRL2004)"
LICENCE = "terms of LYRL2004 and of Reuters' corpus: research only"


def load(*, held_out: bool, say: Say, selection: Selection = SELECTION) -> Dataset:
    """The paper's selection from the distinct documents of the subset."""
    matrix, (document, label) = read()
    names, total = SECOND_LEVEL, matrix.shape[0]
    chosen = documents.choose(document, label, names, total, selection, held_out=held_out)
    counts, _ = documents.select_words(matrix, chosen, selection)
    return documents.dataset(NAME, counts, chosen, say)


def read() -> tuple[Matrix, tuple[np.ndarray, np.ndarray]]:
    """Counts of the distinct documents, and pairs of a document and a place in SECOND_LEVEL."""
    from scipy.sparse import csr_array

    arrays = _arrays()
    names = [str(name) for name in arrays["label_names"]]
    distinct = arrays["first_occurrence"]
    values, places = arrays["counts"].astype(np.int32), arrays["indices"]
    matrix = csr_array((values, places, arrays["indptr"]), shape=tuple(arrays["shape"]))[distinct]
    document, label = np.nonzero(arrays["labels"][distinct][:, [names.index(name) for name in SECOND_LEVEL]])
    return matrix, (document, label)


def check() -> list[Checked]:
    try:
        _arrays()
    except DataError as error:
        return [Checked(where(), False, str(error).removeprefix(f"{where()}: "))]
    return [Checked(where(), True, "as known here")]


def status() -> Status:
    present = where().is_file()
    return Status(NAME, where().parent, present, where().stat().st_size if present else 0, SOURCE, LICENCE)


def fetch(*, force: bool, say: Say) -> None:
    checked = check()[0]
    if not checked.ok:
        raise DataError(f"{checked.path}: {checked.message}")
    say(f"{NAME} is in {where().parent}, complete and verified")


def where() -> Path:
    return folder() / NAME / "counts.npz"


def _arrays() -> dict[str, np.ndarray]:
    """What the file holds, verified before anything in it is parsed; nothing in it can execute."""
    path = where()
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST)
    except FileNotFoundError:
        raise DataError(f"{path}: missing; {NAME} cannot be fetched, put counts.npz into {path.parent}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{path}: checksum is wrong, this is not the subset known here; put the right one there")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            found = {name: archive[name] for name in (*ARRAYS, "label_names")}
    except (KeyError, ValueError, zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path}: not the subset known here ({error})") from None
    _verify(found, path)
    return found


def _verify(found: dict[str, np.ndarray], path: Path) -> None:
    """Refuse arrays that do not fit together, which would otherwise be read out of bounds."""
    rows, columns = (int(size) for size in found["shape"])
    starts, places = found["indptr"], found["indices"]
    good = all(found[name].dtype == np.dtype(kind) for name, kind in ARRAYS.items())
    good = good and starts.shape == (rows + 1,) and starts[0] == 0 and starts[-1] == len(places) == len(found["counts"])
    good = good and bool((np.diff(starts) >= 0).all()) and places.min() >= 0 and places.max() < columns
    good = good and found["labels"].shape == (rows, len(found["label_names"]))
    good = good and len(found["first_occurrence"]) == rows
    if not good or set(SECOND_LEVEL) - {str(name) for name in found["label_names"]}:
        raise DataError(f"{path}: its arrays do not fit together")
