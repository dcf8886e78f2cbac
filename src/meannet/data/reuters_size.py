"""Made-up counts of the size of C's data, 201,369 + 201,369 documents of 2000 words: for time and memory only.

No result on them says anything about text. Each document is drawn from the rcv1-subset: its class by how common that
is, its length from the class's documents, and its words with their counts from all entries of these documents.
"""

from pathlib import Path

import numpy as np

from meannet.config import Selection
from meannet.data import Checked, Dataset, Status, documents, rcv1_subset
from meannet.data.documents import Chosen, Matrix, Say

NAME = "reuters-size"
FILES = ()
SELECTION = Selection(fewest=2)  # leaves 50 classes of the subset, as many as the paper has
DOCUMENTS = documents.PAPER["documents"]
SOURCE = "made up from rcv1-subset, for time and memory only"
LICENCE = rcv1_subset.LICENCE


def load(*, held_out: bool, say: Say, selection: Selection = SELECTION) -> Dataset:
    from scipy.sparse import csr_array

    matrix, (document, label) = rcv1_subset.read()
    names, total = rcv1_subset.SECOND_LEVEL, matrix.shape[0]
    real = documents.choose(document, label, names, total, selection, held_out=False)
    counts, _ = documents.select_words(matrix, real, selection)
    random = np.random.Generator(np.random.Philox(selection.seed))
    targets = real.targets[random.integers(len(real.targets), size=DOCUMENTS)]
    targets.sort()
    parts = [_drawn(counts[real.targets == kind], int(n), random) for kind, n in enumerate(np.bincount(targets)) if n]
    starts, columns, values = zip(*parts, strict=True)
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(starts))))
    made = csr_array((np.concatenate(values), np.concatenate(columns), indptr), shape=(DOCUMENTS, counts.shape[1]))
    facts = {
        "classes_by_size": {name: int((targets == k).sum()) for k, name in enumerate(real.classes)},
        "dropped_classes": {},
        "documents": DOCUMENTS,
        "of_documents": DOCUMENTS,
        "made_up": True,
    }
    everything = np.arange(DOCUMENTS)
    train, test = documents.divided(everything, Selection(seed=selection.seed), None, held_out=held_out)
    say(f"{NAME}: documents are made up, for time and memory; their errors say nothing about text")
    chosen = Chosen(everything, targets, real.classes, train, test, facts)
    return documents.dataset(NAME, made, chosen, say)


def _drawn(real: Matrix, count: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Words of each of `count` documents: how many, which, how often. A word that comes again is passed over."""
    lengths = np.diff(real.indptr)[random.integers(real.shape[0], size=count)]
    tries = 2 * lengths  # enough, but for a few long documents
    entries = random.integers(real.nnz, size=tries.sum())
    row = np.repeat(np.arange(count), tries)
    keys, first = np.unique(row * real.shape[1] + real.indices[entries], return_index=True)
    row = keys // real.shape[1]
    order = np.lexsort((first, row))
    found = np.bincount(row, minlength=count)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(found) - found, found)
    kept = rank < lengths[row]
    columns = (keys[kept] % real.shape[1]).astype(np.int32)
    return np.bincount(row[kept], minlength=count), columns, real.data[entries[first[kept]]]


def check() -> list[Checked]:
    return [found._replace(message=f"made from it: {found.message}") for found in rcv1_subset.check()]


def status() -> Status:
    return rcv1_subset.status()._replace(name=NAME, source=SOURCE)


def fetch(*, force: bool, say: Say) -> None:
    rcv1_subset.fetch(force=force, say=say)


def where() -> Path:
    return rcv1_subset.where()
