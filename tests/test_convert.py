"""The two conventions train alike when every rule is followed, and not when any one is left out."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from meannet import convert, mean_network
from meannet.nn import Dropout, LocallyConnected2d, TwoInputConv2d
from meannet.optim import DropoutSGD, param_groups

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.rand(30, 1, 4, 4, generator=GENERATOR, dtype=torch.float64)
TARGETS = (INPUTS.flatten(1) @ torch.randn(16, 3, generator=GENERATOR, dtype=torch.float64)).argmax(1)


def a_net(convention="paper"):
    """Dense, local and convolutional layers, fed at three rates."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            Dropout(0.2, seed=1, layer=0, convention=convention),
            nn.Conv2d(1, 3, 3, padding=1),
            nn.ReLU(),
            Dropout(0.3, seed=1, layer=1, convention=convention),
            nn.MaxPool2d(2),
            LocallyConnected2d(3, 2, 2, 2, padding=1),
            nn.Sequential(nn.Tanh(), nn.Flatten(), Dropout(0.5, seed=1, layer=2, convention=convention)),
            nn.Linear(18, 6),
            nn.Sigmoid(),
            nn.Linear(6, 3),
        ).double()
    for weight in (net[1].weight, net[5].weight, net[7].weight):
        weight.data.mul_(2)
    return net


def an_optimizer(net):
    groups = param_groups(net, limit=1.0)
    groups[0]["weight_decay"] = 0.003
    return DropoutSGD(groups, lr=1.5, momentum=0.7, weight_decay=0.001)


def learn(net, optimizer, updates=15):
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(updates):
        optimizer.zero_grad()
        F.cross_entropy(net(INPUTS), TARGETS).backward()
        optimizer.step()
        scheduler.step()
    return net


def apart(one, other):
    """Largest difference of the two nets' outputs, relative to their size."""
    a, b = (mean_network(net)(INPUTS).detach() for net in (one, other))
    return ((a - b).abs().max() / a.abs().max()).item()


def test_training_in_both_conventions_ends_in_the_same_net():
    paper = a_net()
    optimizer = an_optimizer(paper)
    inverted, its_optimizer = convert.to_inverted(paper, optimizer)
    assert apart(inverted, paper) < 1e-14
    start = copy.deepcopy(paper)
    learn(paper, optimizer)
    learn(inverted, its_optimizer)
    assert apart(paper, start) > 0.1
    for k in (1, 5, 7):  # the bound was at work
        assert (start[k].weight.detach().flatten(1).square().sum(1) > 1.01).any()
        assert paper[k].weight.detach().flatten(1).square().sum(1).max() < 1 + 1e-12
    assert apart(paper, inverted) < 1e-11
    for name, keep in {"1": 0.8, "5": 0.7, "7": 0.5, "9": 1.0}.items():
        ours, theirs = paper.get_submodule(name), inverted.get_submodule(name)
        np.testing.assert_allclose(theirs.weight.detach(), keep * ours.weight.detach(), rtol=1e-10)
        np.testing.assert_allclose(theirs.bias.detach(), ours.bias.detach(), rtol=1e-10)


def test_the_rules_are_those_stated():
    net = a_net()
    inverted, optimizer = convert.to_inverted(net, an_optimizer(net))
    assert {d.convention for d in inverted.modules() if isinstance(d, Dropout)} == {"inverted"}
    found = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for name, keep in {"1": 0.8, "5": 0.7, "7": 0.5}.items():
        group = found[id(inverted.get_submodule(name).weight)]
        assert group["lr"] == pytest.approx(1.5 * keep**2) and group["limit"] == pytest.approx(1.0 * keep**2)
        assert group["weight_decay"] == pytest.approx(0.003 / keep**2) and group["momentum"] == 0.7
    for parameter in [inverted[9].weight, *(p for n, p in inverted.named_parameters() if n.endswith("bias"))]:
        group = found[id(parameter)]
        assert (group["lr"], group["limit"], group["weight_decay"]) == (1.5, math.inf, 0.001)


@pytest.mark.parametrize("left_out", ["weights", "lr", "limit", "weight_decay", "biases"])
def test_leaving_out_any_one_rule_ends_in_another_net(left_out):
    paper = a_net()
    optimizer = an_optimizer(paper)
    inverted, its_optimizer = convert.to_inverted(paper, optimizer)
    if left_out == "weights":
        with torch.no_grad():
            for one, other in zip(inverted.parameters(), paper.parameters(), strict=True):
                one.copy_(other)
    else:
        bound = [group for group in its_optimizer.param_groups if group["limit"] < math.inf]
        free = [group for group in its_optimizer.param_groups if group["limit"] == math.inf]
        for group in free if left_out == "biases" else bound:
            if left_out == "biases":
                group["lr"] *= 0.25
            else:
                group[left_out] = optimizer.param_groups[0][left_out]
    learn(paper, optimizer)
    learn(inverted, its_optimizer)
    assert apart(paper, inverted) > 1e-4


def test_there_and_back_is_where_one_started():
    net = a_net()
    optimizer = an_optimizer(net)
    learn(net, optimizer, 3)  # velocities under way
    inverted = convert.to_inverted(net, optimizer)
    back, its_optimizer = convert.to_paper(*inverted)
    assert apart(back, net) < 1e-14
    for step in range(3):
        learn(net, optimizer, 1)
        learn(inverted[0], inverted[1], 1)
        learn(back, its_optimizer, 1)
        assert max(apart(net, inverted[0]), apart(net, back)) < 1e-12, step


