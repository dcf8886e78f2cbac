"""Updates of image nets (F.6): momentum on the average gradient, weight decay, and the norm bound on filters.

This is the plain version, one net after another, on any device; the truth that the fast one is tested against.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meannet.core import metrics, philox
from meannet.core.maxnorm import constrain_incoming_
from meannet.nn.convfleet import ConvFleet
from meannet.nn.convnets import ConvNet
from meannet.train import Tally

Forward = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, list[Tensor]]]
Stepped = Callable[[list[Tensor], list[Tensor], list[Tensor], list[Tensor], Tensor, Tensor], None]


class Watched(nn.Module):
    """A net and its objective: mean loss, number of errors, and what the hidden layers gave."""

    def __init__(self, net: ConvNet):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        *hidden, outputs = self.net.activities(x)
        outputs = outputs.float()
        wrong = metrics.errors(outputs.detach(), targets)
        return F.cross_entropy(outputs, targets), wrong, [activity.detach() for activity in hidden]


def stepped_(
    parameters: list[Tensor],
    velocities: list[Tensor],
    gradients: list[Tensor],
    decays: list[Tensor],
    step: Tensor,
    momentum: Tensor,
) -> None:
    """velocity := momentum * velocity - step * (gradient + decay * weight), weight += velocity.

    Decays are tensors too: a compiled version, which is one kernel for all layers, then serves nets with other ones.
    """
    change = torch._foreach_mul(parameters, decays)
    torch._foreach_add_(change, gradients)
    torch._foreach_mul_(change, step)
    torch._foreach_mul_(velocities, momentum)
    torch._foreach_sub_(velocities, change)
    torch._foreach_add_(parameters, velocities)


class Learner:
    """One net of a fleet: its parameters and velocities, and what its updates of an epoch add up to."""

    def __init__(self, fleet: ConvFleet, net: int, limit: float):
        self.net = fleet.nets[net]
        layers, device = self.net.weight_layers(), fleet.device
        self.parameters = [layer.weight for layer in layers] + [layer.bias for layer in layers]
        self.velocities = fleet.velocities(net)
        conv, top = fleet.decays[net]
        decays = [conv if layer.shares_filters else top for layer in layers] + [0.0] * len(layers)  # none of biases
        self.decays = [torch.tensor(decay, device=device) for decay in decays]
        self.bounded = [weight[net] for weight in fleet.weights[:-1]] if limit < math.inf else []
        self.limit = limit
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)
        self.active = torch.zeros(len(layers) - 1, dtype=torch.bool, device=device)
        self.moved = torch.zeros((), dtype=torch.bool, device=device)

    def begin(self, update: int) -> None:
        """Before the first update of an epoch, which is this one of the run."""
        self.net.train()
        for dropout in self.net.dropouts():
            dropout.updates.fill_(update)
        for figure in (self.loss, self.wrong, self.active, self.moved):
            figure.zero_()

    def changed(self) -> list[Tensor]:
        """All that an update writes to."""
        parameters = [parameter.detach() for parameter in self.parameters]
        counters = [dropout.updates for dropout in self.net.dropouts()]
        return [*parameters, *self.velocities, *counters, self.loss, self.wrong, self.active, self.moved]

    def update_(
        self, forward: Forward, x: Tensor, targets: Tensor, step: Tensor, momentum: Tensor, stepped: Stepped = stepped_
    ) -> None:
        """One update; nothing in it waits for the device or depends on a value that is there."""
        with torch.enable_grad():
            loss, wrong, hidden = forward(x, targets)
            gradients = list(torch.autograd.grad(loss, self.parameters))
        with torch.no_grad():
            self.tally_(loss.detach(), wrong, hidden, gradients[: len(hidden)], len(targets))
            self.step_(gradients, step, momentum, stepped)

    def tally_(self, loss: Tensor, wrong: Tensor, hidden: list[Tensor], gradients: list[Tensor], cases: int) -> None:
        """Add an update to the figures of its epoch: which hidden layers gave anything, and whether weights moved.

        Not compiled, since all layers at a time is what keeps kernels few.
        """
        self.loss.add_(loss, alpha=cases)
        self.wrong.add_(wrong)
        self.active.logical_or_(torch.stack(torch._foreach_norm(hidden, math.inf)))
        self.moved.logical_or_(torch.stack(torch._foreach_norm(gradients, math.inf)).any())

    def step_(self, gradients: list[Tensor], step: Tensor, momentum: Tensor, stepped: Stepped = stepped_) -> None:
        """The step, then the bound, which cannot be compiled with it: bounded weights are views of parameters."""
        stepped(self.parameters, self.velocities, gradients, self.decays, step, momentum)
        for weight in self.bounded:
            constrain_incoming_(weight, self.limit)


class Plain:
    """Runs epochs of a fleet of image nets; inputs are images of bytes, all of them on the fleet's device."""

    name = "plain"

    def __init__(self, fleet: ConvFleet, inputs: Tensor, targets: Tensor, batch: int, limit: Sequence[float]):
        low = fleet.device.type == "cuda" and torch.backends.cudnn.allow_tf32  # which is torch's default
        self.precision = "tf32 convolutions, float32 weights" if low else "float32"
        self.fleet, self.inputs, self.targets, self.batch = fleet, inputs, targets, batch
        self.learners = [Learner(fleet, net, bound) for net, bound in enumerate(limit)]
        self.forwards = [Watched(learner.net) for learner in self.learners]

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        fleet, cases = self.fleet, len(self.inputs)
        order = philox.order(fleet.seeds, epoch, cases)  # (nets, cases)
        steps = torch.tensor(list(step), device=fleet.device)
        pace = torch.tensor(momentum, device=fleet.device)
        for learner in self.learners:
            learner.begin(epoch * -(-cases // self.batch))
        for chosen in order.split(self.batch, dim=1):
            if stop():
                return None
            for net, learner in enumerate(self.learners):
                x = fleet.centred(self.inputs[chosen[net]])
                learner.update_(self.forwards[net], x, self.targets[chosen[net]], steps[net], pace)
        return tally(self.learners)


def tally(learners: Sequence[Learner]) -> Tally:
    return Tally(
        loss=torch.stack([learner.loss for learner in learners]),
        errors=torch.stack([learner.wrong for learner in learners]),
        active=torch.stack([learner.active for learner in learners]),
        moved=torch.stack([learner.moved for learner in learners]),
    )
