"""From labelled documents to cases (C): classes that exclude each other, the commonest words, log(1 + C), two halves.

What the paper leaves open is config.Selection. The order is: find the documents that are in one class, drop classes,
divide the documents, find the words, count them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meannet.config import Selection
from meannet.data import Cases, DataError, Dataset, digest

PAPER = {"classes": 50, "documents": 402_738}  # C

Say = Callable[[str], None]
Matrix = Any  # SciPy's compressed rows, counts of words (documents, words)


@dataclass(frozen=True)
class Chosen:
    """The documents that are left, in their order, divided, and how the classes came to be."""

    documents: np.ndarray  # int64: their places among all documents, ascending
    targets: np.ndarray  # int64: the class of each
    classes: tuple[str, ...]
    train: np.ndarray  # places within `documents`, in a random order where the split is random
    test: np.ndarray  # likewise: held-out training documents where those were asked for
    facts: dict[str, Any]


def choose(
    documents: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    total: int,
    selection: Selection,
    *,
    held_out: bool,
    published: np.ndarray | None = None,
) -> Chosen:
    """Classes, documents and their split, from pairs: `documents[i]` of 0 .. `total` has the label `labels[i]`.

    `published` says of each document whether it is for training, where the data came divided.
    """
    one = np.bincount(documents, minlength=total) == 1
    sizes = np.bincount(labels[one[documents]], minlength=len(names))
    share = sizes / max(1, sizes.sum())
    keep = (sizes >= selection.fewest) & (share <= selection.largest)
    left = keep[labels]
    if selection.alone == "after":
        one = np.bincount(documents[left], minlength=total) == 1
    pairs = left & one[documents]
    order = np.argsort(documents[pairs], kind="stable")
    found, kinds = documents[pairs][order], labels[pairs][order]
    counts = np.bincount(kinds, minlength=len(names))
    kept = [k for k in range(len(names)) if keep[k]]
    if len(kept) < 2:
        raise ValueError(
            f"{len(kept)} of {len(names)} classes are left; lower data.selection.fewest or raise data.selection.largest"
        )
    train, test = divided(found, selection, published, held_out=held_out)
    facts = {
        "classes_by_size": {names[k]: int(counts[k]) for k in sorted(kept, key=lambda k: -counts[k])},
        "dropped_classes": {names[k]: int(sizes[k]) for k in range(len(names)) if not keep[k]},
        "documents": len(found),
        "of_documents": total,
    }
    return Chosen(found, np.searchsorted(kept, kinds), tuple(names[k] for k in kept), train, test, facts)


def divided(
    found: np.ndarray, selection: Selection, published: np.ndarray | None, *, held_out: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Places of the documents to learn from and of those to be judged on."""
    order = permutation(len(found), selection.seed)
    if selection.split == "equal":
        train, test = order[: len(found) // 2], order[len(found) // 2 :]
    elif published is None:
        raise ValueError("this data did not come divided; set data.selection.split=equal")
    else:
        train, test = order[published[found[order]]], order[~published[found[order]]]
    if held_out:  # no test document is looked at where choices are made
        last = max(1, round(selection.held_out * len(train)))
        train, test = train[:-last], train[-last:]
    if not len(train) or not len(test):
        raise DataError(f"{len(found)} documents are too few to divide")
    return train, test


def permutation(count: int, seed: int) -> np.ndarray:
    import torch

    from meannet.core import philox

    return philox.order(torch.tensor([seed]), 0, count)[0].numpy()


def counted(chosen: Chosen, selection: Selection) -> np.ndarray:
    """The documents in which words are counted to find the commonest, as places among all documents."""
    return chosen.documents if selection.words_of == "all" else chosen.documents[np.sort(chosen.train)]


def commonest(occurrences: np.ndarray, documents: np.ndarray, selection: Selection) -> np.ndarray:
    """Places of the words to keep, ascending, from how often and in how many documents each was found."""
    by = occurrences if selection.commonest == "occurrences" else documents
    found = int((by > 0).sum())
    if found < selection.words:
        raise ValueError(f"there are {found} words and not {selection.words}; set data.selection.words={found}")
    return np.sort(np.argsort(-by, kind="stable")[: selection.words])


def select_words(matrix: Matrix, chosen: Chosen, selection: Selection) -> tuple[Matrix, np.ndarray]:
    """Counts of the commonest words in the chosen documents, and which words, from counts of all words in all."""
    seen = matrix[counted(chosen, selection)]
    occurrences = np.asarray(seen.sum(axis=0)).ravel()
    words = commonest(occurrences, np.bincount(seen.indices, minlength=seen.shape[1]), selection)
    return matrix[chosen.documents][:, words], words


def dataset(name: str, counts: Matrix, chosen: Chosen, say: Say) -> Dataset:
    """Cases with inputs log(1 + C) from counts of the chosen documents; says what was chosen, beside the paper's."""
    import torch

    from meannet.data.sparse import Sparse

    counts = counts.astype(np.float32)
    counts.data = np.log1p(counts.data)

    def cases(rows: np.ndarray) -> Cases:
        return Cases(Sparse.of(counts[rows]), torch.from_numpy(chosen.targets[rows]))

    train, test = cases(chosen.train), cases(chosen.test)
    facts = chosen.facts | {
        "words": counts.shape[1],
        "words_a_document": round(counts.nnz / counts.shape[0], 2),
        "paper": PAPER,
    }
    for line in described(name, facts):
        say(line)
    return Dataset(name, train, test, chosen.classes, None, digest(train, test), facts)


def described(name: str, facts: dict[str, Any]) -> list[str]:
    """The classes and counts for a person to see, beside the paper's."""
    classes, dropped = facts["classes_by_size"], facts["dropped_classes"]
    lines = [
        f"{name}: {len(classes)} classes, {facts['documents']:,} documents of {facts['of_documents']:,} "
        f"(the paper's data: {PAPER['classes']} classes, {PAPER['documents']:,} documents); "
        f"{facts['words']:,} words, {facts['words_a_document']:g} of them in a document",
        "classes: " + ", ".join(f"{label} {count:,}" for label, count in classes.items()),
    ]
    if dropped:
        gone = ", ".join(f"{label} {count:,}" for label, count in dropped.items() if count)
        empty = ", ".join(label for label, count in dropped.items() if not count)
        parts = gone, f"without documents: {empty}" if empty else ""
        lines.append(f"dropped: {'; '.join(part for part in parts if part)}")
    return lines
