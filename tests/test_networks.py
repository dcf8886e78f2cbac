"""Mean and sampled networks of modules that people bring, against enumeration of all masks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import meannet
from meannet import mean_network, sample_networks
from meannet.core.mean import all_masks, geometric_mean, mask_probabilities
from meannet.nn import Dropout

CASES = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def a_net(dropout, hidden=6):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, hidden), nn.Sigmoid(), dropout, nn.Linear(hidden, 3)).double()


def state_of(module):
    """Everything that must not change."""
    modes = [part.training for part in module.modules()]
    tensors = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    return modes, tensors, torch.get_rng_state()


def assert_unchanged(module, before):
    modes, tensors, random = before
    assert [part.training for part in module.modules()] == modes
    assert all(tensor.equal(tensors[name]) for name, tensor in module.state_dict().items())
    assert torch.get_rng_state().equal(random)


@pytest.mark.parametrize("rates", [torch.tensor(0.5), torch.tensor([0.1, 0.2, 0.5, 0.7, 0.9, 0.0])])
def test_the_mean_network_is_the_geometric_mean_of_all_thinned_networks(rates):
    """The theorem for one hidden layer and a softmax, here over all 64 masks of a module."""
    net = a_net(Dropout(rates, seed=0))
    hidden = net[1](net[0](CASES))
    masks = all_masks(6)
    logs = torch.stack([net[3](hidden * mask).log_softmax(-1) for mask in masks])
    expected = geometric_mean(logs, mask_probabilities(masks, rates.double().expand(6)))
    np.testing.assert_allclose(mean_network(net)(CASES).log_softmax(-1).detach(), expected.detach(), rtol=1e-12)


def test_the_mean_network_of_torchs_dropout_is_the_geometric_mean_of_its_scaled_thinned_networks():
    net = a_net(nn.Dropout(0.3))
    hidden, masks = net[1](net[0](CASES)), all_masks(6)
    logs = torch.stack([net[3](hidden * mask / 0.7).log_softmax(-1) for mask in masks])
    expected = geometric_mean(logs, mask_probabilities(masks, torch.full((6,), 0.3, dtype=torch.float64)))
    np.testing.assert_allclose(mean_network(net)(CASES).log_softmax(-1).detach(), expected.detach(), rtol=1e-12)


@pytest.mark.parametrize(
    "dropout",
    [Dropout(0.4, seed=1), Dropout(0.4, seed=1, convention="inverted"), nn.Dropout(0.4), nn.AlphaDropout(0.4)],
)
def test_a_mean_network_is_a_copy_that_stays_so_in_any_mode_and_leaves_the_module_alone(dropout):
    net = a_net(dropout)
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before = state_of(net)
    mean = mean_network(net)
    assert_unchanged(net, before)
    assert not any(part.training for part in mean.modules()) and mean[0].weight.grad is None
    expected = copy.deepcopy(net).eval()(CASES)
    np.testing.assert_allclose(mean(CASES).detach(), expected.detach(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mean.train()(CASES).detach(), expected.detach(), rtol=1e-12, atol=1e-14)
    assert_unchanged(net, before)
    with torch.no_grad():
        mean[0].weight.zero_()
    assert net[0].weight.any()


def test_a_dropout_used_twice_and_a_dropout_alone_become_scales():
    shared = Dropout(0.25, seed=0)
    net = nn.Sequential(shared, nn.ReLU(), shared)
    assert mean_network(net)(torch.ones(1, 2)).tolist() == [[0.5625, 0.5625]]
    assert mean_network(shared).train()(torch.ones(1, 2)).tolist() == [[0.75, 0.75]]


def test_a_mean_network_can_be_exported():
    mean = mean_network(a_net(Dropout(0.5, seed=0)))
    program = torch.export.export(mean, (CASES,)).module()
    np.testing.assert_allclose(program(CASES).detach(), mean(CASES).detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rates", [torch.tensor(0.5), torch.tensor([0.1, 0.2, 0.5, 0.7])])
def test_sampled_networks_are_thinned_networks_drawn_with_their_probabilities(rates):
    net = a_net(Dropout(rates, seed=0), hidden=4)
    found = sample_networks(net, CASES[:1].expand(200, -1), 20).flatten(0, 1)  # masks are each case's own
    hidden, masks = net[1](net[0](CASES[:1])), all_masks(4)
    every = torch.cat([net[3](hidden * mask) for mask in masks])
    apart, which = (found[:, None] - every).abs().amax(2).min(1)
    assert apart.max() < 1e-14
    chance = mask_probabilities(masks, rates.double().expand(4))
    often = torch.bincount(which, minlength=16) / 4000
    assert ((often - chance).abs() <= 4.5 * (chance * (1 - chance) / 4000).sqrt()).all()


DROPOUTS = [
    lambda: Dropout(0.5), lambda: nn.Dropout(0.5), lambda: nn.AlphaDropout(0.5), lambda: nn.FeatureAlphaDropout(0.5),
]  # fmt: skip


@pytest.mark.parametrize("make", DROPOUTS)
@pytest.mark.parametrize("training", [True, False])
def test_sampling_changes_neither_modes_nor_buffers_nor_random_state(make, training):
    net = nn.Sequential(a_net(make()), nn.BatchNorm1d(3).double().train(not training)).train(training)
    net[0][1].train(not training)  # a mixture of modes comes back as it was
    before = state_of(net)
    first = sample_networks(net, CASES, 3, seed=4)
    assert_unchanged(net, before)
    assert first.shape == (3, 5, 3) and not first.requires_grad
    assert not first[0].equal(first[1])
    torch.rand(3)
    assert sample_networks(net, CASES, 5, seed=4)[:3].equal(first)
    assert not sample_networks(net, CASES, 3, seed=5).equal(first)


def test_sampling_does_not_disturb_training():
    def outputs(sampled):
        net = a_net(Dropout(0.5, seed=1))
        found = []
        for _ in range(3):
            found.append(net(CASES))
            if sampled:
                sample_networks(net, CASES, 2)
        return torch.stack(found)

    assert outputs(True).equal(outputs(False))


def test_sampled_masks_are_not_those_of_training_nor_another_layers():
    net = nn.Sequential(Dropout(0.5, seed=0), nn.Identity(), Dropout(0.5, seed=0))
    x = torch.ones(40, 50)
    trained = copy.deepcopy(net[0])(x)
    alone = sample_networks(net[0], x, 2, seed=0)
    both = sample_networks(net, x, 2, seed=0)
    assert abs(np.corrcoef(trained.flatten(), alone[0].flatten())[0, 1]) < 4.5 / 44
    assert abs(np.corrcoef(alone[0].flatten(), alone[1].flatten())[0, 1]) < 4.5 / 44
    assert both.mean().item() == pytest.approx(0.25, abs=0.03)  # equal masks would keep half


class Raises(nn.Module):
    def forward(self, x):
        raise RuntimeError("on purpose")


def test_everything_comes_back_when_the_module_raises():
    net = nn.Sequential(a_net(Dropout(0.5)), nn.Dropout(0.5), Raises()).train()
    net[0].eval()
    before, purpose = state_of(net), net[0][2].purpose
    with pytest.raises(RuntimeError, match="on purpose"):
        sample_networks(net, CASES, 2)
    assert_unchanged(net, before)
    assert net[0][2].purpose == purpose


@pytest.mark.parametrize(("make", "shape"), [
    (lambda: nn.Dropout1d(0.5), (4, 3, 5)),
    (lambda: nn.Dropout2d(0.5), (4, 3, 5, 5)),
    (lambda: nn.Dropout3d(0.5), (2, 3, 2, 2, 2)),
    (lambda: nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True), (2, 4, 6)),
    (lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.5, batch_first=True), (2, 4, 6)),
    (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.5, batch_first=True), 2), (2, 4, 6)),
    (lambda: nn.LSTM(6, 5, num_layers=2, dropout=0.5, batch_first=True), (2, 4, 6)),
])  # fmt: skip
def test_torchs_parts_that_omit_on_their_own_are_sampled_and_have_mean_networks_in_any_mode(make, shape):
    class First(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def forward(self, x):
            found = self.part(x, x, x) if isinstance(self.part, nn.MultiheadAttention) else self.part(x)
            return found[0] if isinstance(found, tuple) else found

    net, x = First(make()).eval(), torch.rand(shape) + 0.1
    before = state_of(net)
    found = sample_networks(net, x, 3)
    assert_unchanged(net, before)
    assert not found[0].equal(found[1]) and not found[1].equal(found[2])
    mean, expected = mean_network(net), net(x).detach()
    np.testing.assert_allclose(mean(x).detach(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean.train()(x).detach(), expected, rtol=1e-5, atol=1e-6)
    assert_unchanged(net, before)


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6).double()

    def forward(self, x, scale=1.0):
        return nn.functional.dropout(self.norm(x), 0.5, self.training) * scale


def test_classes_that_call_the_function_are_sampled_when_named():
    net = Functional()
    before = state_of(net)
    found = sample_networks(net, CASES, 2, also=(Functional,))
    assert not found[0].equal(found[1])
    assert_unchanged(net, before)  # the batch normalisation inside stayed in evaluation mode
    with pytest.raises(ValueError, match="`also`"):
        sample_networks(net, CASES, 2)


def test_inputs_may_be_several_or_named():
    net = Functional()
    one = sample_networks(net, CASES, 2, also=(Functional,))
    for several in ((CASES, 2.0), {"x": CASES, "scale": 2.0}):
        assert sample_networks(net, several, 2, also=(Functional,)).equal(2 * one)


def test_wrong_requests_are_refused():
    with pytest.raises(ValueError, match="1 or more, not 0"):
        sample_networks(a_net(nn.Dropout()), CASES, 0)
    with pytest.raises(ValueError, match="must return a tensor, not tuple"):
        sample_networks(nn.LSTM(6, 2, dropout=0.5, num_layers=2).double(), CASES, 1)


def test_compiled_modules_have_mean_and_sampled_networks():
    torch.compiler.reset()
    net = a_net(Dropout(0.5, seed=0))
    compiled = torch.compile(net, backend="eager")
    assert mean_network(compiled)(CASES).equal(mean_network(net)(CASES))
    np.testing.assert_allclose(sample_networks(compiled, CASES, 2), sample_networks(net, CASES, 2), rtol=1e-12)


def test_the_package_offers_its_parts():
    assert meannet.mean_network is mean_network and meannet.sample_networks is sample_networks
    assert meannet.nn.Dropout is Dropout and meannet.optim.DropoutSGD and meannet.convert.to_inverted
