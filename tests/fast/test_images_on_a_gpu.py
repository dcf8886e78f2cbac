"""Captured updates of image nets on a real GPU, against plain ones on the same GPU."""

import math

import pytest
import torch

from meannet.config import Conv, Optim
from meannet.fast.images import Captured
from meannet.images import Plain
from meannet.nn.convfleet import conv_fleet, pixel_mean
from meannet.nn.convnets import Rates, image_net
from meannet.train import train

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # what the compiler says of itself
]
SHAPE = (3, 16, 16)
CONV = Conv(banks=(32, 32), pools=("max", "average"), local=(8,))


def pictures(count=300):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(256, (count, *SHAPE), generator=generator, dtype=torch.uint8)
    return inputs.cuda(), (inputs.float().mean((1, 2, 3)) > 127.5).long().cuda()


def fleet():
    rates = (Rates(), Rates(top=0.5), Rates(top=0.5))
    nets = [image_net(CONV, (), 2, shape=SHAPE, rates=own, seed=seed) for seed, own in enumerate(rates)]
    settings = {"output_sd": 0.1, "bias": [1.0] * 3, "units": "rectified", "scale": 1 / 64, "device": "cuda"}
    mean = pixel_mean(pictures()[0].cpu())
    return conv_fleet(nets, range(3), (0.1, 0.04, 0.04), mean=mean, decays=[(0.001, 0.001)] * 3, **settings)


def never():
    return False


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("limit", [math.inf, 0.5])
@pytest.mark.parametrize(("products", "loss", "length"), [(torch.float32, 1e-3, 2e-3), (torch.bfloat16, 0.05, 0.15)])
def test_captured_updates_do_what_plain_ones_do_to_rounding(products, loss, length, compiled, limit, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    inputs, targets = pictures()
    one, two = fleet(), fleet()
    engines = (
        Plain(one, inputs, targets, 32, [limit] * 3),
        Captured(two, inputs, targets, 32, [limit] * 3, compiled=compiled, products=products),
    )
    for epoch in range(3):
        found = [engine.epoch(epoch, [0.01] * 3, 0.9, never) for engine in engines]
        losses = [tally.loss for tally in found]
        assert torch.allclose(*losses, rtol=loss), losses
        assert all(tally.active.all() and tally.moved.all() for tally in found)
    for name, tensor in one.state().items():
        if "weights" in name or "biases" in name:
            away = (tensor - two.state()[name]).norm()
            assert away < length * tensor.norm() + length / 5, (name, away, tensor.norm())
    dropouts = [[int(d.updates) for net in made.nets for d in net.dropouts()] for made in (one, two)]
    assert dropouts[0] == dropouts[1] == [30, 30]


def test_capturing_leaves_no_trace_and_an_epoch_without_step_changes_nothing():
    inputs, targets = pictures()
    made = fleet()
    before = {name: tensor.clone() for name, tensor in made.state().items()}
    engine = Captured(made, inputs, targets, 32, [math.inf] * 3)
    assert engine.epoch(0, [0.0] * 3, 0.9, never)
    torch.cuda.synchronize()
    assert all(tensor.equal(before[name]) for name, tensor in made.state().items())


def test_a_net_alone_and_among_others_sees_the_same_cases_and_masks():
    inputs, targets = pictures()
    together, apart = fleet(), fleet()
    found = [
        Captured(made, inputs, targets, 32, [math.inf] * 3, side_by_side=way).epoch(0, [0.01] * 3, 0.9, never)
        for made, way in ((together, True), (apart, False))
    ]
    assert torch.allclose(found[0].loss, found[1].loss, rtol=0.01)


def test_a_stop_in_an_epoch_puts_every_net_back():
    inputs, targets = pictures()
    made = fleet()
    before = {name: tensor.clone() for name, tensor in made.state().items()}
    asked = iter([False, True])
    optim = Optim(epochs=2, rule="plain", batch=32, momentum_start=0.9, momentum_end=0.9, momentum_epochs=0, decay=1.0)
    engine = Captured(made, inputs, targets, 32, [math.inf] * 3)
    assert list(train(made, engine, 300, optim, [0.01] * 3, stop=lambda: next(asked))) == []
    assert all(tensor.equal(before[name]) for name, tensor in made.state().items())
