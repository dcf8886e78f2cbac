"""Context windows (body, B: 15, 21 or 31 frames), cut where they are needed: no window is ever stored.

Frames of all recordings are in one table, each recording between copies of its first and of its last frame. A window is
then neighbouring memory, and all of them together are a view of the table in which rows overlap.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class Windows:
    """Inputs (cases, width x features) as train.Rows asks for them: `windows[chosen]` cuts the chosen ones."""

    def __init__(self, table: Tensor, starts: Tensor, width: int):
        self.table, self.starts, self.width = table, starts, width  # (rows, features); (cases,) int64
        features = table.shape[1]
        self.shape = (len(starts), width * features)
        self.every = table.as_strided((len(table) - width + 1, width * features), (features, 1))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: Tensor) -> Tensor:
        """The windows of cases, of any shape, as (*chosen, inputs), on the device of the table."""
        rows = self.starts.index_select(0, chosen.reshape(-1).to(self.starts.device))
        return self.every.index_select(0, rows).view(*chosen.shape, self.shape[1])

    def first(self, cases: int) -> "Windows":
        """The first so many cases."""
        return Windows(self.table, self.starts[:cases], self.width)

    def to(self, device: torch.device | str) -> "Windows":
        return Windows(self.table.to(device), self.starts.to(device), self.width)

    def tensors(self) -> tuple[Tensor, Tensor]:
        return self.table, self.starts


def padded(frames: Tensor, counts: Sequence[int], width: int) -> tuple[Tensor, Tensor]:
    """The table for windows of this width, and where in it the window around each frame begins.

    `frames` are those of all recordings, of which each has so many of `counts`.
    """
    if width < 1 or width % 2 == 0:
        raise ValueError(f"a window has an odd number of frames, so that one is in the middle, not {width}")
    sizes = torch.tensor([count for count in counts if count], device=frames.device)
    half, first = width // 2, sizes.cumsum(0) - sizes
    longer = sizes + 2 * half
    begins = longer.cumsum(0) - longer
    within = torch.arange(int(longer.sum()), device=frames.device) - begins.repeat_interleave(longer) - half
    place = within.clamp_(min=0).minimum((sizes - 1).repeat_interleave(longer)) + first.repeat_interleave(longer)
    starts = torch.arange(len(frames), device=frames.device) + 2 * half * torch.arange(
        len(sizes), device=frames.device
    ).repeat_interleave(sizes)
    return frames[place], starts