def test_torchs_dropout_becomes_the_papers_and_is_left_alone_by_the_other_way():
    net = nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2)).double().eval()
    x = torch.rand(6, 4, dtype=torch.float64)
    made, _ = convert.to_paper(net, seed=3)
    assert isinstance(made[0], Dropout) and (made[3].seed.item(), made[3].layer.item()) == (3, 1)
    assert not made[0].training and made.train()[0].training
    np.testing.assert_allclose(mean_network(made)(x).detach(), net(x).detach(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(made[1].weight.detach(), net[1].weight.detach() / 0.8, rtol=1e-15)
    masks = [made[0].mask(x), made[3].mask(torch.ones(6, 5))]
    thinned = made(x)
    hidden = F.relu(net[1](x * masks[0] / 0.8)) * masks[1] / 0.5  # what nn.Dropout would do with these masks
    np.testing.assert_allclose(thinned.detach(), net[4](hidden).detach(), rtol=1e-12, atol=1e-14)
    same, optimizer = convert.to_inverted(net)
    assert optimizer is None and isinstance(same[0], nn.Dropout) and same[1].weight.equal(net[1].weight)


def test_the_module_and_optimizer_given_are_left_as_they_were():
    net = a_net()
    optimizer = an_optimizer(net)
    learn(net, optimizer, 1)
    state, settings = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
    convert.to_inverted(net, optimizer)
    assert all(tensor.equal(state[name]) for name, tensor in net.state_dict().items())
    after = optimizer.state_dict()
    assert after["param_groups"] == settings["param_groups"]
    assert all(after["state"][k]["velocity"].equal(v["velocity"]) for k, v in settings["state"].items())


def test_rates_of_each_units_own_convert_the_net_but_not_the_optimizer():
    rates = torch.linspace(0, 0.9, 5, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), Dropout(rates, seed=0), nn.Linear(5, 2)).double()
    x = torch.rand(6, 4, dtype=torch.float64)
    made, _ = convert.to_inverted(net)
    np.testing.assert_allclose(made(x).detach(), net(x).detach(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(made.eval()(x).detach(), net.eval()(x).detach(), rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="weighted"):
        convert.to_inverted(net, DropoutSGD(net.parameters(), lr=1.0, limit=1.0))
    channels = nn.Sequential(Dropout(rates[:1, None, None]), nn.Conv2d(1, 2, 3))
    with pytest.raises(ValueError, match="'1' must be linear"):
        convert.to_inverted(channels)


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.omit, self.left, self.right = (
            nn.Linear(4, 5),
            Dropout(0.4, seed=0),
            nn.Linear(5, 2),
            nn.Linear(5, 2),
        )

    def forward(self, x):
        hidden = self.omit(self.first(x).tanh())
        return self.left(hidden) + self.right(hidden)


def test_any_module_converts_when_told_what_feeds_what():
    net, x = Own().double(), torch.rand(6, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="`feeds`"):
        convert.to_inverted(net)
    made, _ = convert.to_inverted(net, feeds={"left": "omit", "right": "omit"})
    np.testing.assert_allclose(made(x).detach(), net(x).detach(), rtol=1e-12, atol=1e-14)


def tied():
    net = nn.Sequential(Dropout(), nn.Linear(3, 3), Dropout(), nn.Linear(3, 3))
    net[3].weight = net[1].weight
    return net


@pytest.mark.parametrize(("make", "feeds", "words"), [
    (lambda: nn.Sequential(Dropout(), nn.Tanh(), nn.Linear(2, 2)), None, "Tanh '1' stands between dropout '0'"),
    (lambda: nn.Sequential(Dropout(), Dropout(), nn.Linear(2, 2)), None, "feed the same layer"),
    (lambda: nn.Sequential(nn.Linear(2, 2), Dropout()), None, "feeds no layer; outputs"),
    (lambda: nn.Sequential(nn.Dropout2d(), nn.Conv2d(2, 2, 1)), None, "Dropout2d '0' feeds no layer that is named"),
    (lambda: nn.Sequential(nn.Dropout(1.0), nn.Linear(2, 2)), None, "omits everything"),
    (lambda: nn.Sequential(nn.Linear(2, 2), nn.Sequential(Own(), nn.ReLU())), None, "only nn.Sequential says"),
    (lambda: nn.Sequential(Dropout(torch.zeros(4)), nn.MaxPool1d(2), nn.Linear(2, 2)), None, "MaxPool1d '1' stands"),
    (tied, None, "shared"),
    (Own, {"left": "omits"}, "no part named 'omits'"),
    (Own, {"omit": "left"}, "must feed a linear"),
    (lambda: nn.ModuleDict({"omit": Dropout(), "two": TwoInputConv2d(4, 8, 3, 2)}), {"two": "omit"},
     "TwoInputConv2d 'two' cannot be converted"),
    (Own, {}, "Dropout 'omit' feeds no layer"),
])  # fmt: skip
def test_what_cannot_be_converted_is_refused_by_name(make, feeds, words):
    with pytest.raises(ValueError, match=words):
        convert.to_paper(make(), feeds=feeds) if words == "omits everything" else convert.to_inverted(
            make(), feeds=feeds
        )


def test_an_optimizer_of_another_net_is_refused():
    net = a_net()
    with pytest.raises(ValueError, match="are not the module's"):
        convert.to_inverted(net, an_optimizer(a_net()))
