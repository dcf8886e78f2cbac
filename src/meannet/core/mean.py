"""Combining thinned networks: arithmetic and renormalised geometric means, sampled or over all 2^N masks (body)."""

import torch
from torch import Tensor


def all_masks(units: int) -> Tensor:
    """Every way to keep or omit `units` units, bool (2^units, units)."""
    if units > 24:
        raise ValueError(f"2^{units} masks are too many to enumerate; 24 units are the most")
    codes = torch.arange(1 << units)
    return (codes[:, None] >> torch.arange(units) & 1).bool()


def mask_probabilities(masks: Tensor, rates: Tensor) -> Tensor:
    """How probable each mask is, (masks,), when unit i is omitted with rates[i]."""
    return torch.where(masks, 1 - rates, rates).prod(-1)


def arithmetic_mean(log_probs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Log of the mean probability over the first axis, with optional weights that sum to one."""
    return torch.logsumexp(log_probs + _log_weights(log_probs, weights), 0)


def geometric_mean(log_probs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Log of the geometric mean over the first axis, renormalised over the last so that it sums to one."""
    weights = _log_weights(log_probs, weights).exp()
    return (log_probs * weights).sum(0).log_softmax(-1)


def _log_weights(log_probs: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        weights = log_probs.new_full((len(log_probs),), 1 / len(log_probs))
    return weights.log().reshape(-1, *[1] * (log_probs.dim() - 1))
