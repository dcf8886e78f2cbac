"""From labels to what a net's outputs are trained to give, and back from its probabilities to labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d


@dataclass(frozen=True)
class Labels:
    """Single labels (one softmax), any number of labels a case (logistic outputs), or several targets (softmaxes)."""

    kind: str  # single, multilabel or several
    classes: list[np.ndarray]  # one array; or one a target
    dtype: np.dtype

    @classmethod
    def of(cls, y: np.ndarray, classes: Any = None) -> "Labels":
        """As the targets show; `classes` names those that may come later."""
        if y.ndim == 1:
            return cls("single", [np.unique(y if classes is None else np.asarray(classes))], y.dtype)
        if y.dtype != object and type_of_target(y).startswith("multilabel"):
            return cls("multilabel", [np.arange(y.shape[1])], y.dtype)
        columns = y.T if classes is None else classes
        if len(columns) != y.shape[1]:
            raise ValueError(f"y has {y.shape[1]} targets, but classes were given for {len(columns)}")
        return cls("several", [np.unique(column) for column in columns], y.dtype)

    @property
    def output(self) -> str:
        return "logistic" if self.kind == "multilabel" else "softmax"

    @property
    def outputs(self) -> int:
        return sum(map(len, self.classes))

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(map(len, self.classes)) if self.kind == "several" else ()

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Class numbers, (cases,) or (cases, targets), or 0 and 1, (cases, labels)."""
        expected = {"single": 1, "multilabel": 2, "several": 2}[self.kind]
        columns = len(self.classes[0]) if self.kind == "multilabel" else len(self.classes)
        if y.ndim != expected or (y.ndim == 2 and y.shape[1] != columns):
            raise ValueError(f"y has shape {y.shape}, but the estimator was fitted on {self.kind} targets")
        if self.kind == "multilabel":
            return y.astype(np.float32)
        if self.kind == "single":
            return _numbers(y, self.classes[0])
        return np.stack([_numbers(column, c) for column, c in zip(y.T, self.classes, strict=True)], 1)

    def decode(self, probabilities: np.ndarray) -> np.ndarray:
        """The most probable labels, in the shape and kind that y had."""
        if self.kind == "multilabel":
            return (probabilities > 0.5).astype(self.dtype)
        if self.kind == "single":
            return self.classes[0][probabilities.argmax(1)]
        each = [c[p.argmax(1)] for c, p in zip(self.classes, self.split(probabilities), strict=True)]
        return np.stack(each, 1).astype(self.dtype)

    def split(self, probabilities: np.ndarray) -> list[np.ndarray]:
        """Of each target on its own; the outputs are the last axis."""
        return np.split(probabilities, np.cumsum([len(c) for c in self.classes])[:-1], axis=-1)

    def case_weights(self, class_weight: Any, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
        """The weights of cases times those of their classes; "balanced" gives each class the same sum of weights."""
        if class_weight is None:
            return weights
        if self.kind == "multilabel":
            columns, classes = list(y.T), [np.unique(column) for column in y.T]
        else:
            columns, classes = [y] if self.kind == "single" else list(y.T), self.classes
        one_each = isinstance(class_weight, Sequence) and not isinstance(class_weight, str)
        if one_each and len(class_weight) != len(columns):
            raise ValueError(f"class_weight has {len(class_weight)} entries for {len(columns)} targets")
        found = np.ones(len(y)) if weights is None else weights.copy()
        for k, (column, values) in enumerate(zip(columns, classes, strict=True)):
            numbers = _numbers(column, values)
            chosen = class_weight[k] if one_each else class_weight
            if isinstance(chosen, str) and chosen == "balanced":
                sums = np.bincount(numbers, weights, minlength=len(values))
                each = sums.sum() / ((sums > 0).sum() * np.where(sums > 0, sums, np.inf))
            else:
                each = compute_class_weight(chosen, classes=values, y=column)
            found *= each[numbers]
        if not (np.isfinite(found).all() and (found >= 0).all() and found.any()):
            raise ValueError(f"class_weight must be finite, not negative and not all zero; got {class_weight!r}")
        return found


def checked_labels(y: Any) -> np.ndarray:
    """Targets of classification as an array, (cases,) or (cases, targets); a column vector is taken with a warning."""
    if sparse.issparse(y):
        y = y.toarray()
    mixed = y.ndim == 2 and y.dtype == object  # words and numbers side by side in a table
    for part in (np.array(column.tolist()) for column in y.T) if mixed else (y,):
        check_classification_targets(part)
    return column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y


def _numbers(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Where each label stands among the sorted classes, int64."""
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(f"y holds labels that are not among the classes: {unknown.tolist()[:5]}")
    return np.searchsorted(classes, y).astype(np.int64)
