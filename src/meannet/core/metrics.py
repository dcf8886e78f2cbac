"""Errors and losses, per net (A.1: cross-entropy; body: squared error for regression)."""

import torch
import torch.nn.functional as F
from torch import Tensor

OUTPUTS = ("softmax", "linear")


def losses(outputs: Tensor, targets: Tensor, kind: str) -> Tensor:
    """Summed over cases, (nets,): cross-entropy with class targets (nets, cases), or half the squared error."""
    if kind == "softmax":
        right = outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1))
        return -right.sum((1, 2))
    return 0.5 * (outputs - targets).square().sum((1, 2))


def loss_gradient(outputs: Tensor, targets: Tensor, kind: str) -> Tensor:
    """Of the loss of each case with respect to its outputs, (nets, cases, outputs)."""
    if kind == "softmax":
        return outputs.softmax(-1) - F.one_hot(targets, outputs.shape[-1]).to(outputs.dtype)
    return outputs - targets


def errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many cases each net gets wrong, (nets,); targets are (nets, cases) or (cases,)."""
    return (outputs.argmax(-1) != targets).sum(-1)


def log_probability(log_probs: Tensor, targets: Tensor) -> Tensor:
    """Mean log probability of the right answer, over the last axis of cases."""
    index = targets.expand(log_probs.shape[:-1]).unsqueeze(-1)
    return torch.take_along_dim(log_probs, index, -1).squeeze(-1).mean(-1)
