"""Hamiltonian Monte Carlo: against reversal, finite differences, a known Gaussian, a grid, and averages by hand."""

import json
import math
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal

from meannet import data
from meannet.config import Data
from meannet.data import Cases
from meannet.estimators import DropoutClassifier
from meannet.kept import claims
from meannet.relatives import monte_carlo
from meannet.relatives.monte_carlo import Net, energy, leapfrog, point, sample

NET = Net(3, 4, 5)
COVARIANCE = torch.tensor([[1.0, 0.6, 0.0], [0.6, 2.0, -0.5], [0.0, -0.5, 0.5]], dtype=torch.float64)
MEAN = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def gaussian(position):
    away = position - MEAN
    return -0.5 * (away @ COVARIANCE.inverse() * away).sum(1)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior(scales=(2.0, 3.0)):
    """Of a small net and made-up cases."""
    inputs, targets = normal(20, NET.inputs, seed=1), torch.arange(20) % NET.classes
    sd = NET.prior_sd(*scales)
    return NET.log_posterior(sd, inputs, targets), sd, inputs, targets


@pytest.fixture(scope="module")
def digits():
    found = data.load(Data(name="digits"), say=print)
    return [Cases(cases.inputs[:50], cases.targets[:50]) for cases in (found.train, found.test)]


def test_leapfrog_comes_back_when_momentum_is_turned_round():
    density, sd, *_ = posterior()
    start, momentum, step = point(density, normal(2, len(sd))), normal(2, len(sd), seed=2), torch.full((2, 1), 0.05)
    there, last = leapfrog(density, start, momentum, step, 30)
    assert (there.position - start.position).abs().max() > 0.1
    back, first = leapfrog(density, there, -last, step, 30)
    torch.testing.assert_close(back.position, start.position, rtol=0, atol=1e-10)
    torch.testing.assert_close(-first, momentum, rtol=0, atol=1e-10)


def test_leapfrog_conserves_the_hamiltonian_to_the_square_of_the_step():
    density, sd, *_ = posterior()
    start, momentum = point(density, normal(1, len(sd))), normal(1, len(sd), seed=2)
    errors = []
    for halvings in range(4):
        step, steps = 0.02 / 2**halvings, 40 * 2**halvings  # the same time
        there, last = leapfrog(density, start, momentum, torch.tensor([[step]]), steps)
        errors.append((energy(there, last) - energy(start, momentum)).abs().item())
    ratios = [larger / smaller for larger, smaller in pairwise(errors)]
    assert errors[0] < 0.1 and ratios == pytest.approx([4, 4, 4], rel=0.1)


def test_draws_have_the_mean_and_covariance_of_a_gaussian_target():
    chains, draws = 20, 400
    start, seeds = torch.zeros(chains, 3, dtype=torch.float64), torch.arange(chains)
    found = torch.stack([one for one, _ in islice(sample(gaussian, start, seeds, burn_in=100, steps=10), draws)])
    means = found.mean(0)  # (chains, 3)
    products = ((found - MEAN)[..., :, None] * (found - MEAN)[..., None, :]).mean(0)  # (chains, 3, 3)
    for estimates, truth in ((means, MEAN), (products, COVARIANCE)):
        error = estimates.std(0) / chains**0.5  # chains are independent of each other, whatever their draws are
        assert ((estimates.mean(0) - truth).abs() < 4 * error).all() and error.max() < 0.1


def test_proposals_are_refused_where_coarse_steps_would_give_a_wider_density(monkeypatch):
    """Leapfrog with steps h leaves not a standard normal density alone, but one of variance 1 / (1 - h² / 4)."""
    monkeypatch.setattr(monte_carlo, "FIRST_STEP", 1.6)
    monkeypatch.setattr(monte_carlo, "JITTER", 0.0)

    def standard(position):
        return -0.5 * position.square().sum(1)

    chains, wide = 2000, 1 / (1 - 1.6**2 / 4)
    momentum, start = normal(chains, 1, seed=3), normal(chains, 1, seed=4)
    there, _ = leapfrog(standard, point(standard, wide**0.5 * start), momentum, torch.tensor([[1.6]]), 3)
    assert there.position.var().item() == pytest.approx(wide, rel=0.1)
    *_, (found, accepted) = islice(sample(standard, start, torch.arange(chains), burn_in=0, steps=3), 20)
    assert found.var().item() == pytest.approx(1, abs=0.1) and accepted.mean() < 0.9


