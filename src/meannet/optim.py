"""Momentum SGD with the paper's two update rules and its norm bound (A.1, F.6), as a torch optimizer."""

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from meannet.core.maxnorm import constrain_incoming_
from meannet.core.sgd import RULES, momentum_step_, step_size
from meannet.nn import LocallyConnected2d, TwoInputConv2d

# Layers whose weight has a unit's incoming vector at each place of its first axis.
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, LocallyConnected2d, TwoInputConv2d)


class DropoutSGD(Optimizer):
    """velocity := momentum * velocity - step * gradient, weight += velocity; then the bound on incoming vectors.

    The step is lr (1 - momentum) with `rule="a1"` and lr with `rule="plain"` (F.6). `limit` bounds the squared length
    of each unit's incoming vector: the first axis of a parameter is the unit, the others its incoming weights;
    parameters with one axis, biases, are never bounded, nor is the velocity. Every setting but `maximize` may differ
    between parameter groups and may be changed under way, by an lr_scheduler or by `group["momentum"] = …`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor,
        momentum: float = 0.0,
        *,
        rule: str = "a1",
        limit: float = math.inf,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ):
        settings = {"lr": lr, "momentum": momentum, "rule": rule, "limit": limit, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        group = {**self.defaults, **param_group}
        wrong = [
            f"{name} must be {allowed}, not {group[name]}"
            for name, holds, allowed in (
                ("lr", group["lr"] >= 0, "0 or more"),
                ("momentum", 0 <= group["momentum"] < 1, "in [0, 1)"),
                ("rule", group["rule"] in RULES, " or ".join(RULES)),
                ("limit", group["limit"] > 0, "a squared length above 0, or infinity for no bound"),
                ("weight_decay", group["weight_decay"] >= 0, "0 or more"),
            )
            if not holds
        ]
        if wrong:
            raise ValueError("; ".join(wrong))
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyrefly: ignore[bad-override]
        """One update of every parameter that has a gradient; returns what the closure returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        due = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        if any(p.grad.layout != torch.strided for _, p in due):  # said before anything has moved
            raise ValueError("DropoutSGD takes dense gradients; make the nn.Embedding with sparse=False")
        for group, parameter in due:
            self._update_(group, parameter, parameter.grad)
        return loss

    def _update_(self, group: dict[str, Any], parameter: Tensor, gradient: Tensor) -> None:
        if group["maximize"]:
            gradient = -gradient
        if group["weight_decay"]:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        state = self.state[parameter]
        if not state:
            state["velocity"] = torch.zeros_like(parameter)
        step = step_size(group["rule"], group["lr"], group["momentum"])
        momentum_step_(parameter, state["velocity"], gradient, step, group["momentum"])
        if group["limit"] < math.inf and parameter.dim() > 1:
            incoming = parameter.flatten(1)
            constrain_incoming_(incoming, group["limit"])
            if incoming.data_ptr() != parameter.data_ptr():  # a copy, for weights in another memory format
                parameter.copy_(incoming.view_as(parameter))


def param_groups(module: nn.Module, *, limit: float, output: nn.Module | None = None) -> list[dict[str, Any]]:
    """Two parameter groups: weights of hidden layers, bounded; and the rest: biases, the output layer, other parts.

    `output` is the output layer; if not given, the last linear, convolutional or locally connected layer that the
    module lists.
    """
    layers = [part for part in module.modules() if isinstance(part, LAYERS)]
    if output is not None and not any(part is output for part in module.modules()):
        raise ValueError(f"output must be a layer of the module itself, such as module.fc, not {output!r}")
    output = output or (layers[-1] if layers else None)
    free = set(output.parameters()) if output is not None else set()  # also where another layer shares its weight
    weights = {layer.weight for layer in layers if isinstance(layer.weight, nn.Parameter)} - free
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if limit < math.inf and not weights:
        warnings.warn(
            "no weight of this module is bounded: hidden layers are linear, convolutional or locally connected ones "
            "below the output layer; name another with output=",
            UserWarning,
            stacklevel=2,
        )
    groups = [
        {"params": [parameter for parameter in learned if parameter in weights], "limit": limit},
        {"params": [parameter for parameter in learned if parameter not in weights], "limit": math.inf},
    ]
    return [group for group in groups if group["params"]]
