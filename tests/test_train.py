"""Dropout backpropagation: whole epochs against autograd, and what happens to nets that go wrong or are interrupted."""

import itertools
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from meannet.config import Optim
from meannet.core import philox
from meannet.core.dropout import kept
from meannet.nn import dense
from meannet.train import Plain, Tally, Why, find_faults, train

SIZES = (12, 10, 9, 4)
OPTIM = Optim(epochs=5, batch=8, lr=0.5, decay=0.9, momentum_start=0.5, momentum_end=0.9, momentum_epochs=4)
INF = math.inf
torch.set_num_threads(1)  # tests run side by side


def make(seeds=(0, 1, 2), units="rectified", rates=(0.2, 0.5, 0.5), sd=0.3, dtype=torch.float32, sizes=SIZES, **more):
    per_layer = [torch.full((len(seeds), 1), rate, dtype=torch.float64) for rate in rates[: len(sizes) - 1]]
    return dense.initial_fleet(sizes, seeds, per_layer, units=units, sd=sd, dtype=dtype, **more)


def cases(count=30, dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    inputs = torch.rand(count, SIZES[0], generator=generator, dtype=dtype)
    return inputs, torch.randint(0, SIZES[-1], (count,), generator=generator)


def training(fleet, optim=OPTIM, lr=None, limit=15.0, count=30, **more):
    inputs, targets = cases(count, fleet.weights[0].dtype)
    nets = len(fleet.seeds)
    engine = Plain(fleet, inputs, targets, optim.batch, [limit] * nets)
    return train(fleet, engine, count, optim, [optim.lr] * nets if lr is None else lr, **more)


def copied(fleet):
    return {name: tensor.clone() for name, tensor in fleet.state().items()}


def same(one, other, nets=slice(None)):
    return all(one[name][nets].equal(other[name][nets]) for name in one)


def epochs_by_autograd(fleet, optim, limit, count):
    """Weights and biases of each net, and mean losses and error rates by epoch, from a loop written afresh."""
    inputs, targets = cases(count, torch.float64)
    found, losses, wrong = [], [], []
    updates = math.ceil(count / optim.batch)
    for net, seed in enumerate(fleet.seeds.tolist()):
        seeds = torch.tensor([seed])
        parameters = [p[net].clone().requires_grad_() for p in (*fleet.weights, *fleet.biases)]
        velocities = [torch.zeros_like(p) for p in parameters]
        layers = len(fleet.weights)
        losses.append([])
        wrong.append([])
        for epoch in range(optim.epochs):
            lr = optim.lr * optim.decay**epoch
            ramp = min(1.0, epoch / optim.momentum_epochs)
            p = optim.momentum_start * (1 - ramp) + optim.momentum_end * ramp
            step = lr * (1 - p) if optim.rule == "a1" else lr
            order = philox.order(seeds, epoch, count)[0]
            total = errors = 0
            for number in range(updates):
                chosen = order[number * optim.batch : (number + 1) * optim.batch]
                x = inputs[chosen]
                for k in range(layers):
                    rate = fleet.rates[k][net : net + 1]
                    size = range(len(chosen))
                    x = x * kept(seeds, epoch * updates + number, k, rate, size, x.shape[1])[0]
                    x = x @ parameters[k].T + parameters[layers + k]
                    if k < layers - 1:
                        x = x.sigmoid() if fleet.units == "logistic" else x.relu()
                loss = F.cross_entropy(x, targets[chosen])
                total += loss.item() * len(chosen)
                errors += (x.argmax(1) != targets[chosen]).sum().item()
                with torch.no_grad():
                    gradients = torch.autograd.grad(loss, parameters)
                    for i, (parameter, velocity, gradient) in enumerate(
                        zip(parameters, velocities, gradients, strict=True)
                    ):
                        velocity.copy_(p * velocity - step * gradient)
                        parameter += velocity
                        if i < layers - 1:
                            length = parameter.norm(dim=1, keepdim=True)
                            parameter *= (math.sqrt(limit) / length).clamp(max=1)
            losses[-1].append(total / count)
            wrong[-1].append(errors / count)
        found.append([p.detach() for p in parameters])
    return found, np.array(losses).T, np.array(wrong).T


@pytest.mark.parametrize("units", dense.UNITS)
@pytest.mark.parametrize("rule", ["a1", "plain"])
@pytest.mark.parametrize("count", [30, 33, 5])  # a last batch of 6, of 1, and all cases in less than a batch
def test_epochs_are_those_of_a_loop_with_autograd_averaging_over_each_mini_batch(units, rule, count):
    optim = replace(OPTIM, rule=rule, epochs=3, lr=2.0 if units == "logistic" else 0.3)
    fleet = make(units=units, dtype=torch.float64)
    expected, losses, wrong = epochs_by_autograd(fleet, optim, 1.0, count)
    records = list(training(fleet, optim, limit=1.0, count=count))
    for net, parameters in enumerate(expected):
        for found, wanted in zip((*fleet.weights, *fleet.biases), parameters, strict=True):
            np.testing.assert_allclose(found[net], wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([r.train_loss for r in records], losses, rtol=1e-9)
    np.testing.assert_allclose([r.train_error for r in records], wrong, rtol=1e-12)
    assert (fleet.weights[0].square().sum(-1) < 1 + 1e-9).all()


class Recorder:
    """An engine that trains nothing and notes what it was asked for."""

    name = "recorder"

    def __init__(self, fleet):
        self.fleet, self.asked = fleet, []

    def epoch(self, epoch, step, momentum, stop):
        self.asked.append((epoch, list(step), momentum))
        tally = Tally.zero(self.fleet)
        tally.active.fill_(True)
        tally.moved.fill_(True)
        return tally


def test_the_engine_is_asked_for_a1s_steps_and_momentum():
    fleet = make()
    recorder = Recorder(fleet)
    records = list(train(fleet, recorder, 30, Optim(epochs=502), [10.0, 1.0, 0.1]))
    asked = {epoch: (steps, momentum) for epoch, steps, momentum in recorder.asked}
    assert len(records) == 502 and list(asked) == list(range(502))
    for epoch, momentum in ((0, 0.5), (250, 0.745), (500, 0.99), (501, 0.99)):
        lr = [start * 0.998**epoch for start in (10.0, 1.0, 0.1)]
        assert asked[epoch][1] == records[epoch].momentum == pytest.approx(momentum)
        assert asked[epoch][0] == pytest.approx([(1 - momentum) * one for one in lr])
        assert records[epoch].lr == pytest.approx(lr)


def test_the_plain_rule_asks_for_the_learning_rate_itself_with_its_cuts():
    fleet = make()
    recorder = Recorder(fleet)
    optim = Optim(epochs=4, rule="plain", decay=1.0, cuts=(2, 3), momentum_start=0.9, momentum_end=0.9)
    list(train(fleet, recorder, 30, optim, [0.1] * 3))
    assert [steps[0] for _, steps, _ in recorder.asked] == pytest.approx([0.1, 0.1, 0.01, 0.001])
    assert {momentum for _, _, momentum in recorder.asked} == {0.9}


def test_an_epoch_is_yielded_after_each_with_a_figure_for_every_net():
    fleet = make()
    seen = []
    for record in training(fleet):
        seen.append((record.epoch, copied(fleet)))
        assert len(record.train_loss) == len(record.train_error) == len(record.lr) == 3
        assert not record.faults
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4, 5]
    assert not any(same(one, other) for (_, one), (_, other) in itertools.pairwise(seen))


def test_nothing_happens_before_the_first_epoch_is_asked_for():
    fleet = make()
    before = copied(fleet)
    training(fleet)
    assert same(before, fleet.state())


def test_a_linear_output_is_trained_on_squared_error():
    fleet = make(dtype=torch.float64, output="linear", rates=(0.0, 0.0, 0.0))
    inputs, _ = cases(dtype=torch.float64)
    targets = inputs[:, :4] * 2 - 1
    optim = replace(OPTIM, epochs=40, lr=0.2, decay=1.0)
    records = list(train(fleet, Plain(fleet, inputs, targets, 8, [INF] * 3), 30, optim, [0.2] * 3))
    assert max(records[-1].train_loss) < 0.5 * min(records[0].train_loss)
    assert records[-1].train_error == [0.0] * 3


def test_a_net_that_diverges_is_stopped_and_goes_back_while_the_others_go_on_untouched():
    sane, mixed = make(), make()
    for fleet in (sane, mixed):
        list(training(fleet, replace(OPTIM, epochs=2), limit=INF))
    good = copied(mixed)
    list(training(sane, limit=INF, start=2))
    records = list(training(mixed, limit=INF, start=2, lr=[0.5, 1e30, 0.5]))
    assert [record.epoch for record in records] == [3, 4, 5]
    (fault,) = [fault for record in records for fault in record.faults]
    assert (fault.net, fault.epoch) == (1, 3) and fault in records[0].faults
    assert fault.why == Why.DIVERGED and fault.layer in (1, 2, 3)
    assert fault.lr == pytest.approx(1e30 * 0.9**2)
    for net in (0, 2):
        assert same(mixed.state(), sane.state(), net) and not same(mixed.state(), good, net)
    assert same(mixed.state(), good, 1)


def test_a_fleet_that_diverges_altogether_ends_after_that_epoch():
    fleet = make()
    before = copied(fleet)
    records = list(training(fleet, limit=INF, lr=[1e30] * 3))
    assert len(records) == 1 and [fault.net for fault in records[0].faults] == [0, 1, 2]
    assert same(fleet.state(), before)


def test_a_net_stopped_earlier_stays_stopped_and_is_reported_once():
    fleet = make()
    before = copied(fleet)
    records = list(training(fleet, limit=INF, lr=[0.5, 1e30, 0.5], stopped=[1]))
    assert len(records) == 5 and not any(record.faults for record in records)
    assert same(fleet.state(), before, 1) and not same(fleet.state(), before, 0)


@pytest.mark.parametrize("layer", [1, 2])
def test_a_rectified_layer_that_gives_zero_for_every_case_is_a_collapse_named_by_layer(layer):
    fleet = make()
    fleet.biases[layer - 1][2].fill_(-100)
    before = copied(fleet)
    records = list(training(fleet, replace(OPTIM, epochs=2)))
    (fault,) = [fault for record in records for fault in record.faults]
    assert (fault.net, fault.epoch, fault.layer, fault.lr) == (2, 1, layer, 0.5)
    assert fault.why == Why.SILENT
    assert same(fleet.state(), before, 2) and not same(fleet.state(), before, 0)


def test_a_rectified_layer_alive_for_a_single_case_is_no_collapse():
    fleet = make(seeds=(0,), rates=(0.0, 0.0, 0.0))
    inputs, targets = torch.zeros(30, SIZES[0]), cases()[1]
    inputs[17, 0] = 1.0
    fleet.weights[0].fill_(0.1)
    fleet.biases[0].fill_(-0.05)
    engine = Plain(fleet, inputs, targets, 8, [15.0])
    optim = replace(OPTIM, epochs=1, lr=1e-6)
    (record,) = train(fleet, engine, 30, optim, [1e-6])
    assert not record.faults


def test_with_few_cases_a_layer_that_is_silent_for_an_epoch_by_chance_is_no_collapse():
    fleet = make(seeds=(0,), rates=(0.0, 0.5), sizes=(12, 2, 4), bias=1.0)
    records = list(training(fleet, replace(OPTIM, epochs=60, lr=1e-6), count=1))
    assert len(records) == 60 and not any(record.faults for record in records)  # a quarter of them were silent
    fleet.biases[0].fill_(-100)
    faults = [(record.epoch, len(record.faults)) for record in training(fleet, replace(OPTIM, epochs=60), count=3)]
    assert faults[-1] == (10, 1)  # after 30 presentations


@pytest.mark.parametrize("start", [1, 4, 9, 11])
def test_with_few_cases_too_a_collapse_is_found_in_the_epoch_in_which_it_is_without_a_stop(start):
    def one_silent():
        fleet = make(seeds=(0, 1), rates=(0.0, 0.5), sizes=(12, 2, 4), bias=1.0)
        fleet.biases[0][1].fill_(-100)
        return fleet

    optim, whole, halves = replace(OPTIM, epochs=25, lr=1e-6), one_silent(), one_silent()
    records = list(training(whole, optim, count=3))
    first = list(training(halves, replace(optim, epochs=start), count=3))
    stopped = [fault.net for record in first for fault in record.faults]
    second = training(halves, optim, count=3, start=start, stopped=stopped, unjudged=first[-1].unjudged)
    assert [*first, *second] == records and same(whole.state(), halves.state())
    assert [(fault.epoch, fault.net) for record in records for fault in record.faults] == [(10, 1)]


def test_where_no_input_varies_first_weights_without_gradient_are_no_collapse():
    for still in (False, True):
        fleet = make(seeds=(0,), rates=(0.0, 0.0), sizes=(12, 9, 4), bias=0.5)
        engine = Plain(fleet, torch.zeros(30, 12), cases()[1], 8, [15.0])
        records = list(train(fleet, engine, 30, replace(OPTIM, epochs=2), [0.5], still=still))
        assert len(records) == 1 + still and bool(records[0].faults) is not still


def test_a_logistic_net_with_no_gradient_at_any_hidden_weight_is_a_collapse():
    fleet = make(units="logistic")
    fleet.biases[0][0].fill_(200)  # every unit of both layers is at exactly 1, where the slope is 0
    fleet.biases[1][0].fill_(200)
    before = copied(fleet)
    (record, *_) = training(fleet)
    (fault,) = record.faults
    assert (fault.net, fault.epoch, fault.layer) == (0, 1, None) and fault.why == Why.STILL
    assert same(fleet.state(), before, 0)


def test_a_logistic_net_with_one_saturated_layer_still_learns_and_is_not_stopped():
    fleet = make(units="logistic")
    fleet.biases[0][0].fill_(200)
    assert not next(training(fleet)).faults


def test_a_logistic_net_that_predicts_a_single_class_is_not_stopped():
    fleet = make(units="logistic", sd=0.01)
    fleet.biases[-1][:, 1] = 3.0
    optim = replace(OPTIM, epochs=3, lr=1e-3)
    records = list(training(fleet, optim))
    predicted = dense.mean_network(fleet, cases()[0][None]).argmax(-1)
    assert predicted.unique().tolist() == [1]
    assert len(records) == 3 and not any(record.faults for record in records)


def test_weights_that_are_not_finite_are_found_even_where_the_loss_is():
    fleet = make()
    tally = Recorder(fleet).epoch(0, [], 0.0, None)
    fleet.weights[1][2, 3, 4] = INF
    fleet.weights[2][0, 0, 0] = math.nan
    found = {fault.net: fault.layer for fault in find_faults(fleet, tally, 7, [1.0, 2.0, 3.0])}
    assert found == {2: 2, 0: 3}


def test_biases_that_are_not_finite_are_found_even_where_the_loss_is():
    fleet = make()
    tally = Recorder(fleet).epoch(0, [], 0.0, None)
    fleet.biases[1][2, 3] = INF
    assert [(fault.net, fault.layer) for fault in find_faults(fleet, tally, 7, [1.0] * 3)] == [(2, 2)]


def test_a_loss_that_is_not_finite_is_found_even_where_the_weights_are():
    fleet = make()
    tally = Recorder(fleet).epoch(0, [], 0.0, None)
    tally.loss[1] = INF
    (fault,) = find_faults(fleet, tally, 7, [1.0, 2.0, 3.0])
    assert (fault.net, fault.epoch, fault.layer, fault.lr) == (1, 7, None, 2.0)


@pytest.mark.parametrize("units", dense.UNITS)
@pytest.mark.parametrize("start", [1, 3])
def test_going_on_from_an_epoch_is_bit_identical_to_never_having_stopped(units, start):
    whole, halves = make(units=units), make(units=units)
    records = list(training(whole))
    first = list(training(halves, replace(OPTIM, epochs=start)))
    state = copied(halves)
    again = make(units=units)
    for name, tensor in again.state().items():
        tensor.copy_(state[name])
    assert first + list(training(again, start=start)) == records
    assert same(whole.state(), again.state())


def test_starting_at_the_last_epoch_trains_nothing():
    fleet = make()
    before = copied(fleet)
    assert list(training(fleet, start=5)) == [] and same(before, fleet.state())


@pytest.mark.parametrize("calls", [0, 2, 4, 9, 11])
def test_stopping_in_the_middle_returns_to_the_end_of_the_last_whole_epoch(calls):
    whole, fleet = make(), make()
    left = iter(range(calls))
    records = list(training(fleet, stop=lambda: next(left, None) is None))  # 4 updates an epoch
    done = calls // 4
    list(training(whole, replace(OPTIM, epochs=done))) if done else None
    assert [record.epoch for record in records] == list(range(1, done + 1))
    assert same(whole.state(), fleet.state())
    list(training(fleet, start=done))
    uninterrupted = make()
    list(training(uninterrupted))
    assert same(uninterrupted.state(), fleet.state())


def test_an_exception_in_the_middle_returns_to_the_end_of_the_last_whole_epoch():
    expected, fleet, asked = make(), make(), itertools.count()
    for _ in training(expected, replace(OPTIM, epochs=2)):
        pass

    def stop():
        if next(asked) == 10:  # four updates an epoch
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        for _ in training(fleet, stop=stop):
            pass
    assert same(fleet.state(), expected.state())


def test_schedules_begin_where_they_are_told():
    anew = list(training(make(), replace(OPTIM, epochs=7), start=4, origin=4))
    first = list(training(make(), replace(OPTIM, epochs=3)))
    assert [(e.epoch, e.lr, e.momentum) for e in anew] == [(e.epoch + 4, e.lr, e.momentum) for e in first]


def test_a_weight_of_nought_leaves_a_case_out_of_the_gradient_and_the_loss():
    inputs, targets = cases(8, torch.float64)
    fleets = [make(rates=(0.0, 0.0, 0.0), dtype=torch.float64) for _ in range(2)]
    weights = torch.tensor([2.0] * 4 + [0.0] * 4, dtype=torch.float64)
    found = Plain(fleets[0], inputs, targets, 8, [INF] * 3, weights).epoch(0, [0.1] * 3, 0.0, lambda: False)
    expected = Plain(fleets[1], inputs[:4], targets[:4], 4, [INF] * 3).epoch(0, [0.1] * 3, 0.0, lambda: False)
    for a, b in zip(fleets[0].weights, fleets[1].weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.loss, 2 * expected.loss, rtol=1e-12, atol=0)


HELD = """
import sys
from pathlib import Path

import torch

from meannet import fast
from meannet.config import Optim
from meannet.nn.dense import initial_fleet
from meannet.train import train

torch.set_num_threads(1)
rates = [torch.full((3, 1), rate, dtype=torch.float64) for rate in (0.2, 0.5)]
fleet = initial_fleet((200, 300, 10), (0, 1, 2), rates, units="rectified", sd=0.05)
inputs, targets = torch.rand(400, 200), torch.arange(400) % 10
engine = fast.engine(fleet, inputs, targets, 50, [15.0] * 3, sys.argv[1])
optim = Optim(epochs=120, batch=50, lr=0.1, decay=1.0, momentum_start=0.5, momentum_end=0.9, momentum_epochs=1)
pages = []
for epoch in train(fleet, engine, 400, optim, [0.1] * 3):
    pages.append(int(Path("/proc/self/statm").read_text().split()[1]))
print((max(pages[100:]) - max(pages[10:20])) * 4096)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell how much memory is held")
@pytest.mark.parametrize("path", ["plain", "auto"])
def test_a_hundred_epochs_hold_no_more_memory_than_ten(path):
    done = subprocess.run([sys.executable, "-c", HELD, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1 << 20
