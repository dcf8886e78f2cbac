"""The norm bound: an upper limit on the squared length of each unit's incoming weight vector (body, A.1)."""

import torch
from torch import Tensor


@torch.no_grad()
def constrain_incoming_(weight: Tensor, limit: Tensor | float) -> Tensor:
    """Shorten, in place, each incoming vector whose squared length exceeds `limit`.

    `weight` is (…, units, inputs), in any memory layout; `limit` a number or a tensor that broadcasts against
    (…, units, 1), with infinity for no bound. Vectors within the bound are left exactly as they are.
    """
    squared = torch.linalg.vecdot(weight, weight).unsqueeze(-1)
    # limit / squared is inf / x without a bound and x / 0 for an empty vector; neither branch is then taken. A vector
    # whose squared length overflows is left alone too: its net has diverged and is to be seen to.
    over = (squared > limit) & squared.isfinite()
    return weight.mul_(torch.where(over, (limit / squared).sqrt(), 1.0))
