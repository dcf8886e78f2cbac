"""Learned rates: against ordinary dropout, enumeration of every mask, finite differences and autograd."""

import json
from itertools import product

import pytest
import torch

from meannet import data
from meannet.config import Data
from meannet.core import dropout, philox
from meannet.core.mean import all_masks, mask_probabilities
from meannet.core.schedule import learning_rate, momentum
from meannet.core.sgd import step_size
from meannet.data import Cases
from meannet.kept import claims
from meannet.nn import dense
from meannet.relatives import gates
from meannet.relatives.gates import WAYS
from meannet.train import Plain

HIDDEN, INPUTS, CLASSES = 5, 3, 4
RATES = torch.tensor([0.25, 0.5, 0.75, 0.125, 0.625], dtype=torch.float64)  # multiples of 1/65536
DRAWS = torch.tensor([-(2**15), 0, 2**15 - 1], dtype=torch.int16)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small():
    """A net and its gates with weights that are not small, and log-odds of keeping units that are those of RATES."""
    nets, keep = gates.initial(INPUTS, HIDDEN, [0], CLASSES, torch.float64)
    for number, part in enumerate((*nets.weights, *nets.biases, *keep.weights, *keep.biases)):
        part.copy_(normal(*part.shape, seed=number))
    nets.biases[0] += 1  # most hidden units are active
    return nets, keep, (1 / RATES - 1).log().expand(1, 1, -1)


def loss(nets, inputs, keep, targets):
    return torch.nn.functional.cross_entropy(gates.passed_on(nets, inputs, keep)[1].flatten(0, 1), targets.flatten())


@pytest.fixture(scope="module")
def digits():
    found = data.load(Data(name="digits"), say=print)
    return Cases(found.train.inputs[:60], found.train.targets[:60]), Cases(
        found.test.inputs[:50], found.test.targets[:50]
    )


def test_gates_of_zero_keep_the_very_units_that_dropout_at_one_half_keeps():
    nets, keep = gates.initial(INPUTS, 30, [4, 9])
    logits = gates.keeping(keep, torch.rand(2, 7, INPUTS), WAYS["gates, antithetic"])
    for update in range(3):
        draws = philox.uniform16(nets.seeds, philox.MASK, 1, update, range(7), 30)
        ordinary = dropout.kept(nets.seeds, update, 1, torch.full((2, 1), 0.5), range(7), 30)
        assert torch.equal(gates.masks(draws, logits)[0], ordinary)
        assert torch.equal(gates.masks(draws, logits)[1], ~ordinary)


@pytest.mark.parametrize(("way", "rate"), [("rate 0.5", 0.5), ("none omitted", 0.0)])
def test_without_learned_gates_training_is_that_of_the_package(way, rate, digits):
    """Weights after three epochs are those of the plain loop, mask by mask, and so is the mean network."""
    train, test = digits
    epochs, seeds, lr = 3, (1, 2), (3.0, 1.0)
    nets, keep = gates.train(train, WAYS[way], [(1, 3.0, 1.0), (2, 1.0, 1.0)], hidden=20, epochs=epochs, batch=25)
    per_layer = [torch.zeros(1, 1), torch.full((2, 1), rate)]
    fleet = dense.initial_fleet((64, 20, 10), seeds, per_layer, units="rectified")
    engine = Plain(fleet, train.inputs, train.targets, 25, [gates.LIMIT] * 2)
    for epoch in range(epochs):
        now = momentum(epoch, start=gates.MOMENTUM[0], end=gates.MOMENTUM[1], ramp=1)
        share = learning_rate(epoch, start=1.0, decay=gates.LR_END ** (1 / epochs))
        engine.epoch(epoch, [step_size("a1", one * share, now) for one in lr], now, lambda: False)
    for ours, theirs in zip((*nets.weights, *nets.biases), (*fleet.weights, *fleet.biases), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert not any(part.any() for part in (*keep.weights, *keep.biases))
    found = gates.mean_outputs(nets, keep, test.inputs[None], WAYS[way])
    torch.testing.assert_close(found, fleet.mean_outputs(test.inputs[None]), rtol=1e-5, atol=1e-6)


def test_units_are_kept_with_the_probability_that_gates_say():
    *_, logits = small()
    draws = torch.arange(-(2**15), 2**15).to(torch.int16)[None, :, None]
    for mask in gates.masks(draws, logits):
        assert mask.double().mean(1).tolist() == [(1 - RATES).tolist()]


def expectation(estimator):
    """Of the gates' derivative over every pair of a mask and its mirror image, and the derivative of the mean loss."""
    nets, _, logits = small()
    inputs, target = normal(1, 1, INPUTS, seed=20), 2
    pairs = torch.stack([torch.stack(chosen) for chosen in product(DRAWS, repeat=HIDDEN)])[None]  # (1, 3^5, 5)
    cases = pairs.shape[1]
    outer = torch.minimum(
        RATES, 1 - RATES
    )  # of the least and of the largest draw; both masks agree for the one between
    share = torch.where(pairs[0] == 0, 1 - 2 * outer, outer).prod(1)
    assert share.sum().item() == pytest.approx(1, rel=1e-12)
    targets = torch.full((1, cases), target)
    whole = inputs.expand(1, cases, -1)
    way = gates.Way(True, estimator)
    *_, found = gates.deltas(nets, whole, targets, logits.expand(1, cases, -1), pairs, way)
    moved = logits[0, 0].clone().requires_grad_()
    masks = all_masks(HIDDEN)
    outputs = gates.passed_on(nets, inputs.expand(1, len(masks), -1), masks[None].double())[1][0]
    mean = mask_probabilities(masks, (-moved).sigmoid()) @ -outputs.log_softmax(-1)[:, target]
    return share @ (cases * found[0]), torch.autograd.grad(mean, moved)[0]


def test_the_antithetic_derivative_is_unbiased():
    found, truth = expectation("antithetic")
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-12)


