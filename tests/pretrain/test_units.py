"""The kernel of logistic units against torch's products: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch

from meannet.fast import units
from meannet.pretrain import dbm as boltzmann
from meannet.pretrain import rbm as restricted
from meannet.pretrain.dbm import composed, joint_update_
from meannet.pretrain.divergence import contrastive_divergence_
from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import initial_rbm

pytest.importorskip("triton", reason="Triton is not installed")
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
# TF32 numbers, of which products on a GPU are, have ten bits after the point.
NEAR = {"atol": 3e-3, "rtol": 3e-3} if WHERE == "cuda" else {"atol": 1e-6, "rtol": 1e-5}
SEEDS = (0, 5, 1 << 40)


def rand(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(WHERE)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("cases", "inputs", "outputs"), [(5, 7, 3), (33, 65, 130), (1, 1, 1)])
def test_probabilities_and_states_are_those_of_torchs_products(cases, inputs, outputs, transposed):
    weights = rand(3, outputs, inputs).mT if transposed else rand(3, inputs, outputs)
    for given, biases in (
        (rand(3, cases, inputs), rand(3, 1, outputs)),
        (rand(1, cases, inputs), rand(3, cases, outputs)),
    ):
        expected = (1.5 * (torch.matmul(given.double(), weights.double() - 0.5) + biases)).sigmoid().float()
        found = units.logistic(given, weights - 0.5, biases, 1.5)
        torch.testing.assert_close(found, expected, **NEAR)
        draws, others = Draws(torch.tensor(SEEDS, device=WHERE), 1, 7), Draws(torch.tensor(SEEDS, device=WHERE), 1, 7)
        states = units.logistic_states(given, weights - 0.5, biases, 1.5, draws.next())
        assert states.equal(others.on(found))


def machine(labels=0, **doubled):
    made = initial_rbm(20 + labels, 12, SEEDS, sd=0.5, labels=labels, device=WHERE, **doubled)
    made.visible_biases.copy_(rand(3, 20 + labels) - 0.5)
    return made


def both(monkeypatch, train):
    """What a training changes, from torch's products and from the kernel."""
    found = []
    for kernel in (False, True):
        for module in (restricted, boltzmann):
            monkeypatch.setattr(module, "fused", lambda weights, kernel=kernel: kernel)
        found.append(train())
    return found


@pytest.mark.parametrize("labels", [0, 4])
def test_contrastive_divergence_does_the_same(monkeypatch, labels):
    visible = (rand(3, 9, 20 + labels) > 0.5).float()

    def train():
        rbm = machine(labels, up=2.0)
        step, momentum = torch.tensor(0.1, device=WHERE), torch.tensor(0.5, device=WHERE)
        for number in range(3):
            draws = Draws(rbm.seeds, 0, number)
            contrastive_divergence_(rbm, visible, draws, step=step, momentum=momentum, steps=2, states="samples")
        return rbm.state()

    plain, kernel = both(monkeypatch, train)
    for name, tensor in plain.items():
        torch.testing.assert_close(kernel[name], tensor, **NEAR)


def test_joint_training_does_the_same(monkeypatch):
    visible, labels = (rand(3, 9, 20) > 0.5).float(), torch.eye(4, device=WHERE)[torch.arange(9) % 4].expand(3, 9, 4)

    def train():
        first = machine(up=2.0)
        second = initial_rbm(12 + 4, 6, SEEDS, layer=1, sd=0.5, labels=4, down=2.0, device=WHERE)
        dbm = composed(first, second, 8, 2)
        settings = {"step": torch.tensor(0.05, device=WHERE), "momentum": torch.tensor(0.5, device=WHERE), "cost": 0.01}
        for number in range(2):
            joint_update_(dbm, visible, labels, Draws(first.seeds, 2, number), sweeps=4, steps=2, **settings)
        return dbm.state()

    plain, kernel = both(monkeypatch, train)
    for name, tensor in plain.items():
        torch.testing.assert_close(kernel[name], tensor, **NEAR)