def test_chains_adapt_to_the_wanted_acceptance_and_depend_on_their_own_seed_alone():
    density, sd, *_ = posterior()
    start, seeds = normal(4, len(sd)), torch.tensor([5, 6, 7, 8])
    both = [list(islice(sample(density, start, seeds, burn_in=200, steps=5), 100)) for _ in range(2)]
    positions, accepted = (torch.stack(part) for part in zip(*both[0], strict=True))
    assert torch.equal(positions, torch.stack([one for one, _ in both[1]]))
    assert accepted.mean().item() == pytest.approx(monte_carlo.ACCEPTED, abs=0.06)
    alone = islice(sample(density, start[2:3], seeds[2:3], burn_in=200, steps=5), 3)
    torch.testing.assert_close(torch.stack([one for one, _ in alone])[:, 0], positions[:3, 2], rtol=0, atol=1e-6)


def test_thinning_keeps_every_third_transition():
    start, seeds = normal(2, 3), torch.tensor([1, 2])
    every = [one for one, _ in islice(sample(gaussian, start, seeds, burn_in=7, steps=4), 12)]
    third = [one for one, _ in islice(sample(gaussian, start, seeds, burn_in=7, steps=4, thin=3), 4)]
    assert all(map(torch.equal, third, every[2::3]))


def test_the_posterior_is_that_of_independent_normal_weights_and_a_softmax():
    """Against torch.distributions and a loop over cases; the two may differ by a constant."""
    density, sd, inputs, targets = posterior()

    def by_hand(parameters):
        parts = below, bias, above, output_bias = parameters.split((12, 4, 20, 5))
        sds = torch.tensor([2 / 3**0.5, 2, 3 / 4**0.5, 3], dtype=torch.float64)
        total = sum(Normal(0 * sd, sd).log_prob(part).sum() for sd, part in zip(sds, parts, strict=True))
        for case, target in zip(inputs, targets, strict=True):
            hidden = (below.view(4, 3) @ case + bias).tanh()
            total += Categorical(logits=above.view(5, 4) @ hidden + output_bias).log_prob(target)
        return total

    first, second = normal(2, len(sd), seed=6)
    found = density(torch.stack((first, second)))
    assert (found[0] - found[1]).item() == pytest.approx((by_hand(first * sd) - by_hand(second * sd)).item(), rel=1e-9)


def test_the_gradient_of_the_posterior_agrees_with_finite_differences():
    density, sd, *_ = posterior()
    position, small = normal(1, len(sd)), 1e-6
    nudged = small * torch.eye(len(sd), dtype=torch.float64)
    slopes = (density(position + nudged) - density(position - nudged)) / (2 * small)
    torch.testing.assert_close(point(density, position).gradient[0], slopes, rtol=1e-6, atol=1e-7)


def test_the_posterior_mean_of_logistic_regression_agrees_with_a_grid():
    inputs, targets = normal(12, 2, seed=8), torch.tensor([0, 1] * 6, dtype=torch.float64)
    targets[:3] = 1.0

    def density(weights):
        totals = weights @ inputs.T
        return (targets * totals - totals.exp().log1p()).sum(1) - 0.5 * (weights / 2).square().sum(1)

    line = torch.linspace(-8, 8, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    share = density(grid).softmax(0)
    mean = share @ grid
    sd = (share @ (grid - mean).square()).sqrt()
    chains = 16
    start = torch.zeros(chains, 2, dtype=torch.float64)
    drawn = islice(sample(density, start, torch.arange(chains), burn_in=60, steps=8), 300)
    found = torch.stack([one for one, _ in drawn])
    error = found.mean(0).std(0) / chains**0.5
    assert ((found.mean((0, 1)) - mean).abs() < 4 * error).all() and error.max() < 0.1
    torch.testing.assert_close(found.flatten(0, 1).std(0), sd, rtol=0.06, atol=0)


def test_a_mode_has_no_gradient_and_is_above_what_is_near():
    density, sd, *_ = posterior()
    found = monte_carlo.mode(density, 0.1 * normal(len(sd)))[None]
    assert point(density, found).gradient.abs().max() < 0.01
    assert (density(found) > density(found + 0.1 * normal(50, len(sd), seed=9))).all()


def test_averages_are_arithmetic_means_of_probabilities():
    cases = Cases(torch.zeros(2, 1), torch.tensor([0, 1]))
    first = torch.tensor([[[0.9, 0.1], [0.6, 0.4]], [[0.2, 0.8], [0.5, 0.5]]])
    second = torch.tensor([[[0.4, 0.6], [0.1, 0.9]], [[0.7, 0.3], [0.2, 0.8]]])
    networks = iter([(first, torch.tensor([1.0, 0.5])), (second, torch.tensor([0.5, 0.5])), (first, None)])
    one, two = monte_carlo.averages(networks, cases, (1, 2))
    assert (one["networks"], one["errors"], two["errors"], two["n_test"]) == (1, [1, 2], [0, 1], 2)
    assert two["log_probability"] == pytest.approx([math.log(0.65 * 0.65) / 2, math.log(0.45 * 0.65) / 2])
    assert two["acceptance"] == [0.75, 0.5]


def test_drawn_nets_are_of_the_posterior_on_scaled_inputs(digits, monkeypatch):
    monkeypatch.setattr(monte_carlo, "HIDDEN", 6)
    monkeypatch.setattr(monte_carlo, "BURN_IN", 20)
    train, test = digits
    probabilities, accepted = next(monte_carlo.drawn((2.0, 10.0), train, test, torch.tensor([3, 4])))
    assert probabilities.shape == (2, 50, 10) and accepted.shape == (2,)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 50, dtype=torch.float64))
    raw = train.inputs.double().numpy()
    sd = np.where(raw.std(0) == 0, 1, raw.std(0))
    scaled = (raw - raw.mean(0)) / sd
    scaled /= np.sqrt(1 + (scaled / monte_carlo.REACH) ** 2)
    net = Net(64, 6)
    density = net.log_posterior(net.prior_sd(2.0, 10.0), torch.from_numpy(scaled), train.targets)
    position = normal(1, sum(net.sizes))
    ours = monte_carlo._posterior((2.0, 10.0), train, test)[2]
    torch.testing.assert_close(ours(position), density(position), rtol=1e-9, atol=0)


