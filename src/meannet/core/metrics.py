"""Errors and losses, per net (A.1: cross-entropy; body: squared error for regression)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

OUTPUTS = ("softmax", "logistic", "linear")


def losses(
    outputs: Tensor, targets: Tensor, kind: str, groups: Sequence[int] = (), weights: Tensor | None = None
) -> Tensor:
    """Summed over cases, (nets,), each times its weight where `weights`, (nets, cases), are given.

    Softmax outputs have class targets (nets, cases) and cross-entropy; with `groups`, sizes of several softmaxes side
    by side, targets are (nets, cases, groups). Logistic outputs have cross-entropy and targets of 0 and 1, linear ones
    half the squared error, both with targets (nets, cases, outputs).
    """
    each = _case_losses(outputs, targets, kind, groups)
    return (each if weights is None else each * weights).sum(1)


def loss_gradient(outputs: Tensor, targets: Tensor, kind: str, groups: Sequence[int] = ()) -> Tensor:
    """Of the loss of each case with respect to its outputs, (nets, cases, outputs)."""
    if groups:
        parts = zip(outputs.split(list(groups), -1), targets.unbind(-1), strict=True)
        return torch.cat([loss_gradient(output, target, kind) for output, target in parts], -1)
    if kind == "softmax":
        return outputs.softmax(-1) - F.one_hot(targets, outputs.shape[-1]).to(outputs.dtype)
    return (outputs.sigmoid() if kind == "logistic" else outputs) - targets


def errors(outputs: Tensor, targets: Tensor, kind: str = "softmax", groups: Sequence[int] = ()) -> Tensor:
    """How many cases each net gets wrong, (nets,), one wrong label being enough; targets may lack the axis of nets."""
    if groups:
        parts = zip(outputs.split(list(groups), -1), targets.unbind(-1), strict=True)
        return torch.stack([output.argmax(-1) != target for output, target in parts]).any(0).sum(-1)
    if kind == "logistic":
        return ((outputs > 0) != (targets > 0.5)).any(-1).sum(-1)
    return (outputs.argmax(-1) != targets).sum(-1)


def _case_losses(outputs: Tensor, targets: Tensor, kind: str, groups: Sequence[int]) -> Tensor:
    """(nets, cases)"""
    if groups:
        parts = zip(outputs.split(list(groups), -1), targets.unbind(-1), strict=True)
        return torch.stack([_case_losses(output, target, kind, ()) for output, target in parts]).sum(0)
    if kind == "softmax":
        return -outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    if kind == "logistic":
        return (F.softplus(outputs) - targets * outputs).sum(-1)
    return 0.5 * (outputs - targets).square().sum(-1)
