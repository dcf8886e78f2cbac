"""Rates that units adapt within a run: whose they are, that they are saved, and what they are for."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toys import every_update_asks, outcome, small  # noqa: F401, a fixture

from meannet import adapting, data, fast
from meannet import experiment as experiments
from meannet.config import Adapt
from meannet.core.rates import adapted
from meannet.data import Cases
from meannet.experiment import Interrupted, Options
from meannet.fleets import load_fleet, trained_fleet
from meannet.nn import dense
from meannet.runlog import RunFolder
from meannet.trained import Choice, open_trained


@pytest.fixture(scope="module")
def toy():
    return replace(small("claims.adapted", epochs=4), adapt=Adapt(cases=40, samples=3, pace=5.0, start=1))


@pytest.fixture(scope="module")
def folder(toy, tmp_path_factory):
    where = tmp_path_factory.mktemp("adapting") / "run"
    experiments.run(toy, where)
    return where


def fleet_of(toy, folder):
    digits = data.load(toy.data, say=print)
    return load_fleet(toy, RunFolder.open(folder), toy.net.hidden[0], digits, torch.device("cpu"))[0]


def test_rates_of_arms_that_adapt_move_apart_and_others_stay(toy, folder):
    fleet = fleet_of(toy, folder)
    for rate in fleet.rates[1:]:
        for net, (arm, _) in enumerate(toy.pairs()):
            moved = (rate[net] != 0.5).double().mean()
            assert moved > 0.9 if arm.adapt else moved == 0
    trained = trained_fleet(toy, RunFolder.open(folder), toy.net.hidden[0])
    assert all(torch.equal(one, other) for one, other in zip(trained.rates[1:], fleet.rates[1:], strict=True))


def test_the_mean_network_and_what_is_exported_have_these_rates(toy, folder):
    fleet, digits = fleet_of(toy, folder), data.load(toy.data, say=print)
    net = [arm.adapt for arm, _ in toy.pairs()].index(True)
    below = digits.test.inputs[:30].double().numpy()
    for k, (weight, bias, rate) in enumerate(zip(fleet.weights, fleet.biases, fleet.rates, strict=True)):
        keep = 1.0 if rate is None else 1 - rate[net].numpy()
        below = (below * keep) @ weight[net].double().numpy().T + bias[net].double().numpy()
        below = np.maximum(below, 0) if k < 2 else below
    wanted = np.exp(below) / np.exp(below).sum(1, keepdims=True)
    arm, seed = toy.pairs()[net]
    found = open_trained(folder, Choice(arm=arm.name, seed=str(seed))).network(digits.test.inputs[:30].double())
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_stopped_anywhere_and_resumed_a_run_ends_as_the_unbroken_one(toy, folder, path, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    experiments.run(toy, whole, Options(path=path))
    for stop_at in (4, 4):
        asked = iter(range(10**6))
        stop = lambda asked=asked, stop_at=stop_at: next(asked) > stop_at  # noqa: E731
        options = Options(path=path, stop=stop, save_epochs=1)
        with pytest.raises(Interrupted):
            experiments.resume(broken, options) if broken.exists() else experiments.run(toy, broken, options)
    experiments.resume(broken)
    assert outcome(broken) == outcome(whole)


def test_a_step_is_that_of_thinned_networks_made_by_hand(toy):
    digits = data.load(toy.data, say=print)
    cases = Cases(digits.test.inputs[:20], digits.test.targets[:20])
    settings = Adapt(cases=20, samples=2, pace=3.0)
    generator = torch.Generator().manual_seed(0)
    rates = [torch.zeros(1, 64).double(), torch.rand(1, 6, generator=generator).double() * 0.8 + 0.1]
    fleet = dense.initial_fleet((64, 6, 10), [5], rates, units="rectified", sd=0.5)
    before = fleet.rates[1].clone()
    keep = torch.cat([dense.masks(fleet, 3 * 2 + sample, range(20), 6)[1][0] for sample in (0, 1)]).double()
    weights, biases = [w[0].double() for w in fleet.weights], [b[0].double() for b in fleet.biases]
    twice = torch.cat([cases.inputs, cases.inputs]).double()
    hidden = (twice @ weights[0].T + biases[0]).relu() * keep
    right = (hidden @ weights[1].T + biases[1]).log_softmax(-1)[range(40), cases.targets.repeat(2)].clamp_min(-5)
    advantage = [right[keep[:, unit] == 1].mean() - right.mean() for unit in range(6)]
    adapting.adapt_(fleet, cases, 3, settings, [True])
    wanted = adapted(before, torch.stack(advantage)[None], 3.0, settings.least, settings.most)
    np.testing.assert_allclose(fleet.rates[1], wanted, rtol=1e-5)


def test_rates_are_the_same_by_both_paths_and_move_from_the_epoch_on_that_is_named(toy, tmp_path):
    late = replace(toy, adapt=replace(toy.adapt, start=3), arms=toy.arms[1:])
    for path in ("plain", "fast"):
        experiments.run(late, tmp_path / path, Options(path=path))
    plain, fast_ones = (fleet_of(late, tmp_path / path) for path in ("plain", "fast"))
    for one, other in zip(plain.rates[1:], fast_ones.rates[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
        assert (one != 0.5).any()
    never = replace(late, adapt=replace(toy.adapt, start=4))
    experiments.run(never, tmp_path / "never")
    assert all((rate == 0.5).all() for rate in fleet_of(never, tmp_path / "never").rates[1:])


def test_each_epoch_draws_masks_of_its_own(toy):
    digits = data.load(toy.data, say=print)
    cases = Cases(digits.test.inputs[:20], digits.test.targets[:20])
    found = []
    for epoch in (0, 1):
        rates = [torch.zeros(1, 64).double(), torch.full((1, 6), 0.5).double()]
        fleet = dense.initial_fleet((64, 6, 10), [5], rates, units="rectified", sd=0.5)
        adapting.adapt_(fleet, cases, epoch, Adapt(cases=20), [True])
        found.append(fleet.rates[1])
    assert not torch.equal(*found)


def test_no_arm_learns_from_the_cases_that_rates_are_judged_on(toy, tmp_path, monkeypatch):
    seen, engine = [], fast.engine
    monkeypatch.setattr(
        fast, "engine", lambda fleet, inputs, *a, **k: seen.append(inputs) or engine(fleet, inputs, *a, **k)
    )
    experiments.run(replace(toy, optim=replace(toy.optim, epochs=1)), tmp_path / "run")
    assert torch.equal(seen[0], data.load(toy.data, say=print).train.inputs[:-40])


def test_what_cannot_be_adapted_is_refused(toy, tmp_path):
    with pytest.raises(ValueError, match=r"adapt\.cases must be below the 300 training cases, not 300"):
        experiments.run(replace(toy, adapt=Adapt(cases=300)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"arms\.adapted, lr 3\.adapt must be false where the experiment has no adapt"):
        replace(toy, adapt=None)
    for wrong in ({"pace": 0.0}, {"samples": 0}, {"least": 0.0}, {"least": 0.6, "most": 0.5}, {"worst": 0.0}):
        with pytest.raises(ValueError, match=r"^adapt\."):
            replace(toy, adapt=Adapt(**{"cases": 5} | wrong))
    with pytest.raises(ValueError, match="for dense nets without pretraining"):
        replace(small("mnist.a2_dbn"), adapt=Adapt(cases=5))
    with pytest.raises(ValueError, match="dense numbers"):
        adapting.apart(Cases(object(), torch.zeros(9)), Adapt(cases=5))
