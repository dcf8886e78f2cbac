"""Inputs of which nets of one fleet see their own: in A.2 the mean-field activities of each net's own machine."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class OwnInputs:
    """Several versions of the same cases, and which of them each net sees."""

    versions: Tensor  # (versions, cases, inputs)
    which: Tensor  # (nets,) int64

    def __len__(self) -> int:
        return self.versions.shape[1]

    def __getitem__(self, chosen: Tensor) -> Tensor:
        """The inputs of cases (nets, cases), as (nets, cases, inputs)."""
        return self.versions[self.which[:, None], chosen]

    @property
    def shape(self) -> tuple[int, int]:
        """Cases and inputs, as of a tensor that all nets share."""
        return self.versions.shape[1], self.versions.shape[2]

    def to(self, device: torch.device) -> "OwnInputs":
        return OwnInputs(self.versions.to(device), self.which.to(device))


def apart(inputs: "Tensor | OwnInputs", nets: int) -> tuple[Tensor, Tensor]:
    """Versions of the inputs, (versions, cases, inputs), and which each net sees: of shared ones there is one."""
    if isinstance(inputs, OwnInputs):
        return inputs.versions, inputs.which
    return inputs[None], torch.zeros(nets, dtype=torch.int64, device=inputs.device)


def block(inputs: "Tensor | OwnInputs | Any", part: range) -> Tensor:
    """Some neighbouring cases as a net takes them, (nets or 1, cases, inputs); of sparse inputs made dense."""
    if isinstance(inputs, OwnInputs):
        return inputs.versions[inputs.which, part.start : part.stop]
    if isinstance(inputs, Tensor):
        return inputs[None, part.start : part.stop]
    return inputs[torch.arange(part.start, part.stop)[None]]