def test_settings_are_chosen_on_held_out_cases_and_judged_on_others(digits, monkeypatch):
    for name, value in {"HIDDEN": 6, "EPOCHS": 2, "BURN_IN": 3, "STEPS": 4}.items():
        monkeypatch.setattr(monte_carlo, name, value)
    fewer = {
        name: way._replace(settings=way.settings[:2], counts=(1, 2), tried=(2, 1))
        for name, way in monte_carlo.WAYS.items()
    }
    monkeypatch.setattr(monte_carlo, "WAYS", fewer)
    train, test = digits
    wrong = Cases(test.inputs, (test.targets + 1) % 10)
    rows = monte_carlo.compare((train, wrong), (train, test), print, repeats=2)
    assert [(row["way"], row["networks"]) for row in rows] == [(way, n) for way in fewer for n in (1, 2)]
    assert ["acceptance" in row for row in rows] == [row["way"] == "Markov chain" for row in rows]
    errors = []
    for lr in (0.3, 1.0):
        nets = [_net(0.0, lr, seed).fit(train.inputs, train.targets) for seed in (10_000, 11_000)]
        errors.append(np.mean([(net.predict(test.inputs) != wrong.targets.numpy()).sum() for net in nets]))
    lr = (0.3, 1.0)[int(np.argmin(errors))]
    assert rows[0]["setting"] == f"logistic units, lr {lr:g}"
    net = _net(0.0, lr, 1000).fit(train.inputs, train.targets)  # the second repeat's first
    assert rows[0]["errors"][1] == (net.predict(test.inputs) != test.targets.numpy()).sum()


def test_the_table_has_a_row_a_number_of_networks_and_tells_how_much_chains_accept(tmp_path):
    assert claims.chain_table(tmp_path, tmp_path) == claims.EMPTY
    row = {"way": "Markov chain", "setting": "scales 4 and 20", "n_test": 1000, "cpu_seconds": 2.5}
    figures = [
        {"networks": 1, "errors": [90, 92], "log_probability": [-1.5, -1.7], "acceptance": [1.0, 0.1]},
        {"networks": 1000, "errors": [40, 40], "log_probability": [-0.3, -0.3], "acceptance": [0.81, 0.77]},
    ]
    kept = {"comparison": "monte_carlo", "rows": [row | one for one in figures], "seconds": 3.0, "device": "a CPU"}
    (tmp_path / "relatives").mkdir()
    (tmp_path / "relatives" / "monte_carlo.json").write_text(json.dumps(kept))
    lines = claims.chain_table(tmp_path, tmp_path).splitlines()
    assert lines[2] == "| Markov chain, scales 4 and 20 | 1 | 91.0 ± 1.4 | −1.60 | 2.50 |"
    assert lines[3].startswith("| Markov chain, scales 4 and 20 | 1,000 | 40.0 ± 0.0 |")
    assert "chains accept 0.77 to 0.81 of their proposals; 3.0 s on a CPU." in lines[-1]


def _net(rate, lr, seed):
    settings = {"units": "logistic", "epochs": 2, "batch": 50}
    return DropoutClassifier((6,), lr=lr, dropout_hidden=rate, random_state=seed, **settings)
