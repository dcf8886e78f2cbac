"""Inputs that are mostly zeros, such as counts of words (C), kept without the zeros; rows made dense as asked for."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


class Sparse:
    """A matrix (cases, inputs) of float32 in compressed rows; `matrix[chosen]` are dense rows, as train.Rows asks."""

    def __init__(self, starts: Tensor, columns: Tensor, values: Tensor, width: int):
        self.starts, self.columns, self.values = starts, columns, values  # int64 (cases + 1,), int32, float32
        self.shape = (len(starts) - 1, width)

    @classmethod
    def of(cls, matrix: Any) -> "Sparse":
        """From SciPy's compressed rows."""
        starts, columns, values = matrix.indptr.astype(np.int64), matrix.indices, matrix.data
        arrays = starts, columns.astype(np.int32), values.astype(np.float32)
        return cls(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays), width=matrix.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: Tensor) -> Tensor:
        """The rows `chosen`, of any shape, as (*chosen, inputs), dense, on the device where the matrix is."""
        rows = chosen.reshape(-1).to(self.starts.device)
        first, counts = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        ends = counts.cumsum(0)
        total = int(ends[-1]) if len(rows) else 0
        place = torch.arange(len(rows), device=rows.device).repeat_interleave(counts, output_size=total)
        within = torch.arange(total, device=rows.device) - (ends - counts)[place]
        entry = first[place] + within
        dense = torch.zeros(len(rows), self.shape[1], device=rows.device)
        dense[place, self.columns[entry].long()] = self.values[entry]
        return dense.view(*chosen.shape, self.shape[1])

    def first(self, cases: int) -> "Sparse":
        """The first so many rows."""
        end = int(self.starts[cases])
        return Sparse(self.starts[: cases + 1], self.columns[:end], self.values[:end], width=self.shape[1])

    def to(self, device: torch.device | str) -> "Sparse":
        return Sparse(*(tensor.to(device) for tensor in self.tensors()), width=self.shape[1])

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.starts, self.columns, self.values
