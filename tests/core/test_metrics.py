"""Losses, their gradients and errors, against loops and autograd."""

import math

import numpy as np
import pytest
import torch

from meannet.core import metrics


@pytest.fixture
def outputs():
    """(nets, cases, classes)"""
    return 2 * torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def targets():
    return torch.randint(0, 4, (3, 6), generator=torch.Generator().manual_seed(1))


def test_cross_entropy_is_summed_over_cases_for_each_net(outputs, targets):
    expected = [
        sum(math.log(sum(math.exp(z) for z in case)) - case[right] for case, right in zip(net, answers, strict=True))
        for net, answers in zip(outputs.tolist(), targets.tolist(), strict=True)
    ]
    np.testing.assert_allclose(metrics.losses(outputs, targets, "softmax"), expected, rtol=1e-12)


def test_squared_error_is_halved_and_summed_over_cases_and_outputs(outputs):
    aims = outputs.flip(1)
    expected = [0.5 * ((net - aim) ** 2).sum() for net, aim in zip(outputs.numpy(), aims.numpy(), strict=True)]
    np.testing.assert_allclose(metrics.losses(outputs, aims, "linear"), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", metrics.OUTPUTS)
def test_loss_gradient_is_autograds(outputs, targets, kind):
    aims = targets if kind == "softmax" else outputs.flip(1)
    free = outputs.clone().requires_grad_()
    (expected,) = torch.autograd.grad(metrics.losses(free, aims, kind).sum(), free)
    np.testing.assert_allclose(metrics.loss_gradient(outputs, aims, kind), expected, rtol=1e-12, atol=1e-15)


def test_cross_entropy_of_far_apart_outputs_is_finite():
    far = torch.tensor([[[1e4, 0.0], [0.0, 1e4]]])
    assert metrics.losses(far, torch.tensor([[1, 1]]), "softmax").tolist() == [1e4]


def test_errors_count_wrong_answers_per_net(outputs, targets):
    expected = [
        sum(int(np.argmax(case)) != right for case, right in zip(net, answers, strict=True))
        for net, answers in zip(outputs.numpy(), targets.tolist(), strict=True)
    ]
    assert metrics.errors(outputs, targets).tolist() == expected
    shared = targets[0]
    assert metrics.errors(outputs, shared).tolist() == [metrics.errors(one, shared).item() for one in outputs]


def test_the_first_of_equal_outputs_is_the_answer():
    assert metrics.errors(torch.zeros(1, 3, 4), torch.tensor([0, 1, 3])).tolist() == [2]


def test_cross_entropy_of_logistic_outputs_is_summed_over_cases_and_labels(outputs):
    aims = (outputs.flip(1) > 0).double()
    right = 1 / (1 + np.exp(np.where(aims.numpy() > 0, -outputs.numpy(), outputs.numpy())))
    np.testing.assert_allclose(metrics.losses(outputs, aims, "logistic"), -np.log(right).sum((1, 2)), rtol=1e-12)
    wrong = ((right < 0.5).any(-1)).sum(-1)
    assert metrics.errors(outputs, aims, "logistic").tolist() == wrong.tolist()


def test_several_softmaxes_are_each_one_on_its_own(outputs, targets):
    aims = torch.stack((targets % 3, targets.flip(1) * 0), -1)  # classes of 3, then the only one of 1
    alone = [(outputs[..., :3], aims[..., 0]), (outputs[..., 3:], aims[..., 1])]
    groups = (3, 1)
    found = metrics.losses(outputs, aims, "softmax", groups)
    np.testing.assert_allclose(found, sum(metrics.losses(o, t, "softmax") for o, t in alone), rtol=1e-12)
    gradients = torch.cat([metrics.loss_gradient(o, t, "softmax") for o, t in alone], -1)
    assert metrics.loss_gradient(outputs, aims, "softmax", groups).equal(gradients)
    assert metrics.errors(outputs, aims, groups=groups).equal(metrics.errors(*alone[0]))


def test_weights_multiply_the_losses_of_their_cases(outputs, targets):
    weights = torch.rand(3, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    each = [metrics.losses(outputs[:, [c]], targets[:, [c]], "softmax") for c in range(6)]
    expected = sum(weights[:, c] * each[c] for c in range(6))
    np.testing.assert_allclose(metrics.losses(outputs, targets, "softmax", weights=weights), expected, rtol=1e-12)
