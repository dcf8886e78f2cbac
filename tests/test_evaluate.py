"""Testing: the mean network and means of sampled networks, against loops, enumeration and other sizes of chunk."""

import numpy as np
import pytest
import torch
from torch import Tensor

from meannet import evaluate
from meannet.core.mean import all_masks, geometric_mean, mask_probabilities
from meannet.core.philox import SAMPLE
from meannet.nn import dense
from meannet.nn.dense import Fleet

VISIBLE, UNITS, ANSWERS, CASES = 6, 8, 4, 120


@pytest.fixture(scope="module")
def inputs() -> Tensor:
    return torch.rand(CASES, VISIBLE, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def targets() -> Tensor:
    return torch.randint(ANSWERS, (CASES,), generator=torch.Generator().manual_seed(2))


def nets(*hidden: int, visible_rate: float = 0.2, rate: float = 0.5, sd: float = 1.5) -> Fleet:
    """Two nets with weights large enough to disagree."""
    rates = [torch.full((2, 1), visible_rate), *[torch.full((2, 1), rate)] * len(hidden)]
    return dense.initial_fleet((VISIBLE, *hidden, ANSWERS), (3, 4), rates, units="logistic", sd=sd)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def outputs(fleet: Fleet, net: int, inputs: Tensor, factors: list) -> np.ndarray:
    """One net in numpy and double precision; each layer's activities are multiplied by its factor."""
    x = inputs.double().numpy()
    for k, factor in enumerate(factors):
        z = (x * factor) @ fleet.weights[k][net].double().numpy().T + fleet.biases[k][net].double().numpy()
        x = 1 / (1 + np.exp(-z))
    return z


def test_the_mean_network_is_judged_as_a_numpy_loop_judges_it(inputs, targets):
    fleet = nets(7, 5)
    wrong, log_probability = evaluate.mean_network_figures(fleet, inputs, targets)
    for net in range(2):
        probabilities = softmax(outputs(fleet, net, inputs, [0.8, 0.5, 0.5]))
        assert wrong[net] == (probabilities.argmax(1) != targets.numpy()).sum()
        right = np.log(probabilities[range(CASES), targets.numpy()]).mean()
        assert log_probability[net] == pytest.approx(right, rel=1e-5)


def test_sampled_means_are_what_a_numpy_loop_over_the_same_masks_gives(inputs, targets):
    fleet, counts = nets(7, 5), [1, 2, 5]
    arithmetic, geometric = evaluate.sampled_errors(fleet, inputs, targets, counts)
    for net in range(2):
        sampled = []
        for sample in range(5):
            keep = [mask[net].numpy() for mask in dense.masks(fleet, sample, range(CASES), SAMPLE) if mask is not None]
            sampled.append(softmax(outputs(fleet, net, inputs, keep)))
        for column, count in enumerate(counts):
            first = np.stack(sampled[:count])
            assert arithmetic[net][column] == (first.mean(0).argmax(1) != targets.numpy()).sum()
            assert geometric[net][column] == (np.log(first).mean(0).argmax(1) != targets.numpy()).sum()


def test_one_sampled_network_is_its_own_mean(inputs, targets):
    arithmetic, geometric = evaluate.sampled_errors(nets(7), inputs, targets, [1, 3])
    assert [errors[0] for errors in arithmetic] == [errors[0] for errors in geometric]


@pytest.mark.parametrize("floats", [1, 100, 1000, 1613])
def test_no_figure_depends_on_the_size_of_chunks(inputs, targets, monkeypatch, floats):
    fleet = nets(7, 5)
    sampled = evaluate.sampled_errors(fleet, inputs, targets, [1, 2, 4])
    wrong, log_probability = evaluate.mean_network_figures(fleet, inputs, targets)
    monkeypatch.setattr(evaluate, "CHUNK_FLOATS", floats)
    assert len(list(evaluate.chunks(fleet, CASES))) > 1
    assert evaluate.sampled_errors(fleet, inputs, targets, [1, 2, 4]) == sampled
    again, log_again = evaluate.mean_network_figures(fleet, inputs, targets)
    assert again == wrong and log_again == pytest.approx(log_probability, rel=1e-5)


def test_chunks_cover_every_case_once():
    fleet = nets(7)
    for cases in (1, 2, 119, 120):
        assert [case for part in evaluate.chunks(fleet, cases) for case in part] == list(range(cases))


def test_without_dropout_every_sampled_network_is_the_mean_network(inputs, targets):
    fleet = nets(7, 5, visible_rate=0.0, rate=0.0)
    wrong, _ = evaluate.mean_network_figures(fleet, inputs, targets)
    arithmetic, geometric = evaluate.sampled_errors(fleet, inputs, targets, [1, 3])
    assert arithmetic == geometric == [[count, count] for count in wrong]


def test_only_nets_that_omit_units_are_sampled(inputs, targets, monkeypatch):
    fleet = nets(7, 5)
    fleet.rates = [None if rate is None else rate.clone() for rate in fleet.rates]
    whole = evaluate.sampled_errors(fleet, inputs, targets, [1, 3])
    for rate in fleet.rates:
        if rate is not None:
            rate[0] = 0
    seen = []
    sampled = dense.Fleet.sampled_outputs
    monkeypatch.setattr(
        dense.Fleet, "sampled_outputs", lambda self, *more: seen.append(len(self.seeds)) or sampled(self, *more)
    )
    found = evaluate.sampled_errors(fleet, inputs, targets, [1, 3])
    assert set(seen) == {len(fleet.seeds) - 1}
    wrong, _ = evaluate.mean_network_figures(fleet, inputs, targets)
    for ours, theirs in zip(found, whole, strict=True):
        assert ours[0] == [wrong[0]] * 2 and ours[1:] == theirs[1:]


def test_many_sampled_networks_answer_as_the_mean_network_which_all_of_them_do_exactly(inputs):
    """One hidden layer: enumeration gives the mean network's answers, and sampling comes to them."""
    fleet = nets(UNITS, visible_rate=0.0, sd=1.0)
    masks, rates = all_masks(UNITS), torch.full((UNITS,), 0.5)
    mean = dense.mean_network(fleet, inputs[None]).log_softmax(-1)  # (nets, cases, answers)
    thinned = torch.stack([dense.activities(fleet, inputs[None], [None, mask.float()])[-1] for mask in masks])
    all_of_them = geometric_mean(thinned.log_softmax(-1), mask_probabilities(masks, rates))
    assert torch.equal(all_of_them.argmax(-1), mean.argmax(-1))
    for net in range(2):
        best = mean[net].topk(2).values
        clear = best[:, 0] - best[:, 1] > 0.15  # a case that is nearly a tie may go either way
        _, geometric = evaluate.sampled_errors(fleet, inputs[clear], mean[net, clear].argmax(-1), [1, 500])
        assert clear.sum() > CASES // 2 and geometric[net][1] == 0 < geometric[net][0]


def test_counts_are_round_numbers_up_to_the_last():
    assert evaluate.sample_counts(1) == [1]
    assert evaluate.sample_counts(2) == [1, 2]
    assert evaluate.sample_counts(50) == [1, 2, 3, 5, 7, 10, 15, 20, 30, 50]
    assert evaluate.sample_counts(64)[-3:] == [30, 50, 64]
    for samples in (0, -3):
        with pytest.raises(ValueError, match="1 or more"):
            evaluate.sample_counts(samples)
