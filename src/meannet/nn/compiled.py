"""Max pools and response normalisation in a form from which torch.compile makes few kernels.

The plain forms are in conv.py; where nothing is compiled they are what runs.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def compiling() -> bool:
    """Whether for this process: exported programs hold what other programs know."""
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def pooled(size: int, window: int, stride: int) -> int:
    """Places left of a side of `size` places; the last window begins inside and may reach over the edge."""
    further = max(0, -(-(size - window) // stride))
    return further + (further * stride < size)


class Maximum(torch.autograd.Function):
    """A pool of maxima for torch.compile, which would give its gradient by atomic additions to zeros, in float32.

    Here each place looks at the neighbourhoods that it lies in, and takes from those whose maximum it is.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[int, int], stride: int) -> Tensor:
        ctx.sides, ctx.stride, ctx.reach = x.shape[-2:], stride, [-(-size // stride) for size in window]
        high, wide = (stride * (pooled(*sizes, stride) - 1) + 1 for sizes in zip(ctx.sides, window, strict=True))
        beyond = [window[1] - 1 + wide - x.shape[-1], window[0] - 1 + high - x.shape[-2]]
        x = F.pad(x, (0, beyond[0], 0, beyond[1]), value=-math.inf)
        largest = x[..., :high:stride, :wide:stride]
        code = torch.zeros_like(largest, dtype=torch.int8 if stride**2 * math.prod(ctx.reach) <= 128 else torch.int16)
        for row, column in product(*map(range, window)):  # of places as large as each other the first counts
            other = x[..., row : row + high : stride, column : column + wide : stride]
            larger = (other > largest) | other.isnan()
            largest = torch.where(larger, other, largest)
            code = torch.where(larger, row * stride * ctx.reach[1] + column, code)
        ctx.save_for_backward(code)  # where in its neighbourhood the maximum lies
        return largest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,), (code,) = gradients, ctx.saved_tensors
        stride, (up, left) = ctx.stride, ctx.reach
        given = _in_memory(gradient.movedim(-3, -1))
        code, found = code.movedim(-3, -1), torch.zeros((), dtype=given.dtype, device=given.device)
        rows, columns = (torch.arange(side, device=given.device) % stride for side in ctx.sides)
        for above, before in product(range(up), range(left)):
            row, column = rows + stride * above, columns + stride * before
            own = (row[:, None] * (stride * left) + column).to(code.dtype)[..., None]
            mine = _looked_up(code, ctx.sides, stride, above, before) == own
            found = found + torch.where(mine, _looked_up(given, ctx.sides, stride, above, before), 0.0)
        return found.movedim(-1, -3), None, None


def _looked_up(x: Tensor, sides: Sequence[int], stride: int, above: int, before: int) -> Tensor:
    """For each place the value in x (…, rows, columns, channels) of a neighbourhood so many before its own, or zero."""
    (rows, columns), (high, wide) = x.shape[-3:-1], (-(-side // stride) for side in sides)
    x = F.pad(x, (0, 0, before, wide - columns - before, above, high - rows - above))
    x = x[..., :, None, :, None, :].expand(*x.shape[:-3], high, stride, wide, stride, x.shape[-1])
    return x.flatten(-5, -4).flatten(-3, -2)[..., : sides[0], : sides[1], :]


class Adjacent(torch.autograd.Function):
    """Sums of adjacent banks, which are the last axis, for torch.compile: one kernel that reads each bank's neighbours.

    A product is no part of a larger kernel.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, down: int, up: int) -> Tensor:
        ctx.reach = up, down
        return _adjacent(x, down, up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _adjacent(_in_memory(gradients[0]), *ctx.reach), None, None


def _adjacent(x: Tensor, down: int, up: int) -> Tensor:
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for k in range(-up, down + 1):
        total = total + F.pad(x, (k, -k))
    return total


def _in_memory(x: Tensor) -> Tensor:
    """The same, for torch.compile a tensor in memory: not computed anew wherever it is read."""
    x = x.contiguous()
    return x.as_strided(x.shape, x.stride())
