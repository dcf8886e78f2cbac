"""Fleets of dense nets, against autograd, finite differences and a numpy loop over nets, cases and units."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from meannet.core.dropout import kept
from meannet.core.philox import SAMPLE
from meannet.nn import dense
from meannet.train import Plain

SIZES, SEEDS, CASES = (6, 8, 7, 4), (3, 5, 2**40 + 7), 9
BOTH = pytest.mark.parametrize("units", dense.UNITS)
OUTPUTS = pytest.mark.parametrize("output", ["softmax", "linear"])


def rates_of(*per_layer):
    """A list of rates per net, for each layer, as (nets, 1)."""
    return [torch.tensor(rates, dtype=torch.float64)[:, None] for rates in per_layer]


def make(units, output="softmax", sizes=SIZES, seeds=SEEDS, rates=None, sd=0.7, dtype=torch.float64):
    """Nets with weights and biases large enough that every part of a gradient matters, and velocities under way."""
    if rates is None:
        rates = rates_of(*([rate] * len(seeds) for rate in (0.2, 0.5, 0.3)[: len(sizes) - 1]))
    fleet = dense.initial_fleet(sizes, seeds, rates, units=units, output=output, sd=sd, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    for tensor in (*fleet.biases, *fleet.weight_velocities, *fleet.bias_velocities):
        tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator, dtype=dtype))
    return fleet


def a_batch(fleet, cases=CASES):
    generator = torch.Generator().manual_seed(2)
    nets, sizes, dtype = len(fleet.seeds), fleet.sizes, fleet.weights[0].dtype
    inputs = torch.rand(nets, cases, sizes[0], generator=generator, dtype=dtype)
    if fleet.output == "softmax":
        return inputs, torch.randint(0, sizes[-1], (nets, cases), generator=generator)
    return inputs, torch.randn(nets, cases, sizes[-1], generator=generator, dtype=dtype)


def mean_loss(units, output, weights, biases, inputs, keep, target):
    """Of one net, written afresh: (cases, visible) in, mean over cases out."""
    x = inputs if keep[0] is None else inputs * keep[0]
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = x @ weight.T + bias
        if k < len(weights) - 1:
            x = torch.sigmoid(x) if units == "logistic" else torch.clamp(x, min=0)
            x = x if keep[k + 1] is None else x * keep[k + 1]
    if output == "softmax":
        return F.cross_entropy(x, target)
    return 0.5 * (x - target).square().sum(1).mean()


def gradients_by_backpropagation(fleet, inputs, targets, keep):
    """What deltas and update_ take the gradients to be: the velocities after a step of -1 from rest."""
    copied = copy.deepcopy(fleet)
    for velocity in (*copied.weight_velocities, *copied.bias_velocities):
        velocity.zero_()
    passed = dense.activities(copied, inputs, keep)
    found = dense.deltas(copied, passed, targets)
    step, limit = (torch.full((len(fleet.seeds), 1, 1), value, dtype=torch.float64) for value in (-1.0, math.inf))
    dense.update_(copied, passed, found, step, 0.0, limit)
    return copied.weight_velocities, copied.bias_velocities


@BOTH
@OUTPUTS
@pytest.mark.parametrize("sizes", [(6, 4), (6, 5, 4), SIZES, (3, 1, 2, 2)])
def test_gradients_of_thinned_networks_are_autograds(units, output, sizes):
    fleet = make(units, output, sizes)
    inputs, targets = a_batch(fleet)
    keep = dense.masks(fleet, 11, range(CASES))
    by_weight, by_bias = gradients_by_backpropagation(fleet, inputs, targets, keep)
    for net in range(len(SEEDS)):
        weights = [weight[net].clone().requires_grad_() for weight in fleet.weights]
        biases = [bias[net].clone().requires_grad_() for bias in fleet.biases]
        loss = mean_loss(units, output, weights, biases, inputs[net], [k[net] for k in keep], targets[net])
        expected = torch.autograd.grad(loss, [*weights, *biases])
        found = [gradient[net] for gradient in (*by_weight, *by_bias)]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12, atol=1e-14)


@BOTH
@OUTPUTS
def test_gradients_of_thinned_networks_are_finite_differences(units, output):
    fleet = make(units, output, sizes=(4, 5, 3, 3), seeds=(1,))
    inputs, targets = a_batch(fleet, cases=4)
    keep = dense.masks(fleet, 0, range(4))
    by_weight, by_bias = gradients_by_backpropagation(fleet, inputs, targets, keep)

    def loss():
        weights, biases = [w[0] for w in fleet.weights], [b[0] for b in fleet.biases]
        return mean_loss(units, output, weights, biases, inputs[0], [k[0] for k in keep], targets[0]).item()

    for parameters, gradients in ((fleet.weights, by_weight), (fleet.biases, by_bias)):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            flat = parameter.view(-1)
            for i in range(flat.numel()):
                middle, losses = flat[i].item(), []
                for moved in (middle - 1e-5, middle + 1e-5):
                    flat[i] = moved
                    losses.append(loss())
                flat[i] = middle
                assert gradient.view(-1)[i].item() == pytest.approx((losses[1] - losses[0]) / 2e-5, rel=1e-5, abs=1e-8)


def update_by_loop(fleet, inputs, targets, keep, steps, momentum, limits):
    """One update in plain numpy, net by net and case by case; weights, biases and velocities after it."""
    state = {name: tensor.numpy().copy() for name, tensor in fleet.state().items()}
    layers, cases = len(fleet.weights), inputs.shape[1]
    for net in range(len(fleet.seeds)):
        weights = [state[f"weights.{k}"][net].copy() for k in range(layers)]
        biases = [state[f"biases.{k}"][net].copy() for k in range(layers)]
        by_weight, by_bias = [np.zeros_like(w) for w in weights], [np.zeros_like(b) for b in biases]
        for case in range(cases):
            masks = [None if k is None else k[net, case].numpy().astype(float) for k in keep]
            passed = [inputs[net, case].numpy() * (1 if masks[0] is None else masks[0])]
            slopes = []
            for k in range(layers):
                total = np.array([row @ passed[-1] for row in weights[k]]) + biases[k]
                if k == layers - 1:
                    break
                if fleet.units == "logistic":
                    active = 1 / (1 + np.exp(-total))
                    slope = active * (1 - active)
                else:
                    active, slope = np.maximum(total, 0), (total > 0).astype(float)
                mask = 1 if masks[k + 1] is None else masks[k + 1]
                passed.append(active * mask)
                slopes.append(slope * mask)
            if fleet.output == "softmax":
                delta = np.exp(total - total.max())
                delta /= delta.sum()
                delta[targets[net, case]] -= 1
            else:
                delta = total - targets[net, case].numpy()
            for k in reversed(range(layers)):
                by_weight[k] += np.outer(delta, passed[k]) / cases
                by_bias[k] += delta / cases
                if k:
                    delta = (weights[k].T @ delta) * slopes[k - 1]
        for k in range(layers):
            for kind, gradient in (("weight", by_weight[k]), ("bias", by_bias[k])):
                velocity = momentum * state[f"{kind}_velocities.{k}"][net] - steps[net] * gradient
                state[f"{kind}_velocities.{k}"][net] = velocity
                plural = "weights" if kind == "weight" else "biases"
                state[f"{plural}.{k}"][net] += velocity
            if k < layers - 1:
                for row in state[f"weights.{k}"][net]:
                    squared = (row**2).sum()
                    if squared > limits[net]:
                        row *= math.sqrt(limits[net] / squared)
    return state


def take_update(fleet, inputs, targets, keep, steps, momentum, limits):
    passed = dense.activities(fleet, inputs, keep)
    found = dense.deltas(fleet, passed, targets)
    step, limit = (torch.tensor(v, dtype=fleet.weights[0].dtype)[:, None, None] for v in (steps, limits))
    dense.update_(fleet, passed, found, step, momentum, limit)


@BOTH
@OUTPUTS
@pytest.mark.parametrize("cases", [1, CASES])
def test_one_update_is_a_loop_over_nets_and_cases(units, output, cases):
    rates = rates_of([0.0, 0.2, 0.2], [0.0, 0.5, 0.9], [0.0, 0.0, 0.0])
    fleet = make(units, output, rates=rates)
    inputs, targets = a_batch(fleet, cases)
    keep = dense.masks(fleet, 4, range(cases))
    assert keep[0] is not None and keep[2] is None
    settings = ([0.5, 0.0, 2.0], 0.7, [1.0, math.inf, 3.0])
    expected = update_by_loop(fleet, inputs, targets, keep, *settings)
    take_update(fleet, inputs, targets, keep, *settings)
    for name, tensor in fleet.state().items():
        np.testing.assert_allclose(tensor.numpy(), expected[name], rtol=1e-12, atol=1e-13, err_msg=name)


@BOTH
def test_a_decay_is_the_gradient_of_half_the_squared_weights_and_leaves_biases_alone(units):
    fleet, decays = make(units), [0.0, 0.3, 2.0]
    fleet.decay = torch.tensor(decays, dtype=torch.float64)[:, None, None]
    inputs, targets = a_batch(fleet)
    keep, steps, momentum = dense.masks(fleet, 4, range(CASES)), [0.5, 0.2, 0.1], 0.7
    before = {name: tensor.clone() for name, tensor in fleet.state().items()}
    take_update(fleet, inputs, targets, keep, steps, momentum, [math.inf] * 3)
    for net, decay in enumerate(decays):
        weights, biases = (
            [before[f"{kind}.{k}"][net].clone().requires_grad_() for k in range(3)] for kind in ("weights", "biases")
        )
        loss = mean_loss(units, "softmax", weights, biases, inputs[net], [k[net] for k in keep], targets[net])
        (loss + decay / 2 * sum(weight.square().sum() for weight in weights)).backward()
        for kind, parameters in (("weight", weights), ("bias", biases)):
            for k, parameter in enumerate(parameters):
                name = f"{kind}_velocities.{k}"
                expected = momentum * before[name][net] - steps[net] * parameter.grad
                torch.testing.assert_close(fleet.state()[name][net], expected, rtol=1e-12, atol=1e-13)


def test_nets_picked_out_of_a_fleet_keep_their_own_decay():
    fleet = make("logistic")
    fleet.decay = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    assert fleet.pick([2, 0]).decay.flatten().tolist() == pytest.approx([0.3, 0.1])
    fleet.decay = None
    assert fleet.pick([1]).decay is None


@BOTH
def test_the_bound_is_on_hidden_units_incoming_weights_and_on_nothing_else(units):
    free, bound = make(units, sd=2.0), make(units, sd=2.0)
    inputs, targets = a_batch(free)
    for fleet, limit in ((free, math.inf), (bound, 0.5)):
        take_update(fleet, inputs, targets, dense.masks(fleet, 0, range(CASES)), [1.0] * 3, 0.5, [limit] * 3)
    for k in (0, 1):
        lengths = free.weights[k].square().sum(-1)
        assert (lengths > 0.5).any()
        scale = (0.5 / lengths).sqrt().clamp(max=1)[..., None]
        np.testing.assert_allclose(bound.weights[k], free.weights[k] * scale, rtol=1e-12)
    assert bound.weights[2].equal(free.weights[2]) and (free.weights[2].square().sum(-1) > 0.5).any()
    for name, tensor in free.state().items():
        if not name.startswith("weights"):  # neither biases nor velocities
            assert bound.state()[name].equal(tensor), name


@BOTH
def test_activities_are_masked_and_passed_on_layer_by_layer(units):
    fleet = make(units)
    inputs, _ = a_batch(fleet)
    keep = dense.masks(fleet, 2, range(CASES))
    passed = dense.activities(fleet, inputs, keep)
    assert [tuple(layer.shape) for layer in passed] == [(3, CASES, n) for n in SIZES]
    below = inputs.numpy() * keep[0].numpy()
    np.testing.assert_allclose(passed[0], below, rtol=1e-12)
    for k in range(3):
        total = np.einsum("nci,nui->ncu", below, fleet.weights[k].numpy()) + fleet.biases[k].numpy()[:, None]
        if k < 2:
            total = 1 / (1 + np.exp(-total)) if units == "logistic" else np.maximum(total, 0)
            total = total * keep[k + 1].numpy()
        np.testing.assert_allclose(passed[k + 1], total, rtol=1e-12, atol=1e-14)
        below = total


def test_activities_change_neither_inputs_nor_masks_nor_parameters():
    fleet = make("rectified")
    inputs, _ = a_batch(fleet)
    keep = dense.masks(fleet, 2, range(CASES))
    before = [tensor.clone() for tensor in (inputs, *keep, *fleet.state().values())]
    dense.activities(fleet, inputs, keep)
    dense.activities(fleet, inputs, [None] * 3)
    for one, other in zip((inputs, *keep, *fleet.state().values()), before, strict=True):
        assert one.equal(other)


@BOTH
def test_one_set_of_inputs_serves_every_net(units):
    fleet = make(units)
    inputs, _ = a_batch(fleet)
    shared = dense.mean_network(fleet, inputs[:1])
    np.testing.assert_allclose(shared, dense.mean_network(fleet, inputs[:1].expand(3, -1, -1)), rtol=1e-12)


@BOTH
def test_mean_network_has_all_units_and_outgoing_weights_scaled_by_one_minus_the_rate(units):
    per_unit = torch.linspace(0, 0.9, 8, dtype=torch.float64).expand(3, -1)
    rates = [*rates_of([0.0, 0.2, 0.4]), per_unit, *rates_of([0.5, 0.5, 0.0])]
    fleet = make(units, rates=rates)
    inputs, _ = a_batch(fleet)
    by_hand = inputs
    for k in range(3):
        scaled = fleet.weights[k] * (1 - rates[k])[:, None, :]
        by_hand = torch.einsum("nci,nui->ncu", by_hand, scaled) + fleet.biases[k][:, None]
        if k < 2:
            by_hand = by_hand.sigmoid() if units == "logistic" else by_hand.relu()
    np.testing.assert_allclose(dense.mean_network(fleet, inputs), by_hand, rtol=1e-12, atol=1e-14)


@BOTH
def test_without_dropout_the_mean_network_is_the_network(units):
    fleet = make(units, rates=rates_of([0.0] * 3, [0.0] * 3, [0.0] * 3))
    inputs, _ = a_batch(fleet)
    assert fleet.rates == [None] * 3 and dense.masks(fleet, 0, range(CASES)) == [None] * 3
    assert dense.mean_network(fleet, inputs).equal(dense.activities(fleet, inputs, [None] * 3)[-1])


def test_masks_are_those_of_each_layer_and_purpose():
    fleet = make("logistic", rates=rates_of([0.0] * 3, [0.5] * 3, [0.2, 0.0, 0.3]))
    found = dense.masks(fleet, 6, range(2, 7))
    assert found[0] is None
    assert found[1].equal(kept(fleet.seeds, 6, 1, fleet.rates[1], range(2, 7), 8))
    assert found[2].equal(kept(fleet.seeds, 6, 2, fleet.rates[2], range(2, 7), 7)) and found[2][1].all()
    sampled = dense.masks(fleet, 6, range(2, 7), SAMPLE)
    assert sampled[1].equal(kept(fleet.seeds, 6, 1, fleet.rates[1], range(2, 7), 8, SAMPLE))
    assert not sampled[1].equal(found[1])


def test_initial_weights_are_normal_with_the_given_deviation():
    fleet = dense.initial_fleet((100, 200, 100, 10), [0, 1], rates_of(*[[0.5] * 2] * 3), units="logistic", sd=0.01)
    for weight, shape in zip(fleet.weights, [(200, 100), (100, 200), (10, 100)], strict=True):
        assert weight.shape == (2, *shape) and weight.dtype == torch.float32
        for net in weight:
            assert stats.kstest(net.flatten().numpy(), "norm", args=(0, 0.01)).pvalue > 1e-3
    flat = [weight[net].flatten()[:1000].numpy() for weight in fleet.weights for net in range(2)]
    assert np.abs(np.corrcoef(flat) - np.eye(6)).max() < 4.5 / math.sqrt(1000)


def test_each_layers_weights_may_have_a_deviation_of_their_own():
    rates = [torch.zeros(1, 1, dtype=torch.float64)] * 2
    one, each = (dense.initial_fleet((5, 4, 3), [7], rates, units="rectified", sd=sd) for sd in (1.0, (0.5, 0.25)))
    assert all(b.equal(a * s) for a, b, s in zip(one.weights, each.weights, (0.5, 0.25), strict=True))


def test_hidden_biases_start_as_told_and_output_biases_and_velocities_at_zero():
    fleet = dense.initial_fleet(SIZES, SEEDS, rates_of(*[[0.5] * 3] * 3), units="rectified", bias=1.0)
    assert [bias.unique().tolist() for bias in fleet.biases] == [[1.0], [1.0], [0.0]]
    assert [tuple(bias.shape) for bias in fleet.biases] == [(3, 8), (3, 7), (3, 4)]
    assert not any(v.any() for v in (*fleet.weight_velocities, *fleet.bias_velocities))
    assert fleet.sizes == SIZES


def test_initial_hidden_biases_may_be_spread_out_each_net_by_its_own_seed():
    made = dense.initial_fleet((5, 4000, 3), [7, 8], rates_of([0.5] * 2, [0.5] * 2), units="rectified", bias_sd=2.0)
    hidden, outputs = made.biases
    assert hidden.mean().abs() < 0.1 and 1.9 < hidden.std() < 2.1 and not outputs.any()
    alone = dense.initial_fleet((5, 4000, 3), [8], rates_of([0.5], [0.5]), units="rectified", bias_sd=2.0)
    assert alone.biases[0][0].equal(hidden[1]) and not hidden[0].equal(hidden[1])
    assert abs(float(torch.corrcoef(torch.stack((hidden[0], made.weights[0][0, :, 0])))[0, 1])) < 0.06


def test_a_seeds_initial_weights_do_not_depend_on_its_companions():
    among = dense.initial_fleet(SIZES, range(10), rates_of(*[[0.5] * 10] * 3), units="logistic")
    for seed in (0, 3, 9):
        alone = dense.initial_fleet(SIZES, [seed], rates_of(*[[0.5]] * 3), units="logistic")
        for one, other in zip(alone.weights, among.weights, strict=True):
            assert one[0].equal(other[seed])
    assert not among.weights[0][0].equal(among.weights[0][1])


def test_single_precision_starts_from_the_same_numbers_rounded():
    pair = [dense.initial_fleet(SIZES, SEEDS, rates_of(*[[0.5] * 3] * 3), units="logistic", dtype=dtype)
            for dtype in (torch.float32, torch.float64)]  # fmt: skip
    for single, double in zip(pair[0].weights, pair[1].weights, strict=True):
        assert single.equal(double.float())


def test_state_names_the_tensors_themselves():
    fleet = make("logistic")
    state = fleet.state()
    assert len(state) == 12 and state["weights.0"] is fleet.weights[0]
    assert state["bias_velocities.2"] is fleet.bias_velocities[2]


@BOTH
def test_seed_3_alone_and_among_ten_draws_the_same_masks_and_ends_with_the_same_weights(units):
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(200, 40, generator=generator), torch.randint(0, 10, (200,), generator=generator)
    sizes, arms, lr = (40, 60, 50, 10), (0.2, 0.5, 0.5), 1.0 if units == "rectified" else 5.0

    def trained(seeds):
        rates = rates_of(*([rate] * len(seeds) for rate in arms))
        fleet = dense.initial_fleet(sizes, seeds, rates, units=units, sd=0.1)
        start = fleet.weights[0].clone()
        engine = Plain(fleet, inputs, targets, 20, [15.0] * len(seeds))
        for epoch in range(30):  # of 10 updates
            assert engine.epoch(epoch, [0.1 * lr] * len(seeds), 0.9, lambda: False) is not None
        assert (fleet.weights[0] - start).norm() > 0.3 * start.norm()
        return fleet

    alone, among = trained([3]), trained(range(10))
    for update in (0, 1, 299):
        for one, other in zip(*(dense.masks(f, update, range(20)) for f in (alone, among)), strict=True):
            assert one[0].equal(other[3])
    for name, tensor in alone.state().items():
        apart = (tensor[0] - among.state()[name][3]).norm() / tensor[0].norm()
        assert apart <= 1e-5, name


@pytest.mark.parametrize("units", dense.UNITS)
@pytest.mark.parametrize("cases", [1, 40])
def test_one_nets_mean_network_is_that_of_the_same_net_in_a_fleet(units, cases):
    rates = [torch.full((2, 1), rate, dtype=torch.float64) for rate in (0.2, 0.5)]
    rates.append(torch.linspace(0, 0.9, 22, dtype=torch.float64).view(2, 11))
    fleet = dense.initial_fleet((7, 9, 11, 3), (1, 2), rates, units=units, sd=0.5, bias=0.1)
    inputs = torch.rand(1, cases, 7, generator=torch.Generator().manual_seed(0))
    together = dense.mean_network(fleet, inputs)
    for net in range(2):
        torch.testing.assert_close(dense.mean_network(fleet.pick([net]), inputs)[0], together[net])
