"""Cases as a fit takes them: in an order of their own, repeated or weighted, on one scale, sparse ones by the batch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from meannet.plain import FARTHEST

MOST_COPIES = 10  # whole-number weights become copies of cases while there are at most so many times the cases
CHUNK_FLOATS = 1 << 22  # numbers of a data matrix worked on at a time
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # of splitmix64

Matrix = Any  # a two-dimensional array, or a CSR matrix or array


@dataclass(frozen=True)
class Scaling:
    """What is subtracted from inputs (or targets) and what they are divided by, one number a column, float64.

    Then numbers z become z / sqrt(1 + (z / reach)²): outliers come no further than `reach`, what is near stays.
    """

    mean: np.ndarray
    scale: np.ndarray
    reach: float = math.inf

    @classmethod
    def none(cls, columns: int) -> "Scaling":
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def of(cls, x: Matrix, rows: np.ndarray, weights: np.ndarray | None) -> "Scaling":
        """To mean 0 and standard deviation 1 over the cases `rows`; sparse inputs are only scaled, and stay sparse.

        Columns are first divided by their largest magnitude, so that no square overflows or vanishes.
        """
        columns = x.shape[1]
        share = np.full(len(rows), 1.0) if weights is None else weights
        share = share / share.sum()
        largest = np.zeros(columns)
        for part in _parts(len(rows), columns):
            largest = np.maximum(largest, flat(abs(_take(x, rows[part])).max(axis=0)))
        largest[largest == 0] = 1.0
        mean, square = np.zeros(columns), np.zeros(columns)
        for part in _parts(len(rows), columns):
            mean += flat(share[part] @ _divided(_take(x, rows[part]), largest))
        for part in _parts(len(rows), columns):
            block = _divided(_take(x, rows[part]), largest)
            if sparse.issparse(block):  # the cases that are zero, which it does not hold, are counted afterwards
                held = share[part] @ (block != 0)
                deviation = block.copy()
                deviation.data -= mean[block.indices]
                # Exactly none where every case has a value: what rounding leaves would pass for a deviation.
                everywhere = np.bincount(block.indices, minlength=columns) == block.shape[0]
                absent = np.where(everywhere, 0.0, share[part].sum() - held)
                square += flat(share[part] @ deviation.multiply(deviation)) + absent * mean**2
            else:
                square += share[part] @ (block - mean) ** 2
        sd = np.sqrt(square)
        constant = sd <= 1e-13 * np.abs(mean)
        scale = largest * np.where(constant, 1.0, sd)
        return cls(np.zeros(columns) if sparse.issparse(x) else mean * largest, scale)

    def apply(self, x: Matrix) -> np.ndarray:
        """Dense float64."""
        z = (dense_rows(x) - self.mean) / self.scale
        return z if math.isinf(self.reach) else _drawn_in(z, self.reach)


def arrange(
    x: Matrix, targets: np.ndarray, weights: np.ndarray | None, *, normalise: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Which rows to train on, in what order, and their weights where these are not all one.

    The order follows from what the cases hold, so that a fit depends on the cases and not on how a table is sorted.
    Weights that are whole numbers stand for so many copies of a case, each presented with masks of its own; others
    multiply the loss of their case and, with `normalise`, are brought to a mean of one.
    """
    keys = case_keys(x, targets)
    if weights is None:
        return np.argsort(keys, kind="stable"), None
    order = np.lexsort((weights, keys))
    weights = weights[order]
    if (weights == np.rint(weights)).all() and weights.sum() <= MOST_COPIES * len(weights):
        return np.repeat(order, weights.astype(np.int64)), None
    if normalise:
        weights = weights / weights.mean()
    return order, None if (weights == 1).all() else weights


def dense_inputs(x: Matrix, rows: np.ndarray, scaling: Scaling, device: torch.device) -> Tensor:
    """Scaled inputs, float32 (cases, inputs), without a second float64 copy of the whole."""
    scaled = torch.empty(len(rows), x.shape[1])
    for part in _parts(*scaled.shape):
        with np.errstate(over="ignore"):  # beyond float32 without scaling: the fit then says that it diverged
            scaled[part] = torch.from_numpy(scaling.apply(x[rows[part]]).astype(np.float32))
    return scaled.to(device)


def dense_rows(x: Matrix, dtype: Any = np.float64) -> np.ndarray:
    """Row by row in memory, so that sums come out the same from any layout."""
    return np.ascontiguousarray(x.toarray() if sparse.issparse(x) else x, dtype)


class SparseRows:
    """Sparse inputs, of which each mini-batch is made dense and scaled as it is asked for."""

    def __init__(self, x: Matrix, rows: np.ndarray, scaling: Scaling, device: torch.device):
        self.x, self.rows, self.scaling, self.device = x, rows, scaling, device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: Tensor) -> Tensor:
        return dense_inputs(self.x, self.rows[chosen.cpu().numpy().ravel()], self.scaling, self.device).view(
            *chosen.shape, -1
        )


def chunks(x: Any, most: int | None = None) -> Iterator[Any]:
    """Blocks of rows small enough to be made dense, of a matrix or of what is read as it is sliced."""
    size = max(1, CHUNK_FLOATS // (most or x.shape[1]))
    return (x[start : start + size] for start in range(0, x.shape[0], size))


def _drawn_in(z: np.ndarray, reach: float) -> np.ndarray:
    z = z.clip(-FARTHEST, FARTHEST)
    return z / np.sqrt(1 + (z / reach) ** 2)


def case_keys(x: Matrix, targets: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each case's inputs and targets; a zero adds nothing, so that sparse and dense agree."""
    keys = np.zeros(x.shape[0], np.uint64)
    for salt, matrix in enumerate((x, targets.reshape(len(keys), -1))):
        place = _mixed(np.arange(1, matrix.shape[1] + 1, dtype=np.uint64) << np.uint64(salt * 32)) | np.uint64(1)
        for part in _parts(*matrix.shape):
            block: Matrix = matrix[part]
            if sparse.issparse(block):
                cells = _mixed(_bits(block.data)) * place[block.indices]
                totals = np.concatenate(([np.uint64(0)], np.cumsum(cells, dtype=np.uint64)))
                keys[part] += totals[block.indptr[1:]] - totals[block.indptr[:-1]]
            else:
                keys[part] += (_mixed(_bits(block)) * place).sum(1, dtype=np.uint64)
    return _mixed(keys)


def _bits(values: np.ndarray) -> np.ndarray:
    return (np.asarray(values, np.float64) + 0.0).view(np.uint64)  # plus zero: minus zero is zero


def _mixed(words: np.ndarray) -> np.ndarray:
    words = (words ^ (words >> np.uint64(30))) * MIX[0]
    words = (words ^ (words >> np.uint64(27))) * MIX[1]
    return words ^ (words >> np.uint64(31))


def _parts(rows: int, columns: int) -> Iterator[slice]:
    size = max(1, CHUNK_FLOATS // max(1, columns))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _take(x: Matrix, rows: np.ndarray) -> Matrix:
    block = x[rows]
    if not sparse.issparse(block):
        return dense_rows(block)
    block = sparse.csr_array(block, dtype=np.float64)
    block.sum_duplicates()
    block.eliminate_zeros()
    return block


def _divided(block: Matrix, largest: np.ndarray) -> Matrix:
    if not sparse.issparse(block):
        return block / largest
    block.data = block.data / largest[block.indices]
    return block


def flat(row: Any) -> np.ndarray:
    """A row, which may be sparse, as float64 numbers."""
    return np.asarray(row.toarray() if sparse.issparse(row) else row, np.float64).reshape(-1)