def test_the_straight_through_derivative_is_biased_but_mostly_of_the_right_sign():
    found, truth = expectation("straight-through")
    assert (found - truth).abs().max() > 0.1 * truth.abs().max()
    assert torch.nn.functional.cosine_similarity(found, truth, dim=0) > 0.8


def test_where_nothing_is_omitted_derivatives_agree_with_finite_differences_of_the_mean_network():
    nets, keep, _ = small()
    way, inputs, targets = WAYS["gates, none omitted"], normal(1, 6, INPUTS, seed=21), torch.arange(6)[None] % CLASSES

    def mean_loss():
        return loss(nets, inputs, gates.keeping(keep, inputs, way).sigmoid(), targets).item()

    draws = torch.zeros(1, 6, HIDDEN, dtype=torch.int16)
    passed, found, gate = gates.deltas(nets, inputs, targets, gates.keeping(keep, inputs, way), draws, way)
    totals = [(keep, 0, gate, inputs), (nets, 0, found[0], passed[0]), (nets, 1, found[1], passed[1])]
    for fleet, layer, delta, below in totals:
        for part, gradient in ((fleet.weights[layer], delta.mT @ below), (fleet.biases[layer], delta.sum(1))):
            for place in product(*map(range, part.shape)):
                was, slopes = part[place].item(), []
                for nudge in (1e-6, -1e-6):
                    part[place] = was + nudge
                    slopes.append(mean_loss())
                part[place] = was
                slope = (slopes[0] - slopes[1]) / 2e-6
                assert gradient[place].item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("estimator", ["straight-through", "antithetic", None])
def test_drawn_masks_give_the_thinned_networks_derivatives_and_straight_through_is_that_by_the_mask(estimator):
    nets, _, logits = small()
    inputs, targets = normal(1, 6, INPUTS, seed=22), torch.arange(6)[None] % CLASSES
    draws, logits = philox.uniform16(nets.seeds, philox.MASK, 1, 0, range(6), HIDDEN), logits.expand(1, 6, -1)
    passed, found, gate = gates.deltas(nets, inputs, targets, logits, draws, gates.Way(True, estimator))
    mask = gates.masks(draws, logits)[0].double().requires_grad_()
    weights = [weight.requires_grad_() for weight in nets.weights]
    by_mask, *by_weights = torch.autograd.grad(loss(nets, inputs, mask, targets), [mask, *weights])
    for delta, below, truth in zip(found, passed, by_weights, strict=True):
        torch.testing.assert_close((delta.mT @ below).detach(), truth, rtol=1e-10, atol=1e-12)
    if estimator == "straight-through":
        slope = logits.sigmoid() * (1 - logits.sigmoid())
        torch.testing.assert_close(gate.detach(), by_mask * slope, rtol=1e-10, atol=1e-12)


