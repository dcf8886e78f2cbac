"""DropoutSGD, against a numpy loop, torch's own SGD, and interrupted training."""

import copy
import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from meannet.core import schedule
from meannet.nn import Dropout, LocallyConnected2d, RandomGroupConv2d
from meannet.optim import DropoutSGD, param_groups

INPUTS = torch.rand(20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randint(0, 3, (20,), generator=torch.Generator().manual_seed(1))


def a_net(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(6, 8), nn.Sigmoid(), Dropout(0.5, seed=3), nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 3)]
    return nn.Sequential(*layers).double()


def learn(net, optimizer, updates, after=lambda: None):
    for _ in range(updates):
        optimizer.zero_grad()
        F.cross_entropy(net(INPUTS), TARGETS).backward()
        optimizer.step()
        after()


def updates_by_loop(start, gradients, lr, momentum, rule, limit, decay, sign):
    """Row by row: the incoming vector of a unit is everything but the first axis."""
    weight, velocity = start.copy(), np.zeros_like(start)
    for gradient in gradients:
        step = lr * (1 - momentum) if rule == "a1" else lr
        velocity = momentum * velocity - step * (sign * gradient + decay * weight)
        weight = weight + velocity
        if weight.ndim > 1:
            for unit in range(len(weight)):
                squared = (weight[unit] ** 2).sum()
                if squared > limit:
                    weight[unit] *= math.sqrt(limit / squared)
    return weight, velocity


@pytest.mark.parametrize("rule", ["a1", "plain"])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("momentum", "decay", "limit"), [(0.0, 0.0, math.inf), (0.9, 0.0, 1.5), (0.5, 0.1, 2.0)])
@pytest.mark.parametrize("shape", [(4, 5), (3, 2, 2, 3), (6,)])
def test_updates_are_a_numpy_loop(rule, maximize, momentum, decay, limit, shape):
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=shape), random.normal(size=(6, *shape))
    parameter = nn.Parameter(torch.tensor(start))
    optimizer = DropoutSGD(
        [parameter], lr=0.3, momentum=momentum, rule=rule, limit=limit, weight_decay=decay, maximize=maximize
    )
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    weight, velocity = updates_by_loop(start, gradients, 0.3, momentum, rule, limit, decay, -1 if maximize else 1)
    np.testing.assert_allclose(parameter.detach(), weight, rtol=1e-12)
    np.testing.assert_allclose(optimizer.state[parameter]["velocity"], velocity, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("rule", "factor"), [("plain", 1.0), ("a1", 0.2)])
def test_without_a_bound_it_is_torchs_sgd_with_the_learning_rate_of_the_rule(rule, factor):
    ours, theirs = a_net(), a_net()
    learn(ours, DropoutSGD(ours.parameters(), lr=0.5, momentum=0.8, rule=rule, weight_decay=0.01), 20)
    learn(theirs, torch.optim.SGD(theirs.parameters(), lr=0.5 * factor, momentum=0.8, weight_decay=0.01), 20)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-11)


def test_the_bound_holds_for_the_groups_that_have_one_after_every_update():
    net = a_net()
    optimizer = DropoutSGD(param_groups(net, limit=0.2), lr=5.0, momentum=0.5)
    lengths = lambda: [net[k].weight.detach().square().sum(1).max().item() for k in (0, 3, 5)]  # noqa: E731
    seen = []
    learn(net, optimizer, 10, lambda: seen.append(lengths()))
    assert max(max(first, second) for first, second, _ in seen) <= 0.2 * (1 + 1e-12)
    assert seen[-1][0] > 0.1999 and seen[-1][2] > 0.2
    assert max(net[k].bias.detach().square().sum().item() for k in (0, 3)) > 0.2


def test_the_velocity_is_not_projected_and_vectors_within_the_bound_are_untouched():
    free, bound = (nn.Parameter(torch.tensor([[3.0, 4.0], [0.1, 0.2]], dtype=torch.float64)) for _ in range(2))
    optimizers = [DropoutSGD([free], 0.1, 0.9), DropoutSGD([bound], 0.1, 0.9, limit=1.0)]
    for parameter, optimizer in zip((free, bound), optimizers, strict=True):
        parameter.grad = torch.full((2, 2), -2.0, dtype=torch.float64)
        optimizer.step()
    velocities = [o.state[p]["velocity"] for o, p in zip(optimizers, (free, bound), strict=True)]
    assert velocities[0].equal(velocities[1])
    assert bound[1].equal(free[1]) and bound[0].detach().norm().item() == pytest.approx(1.0)


def test_weights_in_another_memory_format_are_bounded_alike():
    plain = nn.Conv2d(5, 4, 3, dtype=torch.float64)
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    for layer in (plain, last):
        layer.weight.grad = torch.ones_like(layer.weight)
        DropoutSGD([layer.weight], 0.5, limit=0.7).step()
    assert last.weight.is_contiguous(memory_format=torch.channels_last) and not last.weight.is_contiguous()
    np.testing.assert_allclose(last.weight.detach(), plain.weight.detach(), rtol=1e-12)
    np.testing.assert_allclose(plain.weight.detach().square().sum((1, 2, 3)), 0.7, rtol=1e-12)


