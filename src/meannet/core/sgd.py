"""The paper's two update rules (A.1 and F.6): momentum on the average gradient of a mini-batch."""

import torch
from torch import Tensor

RULES = ("a1", "plain")


def step_size(rule: str, lr: float, momentum: float) -> float:
    """What multiplies the gradient: (1 - p) times the learning rate in A.1, the learning rate itself for images."""
    if rule not in RULES:
        raise ValueError(f"unknown update rule {rule!r}; the rules are {', '.join(RULES)}")
    return (1 - momentum) * lr if rule == "a1" else lr


@torch.no_grad()
def momentum_step_(parameter: Tensor, velocity: Tensor, gradient: Tensor, step: Tensor | float, momentum: float):
    """velocity := momentum * velocity - step * gradient; parameter := parameter + velocity; both in place."""
    velocity.mul_(momentum).sub_(step * gradient)
    parameter.add_(velocity)