def test_regimes_are_named_by_an_input_and_permute_the_labels(digits):
    train, test = digits
    made = gates.with_regimes(train, test)
    for cases, was in zip(made, digits, strict=True):
        shifted = cases.inputs[:, 64:] - cases.inputs[:, 64:].amin(0)
        regime = shifted.argmax(1)
        assert (shifted.count_nonzero(1) == 1).all() and len(set(regime.tolist())) == gates.REGIMES
        pairs = {
            (r, old, new)
            for r, old, new in zip(*map(torch.Tensor.tolist, (regime, was.targets, cases.targets)), strict=True)
        }
        assert len(pairs) == len({(r, old) for r, old, _ in pairs}) == len({(r, new) for r, _, new in pairs})
        assert not torch.equal(cases.targets, was.targets)
    torch.testing.assert_close(made[0].inputs.mean(0), torch.zeros(68), rtol=0, atol=1e-6)
    again = gates.with_regimes(train, Cases(test.inputs[:7], test.targets[:7]))
    assert torch.equal(again[0].inputs, made[0].inputs) and torch.equal(again[0].targets, made[0].targets)


@pytest.mark.parametrize("name", ["gates, straight-through", "gates, antithetic"])
def test_gates_learn_to_keep_the_expert_of_a_regime_and_to_omit_the_others(name):
    """Each of three hidden units speaks for a class of its own, whatever it sees; the regime is the class."""
    nets, keep = gates.initial(3, 3, [7], 3)
    nets.weights[0].zero_()
    nets.biases[0].fill_(1.0)
    nets.weights[1].copy_(2 * torch.eye(3)[None])
    targets = torch.arange(30)[None] % 3
    inputs = torch.eye(3)[targets]
    for update in range(200):
        draws = philox.uniform16(nets.seeds, philox.MASK, 1, update, range(30), 3)
        *_, delta = gates.deltas(nets, inputs, targets, gates.keeping(keep, inputs, WAYS[name]), draws, WAYS[name])
        dense.update_(keep, [inputs], [delta], torch.full((1, 1, 1), 3.0), 0.9, torch.tensor(1.0))
    kept = gates.keeping(keep, torch.eye(3)[None], WAYS[name])[0].sigmoid()
    assert kept.diagonal().min() > 0.95 and (kept - torch.diag(kept.diagonal())).max() < 0.05


def test_learning_rates_are_chosen_on_held_out_cases_and_rows_have_an_error_count_a_seed(digits, monkeypatch):
    monkeypatch.setattr(gates, "LR", (1e-9, 3.0))  # nets hardly learn with the first
    monkeypatch.setattr(gates, "PACES", (1.0, 10.0))
    train, test = digits
    rows = gates.compare((train, test), (train, test), print, seeds=2, tried=2, hidden=20, epochs=40)
    assert [(row["data"], row["way"]) for row in rows] == list(product(gates.DATA, WAYS))
    assert all(row["lr"] == 3.0 and len(row["errors"]) == 2 and row["n_test"] == 50 for row in rows)
    assert ["kept" in row for row in rows] == [WAYS[row["way"]].gates is not None for row in rows]
    first, _ = gates.DATA["digits"](train, test)
    nets, _ = gates.train(first, WAYS["rate 0.5"], [(1, 3.0, 1.0)], hidden=20, epochs=40)
    found = 0.5 * (gates.centred(train, test)[1].inputs @ nets.weights[0][0].T + nets.biases[0][0]).relu()
    wrong = (found @ nets.weights[1][0].T + nets.biases[1][0]).argmax(1) != test.targets
    assert rows[1]["errors"][1] == wrong.sum()


def test_the_table_sets_every_way_beside_a_fixed_rate(tmp_path):
    assert claims.gates_table(tmp_path, tmp_path) == claims.EMPTY
    fixed = {"data": "digits", "way": "rate 0.5", "lr": 3.0, "errors": [40, 44], "n_test": 1000}
    learned = fixed | {"way": "gates", "errors": [41, 49], "pace": 10.0, "kept": 0.5, "kept_sd": 0.125}
    kept = {"comparison": "gates", "rows": [fixed, learned], "seconds": 3.0, "device": "a CPU"}
    (tmp_path / "relatives").mkdir()
    (tmp_path / "relatives" / "gates.json").write_text(json.dumps(kept))
    lines = claims.gates_table(tmp_path, tmp_path).splitlines()
    assert lines[2] == "| digits: rate 0.5, lr 3 | 42.0 ± 2.8 |  |  |"
    assert lines[3] == "| digits: gates, lr 3, pace 10 | 45.0 ± 5.7 | +3.0 ± 2.0 | 0.50 ± 0.12 |"