def test_schedules_are_torchs_schedulers_and_momentum_set_in_the_group():
    """A.1's: the learning rate times 0.9 after each epoch, momentum rising over the first three."""
    ramp = [schedule.momentum(epoch, start=0.5, end=0.9, ramp=3) for epoch in range(5)]
    parameter = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))
    optimizer = DropoutSGD([parameter], lr=2.0, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    weight = velocity = 0.0
    for epoch in range(5):
        optimizer.param_groups[0]["momentum"] = ramp[epoch]
        for _ in range(2):
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
            velocity = ramp[epoch] * velocity - (1 - ramp[epoch]) * 2.0 * 0.9**epoch
            weight += velocity
        scheduler.step()
    np.testing.assert_allclose(parameter.detach(), np.full((2, 2), weight), rtol=1e-12)


def test_a_scheduler_that_cycles_momentum_finds_it():
    optimizer = DropoutSGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    found = []
    for _ in range(9):
        optimizer.step()
        scheduler.step()
        found.append(optimizer.param_groups[0]["momentum"])
    assert min(found) == pytest.approx(0.85) and max(found) > 0.94


def test_saved_and_resumed_training_ends_in_the_same_bits():
    def begun(seed):
        net = a_net(seed)
        optimizer = DropoutSGD(param_groups(net, limit=1.0), lr=1.0, momentum=0.9)
        return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

    unbroken = begun(0)
    learn(unbroken[0], unbroken[1], 12, unbroken[2].step)
    first = begun(0)
    learn(first[0], first[1], 5, first[2].step)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in first], file)
    file.seek(0)
    second = begun(1)
    for part, state in zip(second, torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    learn(second[0], second[1], 7, second[2].step)
    assert all(a.equal(b) for a, b in zip(second[0].parameters(), unbroken[0].parameters(), strict=True))
    assert second[1].param_groups[0]["lr"] == unbroken[1].param_groups[0]["lr"]


def test_a_closure_is_called_with_gradients_and_its_loss_returned():
    net = a_net()
    optimizer = DropoutSGD(net.parameters(), lr=0.1)
    before = net[0].weight.clone()

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(INPUTS), TARGETS)
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() > 0
    assert not net[0].weight.equal(before)


def test_parameters_without_a_gradient_stay_and_sparse_gradients_are_refused_before_anything_moves():
    net, embedding = a_net(), nn.Embedding(5, 2, sparse=True)
    optimizer = DropoutSGD([*net.parameters(), embedding.weight], lr=0.1)
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before = [parameter.clone() for parameter in net.parameters()]
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse=False"):
        optimizer.step()
    assert all(a.equal(b) for a, b in zip(net.parameters(), before, strict=True))
    embedding.zero_grad()
    optimizer.step()
    moved = [not a.equal(b) for a, b in zip(net.parameters(), before, strict=True)]
    assert moved == [True] + [False] * 5


@pytest.mark.parametrize(("settings", "words"), [
    ({"lr": -1.0}, "lr must be 0 or more"),
    ({"momentum": 1.0}, r"momentum must be in \[0, 1\), not 1.0"),
    ({"rule": "nesterov"}, "rule must be a1 or plain"),
    ({"limit": 0.0}, "limit must be a squared length above 0"),
    ({"weight_decay": -0.1}, "weight_decay must be 0 or more"),
])  # fmt: skip
def test_wrong_settings_are_refused_for_all_and_for_one_group(settings, words):
    parameter = nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(ValueError, match=words):
        DropoutSGD([parameter], **{"lr": 1.0, **settings})
    with pytest.raises(ValueError, match=words):
        DropoutSGD([{"params": [parameter], **settings}], lr=1.0)


class Branched(nn.Module):
    """The output layer is not the last one listed, and one weight is shared."""

    def __init__(self):
        super().__init__()
        self.top = nn.Linear(8, 3)
        self.conv = RandomGroupConv2d(4, 4, 3, groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.local = LocallyConnected2d(4, 2, 3, 2)
        self.embedding = nn.Embedding(3, 8)
        self.embedding.weight = self.top.weight
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_groups_bound_the_weights_of_hidden_layers_alone():
    net = Branched()
    hidden, rest = param_groups(net, limit=9.0, output=net.top)
    assert hidden["limit"] == 9.0 and rest["limit"] == math.inf
    assert {id(p) for p in hidden["params"]} == {id(net.conv.weight), id(net.local.weight)}
    every = {id(p) for p in net.parameters() if p.requires_grad}
    assert {id(p) for p in rest["params"]} == every - {id(p) for p in hidden["params"]}
    plain = a_net()
    hidden, rest = param_groups(plain, limit=9.0)
    assert [id(p) for p in hidden["params"]] == [id(plain[0].weight), id(plain[3].weight)] and len(rest["params"]) == 4
    with pytest.warns(UserWarning, match="no weight of this module is bounded"):
        assert [len(group["params"]) for group in param_groups(nn.BatchNorm1d(3), limit=1.0)] == [2]


def test_half_precision_scaling_of_losses_works_with_it():
    net = a_net().float()
    optimizer, scaler = DropoutSGD(param_groups(net, limit=1.0), lr=0.1), torch.amp.GradScaler("cpu")
    before = net[0].weight.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(INPUTS.float()), TARGETS)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not net[0].weight.equal(before)


def test_an_output_that_is_no_layer_of_the_module_is_refused():
    for wrong in ("fc", nn.Linear(2, 2)):
        with pytest.raises(ValueError, match="output must be a layer of the module itself"):
            param_groups(a_net(), limit=1.0, output=wrong)


def test_a_bound_that_no_weight_is_under_is_warned_of():
    net = nn.ModuleList([nn.LSTM(3, 4), nn.Linear(4, 2)])
    with pytest.warns(UserWarning, match="no weight of this module is bounded"):
        (group,) = param_groups(net, limit=15.0)
    assert group["limit"] == math.inf


def test_hidden_layers_that_do_not_learn_need_no_bound_and_no_warning():
    net = a_net()
    for part in (net[0], net[3]):
        part.requires_grad_(False)
    (group,) = param_groups(net, limit=15.0)  # warnings are errors here
    assert group["limit"] == math.inf and group["params"] == list(net[-1].parameters())
