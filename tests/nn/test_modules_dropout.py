"""Dropout as a module: its masks against core and a loop, its stream, and its manners among torch's own parts."""

import copy
import io
import math
import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from meannet.core import philox
from meannet.core.dropout import LEVELS, kept
from meannet.nn import Dropout, dense, seed_dropout_
from meannet.optim import DropoutSGD, param_groups
from meannet.train import Plain

COMPILER = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
RATES = torch.linspace(0, 0.9, 7, dtype=torch.float64)


def thinned(x, rate, seed, layer, update, first=0):
    """By core's own function, in the shape of x."""
    units = x[0].numel()
    rates = torch.as_tensor(rate, dtype=torch.float64).expand(x.shape[1:] if torch.is_tensor(rate) else ())
    keep = kept(torch.tensor([seed]), update, layer, rates.reshape(1, -1), range(first, first + len(x)), units)
    return x * keep[0].view(x.shape)


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 2, 7), (3, 1), (0, 7), (6,), (1, 1000)])
def test_training_masks_are_cores_at_seed_layer_and_update(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    dropout = Dropout(0.4, seed=2**40 + 3, layer=5)
    for update in range(3):
        expected = thinned(x, 0.4, 2**40 + 3, 5, update) if len(x) else x
        assert dropout(x).equal(expected)
    assert dropout.updates.item() == 3


@pytest.mark.parametrize("rates", [RATES, RATES[:3, None, None], RATES[:6].view(3, 2, 1)])
def test_rates_may_belong_to_units_channels_or_places(rates):
    x = torch.ones(5, 3, 2, 7)
    if rates.dim() == 1:
        x = torch.ones(5, 7)
    dropout = Dropout(rates, seed=1)
    assert dropout(x).equal(thinned(x, rates, 1, 0, 0))
    assert dropout.eval()(x.double()).equal((1 - rates).expand(x.shape))


def test_each_units_own_rate_is_met():
    mask = Dropout(RATES, seed=3)(torch.ones(40_000, 7)).double()
    deviation = (1 - mask.mean(0) - RATES).abs()
    assert (deviation <= 4.5 * (RATES * (1 - RATES) / 40_000).sqrt() + 0.5 / LEVELS).all()


def test_at_test_the_paper_scales_and_inverted_dropout_does_nothing():
    x = torch.randn(4, 7, dtype=torch.float64)
    assert Dropout(0.2, seed=0).eval()(x).equal(x * 0.8)
    assert Dropout(0.2, seed=0, convention="inverted").eval()(x).equal(x)
    paper, inverted = Dropout(0.2, seed=0)(x), Dropout(0.2, seed=0, convention="inverted")(x)
    np.testing.assert_allclose(inverted, paper / 0.8, rtol=1e-15)


def test_testing_neither_draws_nor_counts():
    dropout = Dropout(0.5, seed=0)
    dropout.eval()(torch.ones(3, 3))
    assert dropout.updates.item() == 0


def test_torchs_random_state_is_neither_read_nor_moved():
    before, masks = torch.get_rng_state(), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        at = torch.get_rng_state()
        masks.append(Dropout(0.5, seed=9)(torch.ones(20, 20)))
        assert torch.get_rng_state().equal(at)
    torch.set_rng_state(before)
    assert masks[0].equal(masks[1])


def test_modules_without_a_seed_do_not_share_masks_nor_do_layers_or_seeds():
    x = torch.ones(50, 50)
    masks = [Dropout()(x), Dropout()(x), Dropout(seed=0)(x), Dropout(seed=1)(x), Dropout(seed=0, layer=1)(x)]
    found = np.abs(np.corrcoef([mask.flatten().numpy() for mask in masks]) - np.eye(5))
    assert found.max() < 4.5 / 50


def test_seed_dropout_numbers_the_layers_of_a_net():
    net = nn.Sequential(Dropout(), nn.Linear(4, 4), nn.Sequential(Dropout(), nn.ReLU()), Dropout())
    net(torch.ones(2, 4))
    seed_dropout_(net, 7)
    found = [tuple(int(b) for b in (d.seed, d.layer, d.updates)) for d in (net[0], net[2][0], net[3])]
    assert found == [(7, 0, 0), (7, 1, 0), (7, 2, 0)]


def test_a_state_dict_holds_seed_and_counter_and_brings_back_the_same_masks():
    net = nn.Sequential(Dropout(0.3), nn.Linear(7, 7), Dropout(RATES, layer=2))
    x = torch.ones(5, 7)
    for _ in range(4):
        net(x)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    onwards = [net(x) for _ in range(3)]
    resumed = nn.Sequential(Dropout(0.3, seed=11), nn.Linear(7, 7), Dropout(torch.zeros(7), seed=12))
    state = torch.load(file, weights_only=True)
    assert {"0.seed", "0.updates", "2.seed", "2.updates", "2.rates"} <= set(state) and "0.rates" not in state
    resumed.load_state_dict(state)
    assert all(resumed(x).equal(expected) for expected in onwards)


def test_a_deep_copy_goes_its_own_way_from_the_same_place():
    dropout, x = Dropout(0.5), torch.ones(9, 9)
    dropout(x)
    twin = copy.deepcopy(dropout)
    first, second = dropout(x), dropout(x)
    assert twin(x).equal(first) and twin(x).equal(second)


@pytest.mark.parametrize("rates", [0.4, RATES])
@pytest.mark.parametrize("way", ["made there", "moved there"])
def test_a_module_without_memory_keeps_its_settings_until_it_has_some(rates, way):
    with torch.device("meta" if way == "made there" else "cpu"):
        net = nn.Sequential(nn.Linear(7, 7), Dropout(rates, seed=3, layer=2)).to("meta")
    assert "seed=3, layer=2" in repr(net)
    for training in (True, False):
        out = net.train(training)(torch.ones(5, 7, device="meta"))
        assert out.is_meta and out.shape == (5, 7)
        whole = net[1](torch.ones(5, 7, dtype=torch.int64, device="meta"))
        assert whole.dtype == Dropout(rates).train(training)(torch.ones(5, 7, dtype=torch.int64)).dtype
    dropout, x = net.to_empty(device="cpu")[1], torch.ones(5, 7)
    np.testing.assert_allclose(dropout(x), (1 - torch.as_tensor(rates)).expand(5, 7))
    assert dropout.train()(x).equal(thinned(x, rates, 3, 2, 0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_casting_a_module_leaves_its_rates_and_so_its_masks_as_they_were(dtype):
    plain, cast = Dropout(0.001, seed=4), Dropout(0.001, seed=4).to(dtype)
    assert cast.rates.dtype == torch.float64
    x = torch.ones(100, 100)
    out = cast(x.to(dtype))
    assert out.dtype == dtype and out.double().equal(plain(x).double())
    assert cast.eval()(x.to(dtype)).dtype == dtype


def test_parts_of_a_batch_draw_what_the_whole_would():
    x = torch.ones(10, 6)
    whole = Dropout(0.5, seed=1)(x)
    parts = [Dropout(0.5, seed=1) for _ in range(2)]
    parts[1].first_case = 4
    assert torch.cat([parts[0](x[:4]), parts[1](x[4:])]).equal(whole)


def test_gradients_are_finite_differences_to_the_second_order():
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)

    def fixed(x, convention):
        return Dropout(RATES, seed=2, convention=convention)(x.square() * x)

    for convention in ("paper", "inverted"):
        assert torch.autograd.gradcheck(fixed, (x, convention))
        assert torch.autograd.gradgradcheck(fixed, (x, convention))


def test_an_omitted_unit_passes_nothing_on_even_where_it_is_infinite():
    x = torch.full((4, 50), math.inf, requires_grad=True)
    out = Dropout(0.5, seed=0)(x)
    assert set(out.flatten().tolist()) == {0.0, math.inf}
    out.sum().backward()
    assert x.grad is not None and x.grad.equal((out > 0).float())


def test_autocast_keeps_the_masks():
    net = nn.Sequential(nn.Linear(8, 8), Dropout(0.5, seed=1))
    twin = copy.deepcopy(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(torch.ones(6, 8))
    assert low.dtype == torch.bfloat16 and (low == 0).equal(twin(torch.ones(6, 8)) == 0)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    ("backend", "batches"), [("aot_eager", (5, 6, 9)), pytest.param("inductor", (5, 5), marks=COMPILER)]
)
def test_compiled_it_draws_the_same_masks_without_breaks(backend, batches):
    torch.compiler.reset()
    dropout, plain = Dropout(RATES, seed=3), Dropout(RATES, seed=3)
    compiled = torch.compile(dropout, backend=backend, fullgraph=True)
    for cases in batches:
        x = torch.randn(cases, 7)
        assert compiled(x).equal(plain(x))
    assert dropout.updates.item() == len(batches)


@pytest.mark.parametrize("training", [True, False])
def test_exported_it_does_the_same(training):
    dropout, plain = Dropout(RATES, seed=3).train(training), Dropout(RATES, seed=3).train(training)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(dropout, (torch.randn(4, 7),), dynamic_shapes=({0: batch},)).module()
    for cases in (3, 8):
        x = torch.randn(cases, 7)
        assert program(x).equal(plain(x))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputing_it_in_a_backward_pass_is_refused(reentrant):
    x = torch.ones(3, 7, requires_grad=True)
    out = checkpoint(nn.Sequential(nn.Linear(7, 7), Dropout(0.5)), x, use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match=r"outside torch\.utils\.checkpoint"):
        out.sum().backward()


@pytest.mark.parametrize("rate", [1.0, -0.1, math.nan, [0.5, 1.0]])
def test_a_rate_outside_zero_to_one_is_refused(rate):
    with pytest.raises(ValueError, match=r"in \[0, 1\), not"):
        Dropout(rate)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: Dropout(convention="keras"), "the conventions are paper, inverted"),
    (lambda: Dropout(seed=-1), "seed must be in"),
    (lambda: Dropout(layer=1 << 24), "layer in"),
    (lambda: Dropout(RATES)(torch.ones(3, 6)), r"rates of shape \(7,\) do not fit units of shape \(6,\)"),
    (lambda: Dropout(RATES).eval()(torch.ones(7)), "do not fit"),
    (lambda: Dropout()(torch.tensor(1.0)), "a single number has none"),
])  # fmt: skip
def test_wrong_requests_are_refused_with_the_remedy(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_it_prints_its_settings():
    assert repr(Dropout(0.2, seed=3)) == "Dropout(0.2, seed=3, layer=0)"
    assert "(7,) rates" in repr(Dropout(RATES, seed=3)) and "inverted" in repr(Dropout(convention="inverted"))


@pytest.mark.parametrize("units", dense.UNITS)
def test_a_net_of_torchs_parts_trains_as_the_fleet_does(units):
    """Masks, mean network, rule, bound and momentum of the two ways to the same net."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(60, 6, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 4, (60,), generator=generator)
    rates = [torch.tensor([[rate]], dtype=torch.float64) for rate in (0.2, 0.5, 0.4)]
    fleet = dense.initial_fleet((6, 8, 7, 4), [5], rates, units=units, sd=0.7, dtype=torch.float64)
    active = nn.Sigmoid if units == "logistic" else nn.ReLU
    net = nn.Sequential(
        Dropout(0.2, seed=5, layer=0), nn.Linear(6, 8), active(),
        Dropout(0.5, seed=5, layer=1), nn.Linear(8, 7), active(),
        Dropout(0.4, seed=5, layer=2), nn.Linear(7, 4),
    ).double()  # fmt: skip
    layers = [net[1], net[4], net[7]]
    with torch.no_grad():
        for layer, weight in zip(layers, fleet.weights, strict=True):
            layer.weight.copy_(weight[0])
            layer.bias.zero_()
    optimizer = DropoutSGD(param_groups(net, limit=2.0), lr=0.5, momentum=0.8)
    engine = Plain(fleet, inputs, targets, 25, [2.0])
    for epoch in range(4):
        engine.epoch(epoch, [0.1], 0.8, lambda: False)
        for chosen in philox.order(torch.tensor([5]), epoch, 60)[0].split(25):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
    for layer, weight, bias in zip(layers, fleet.weights, fleet.biases, strict=True):
        np.testing.assert_allclose(layer.weight.detach(), weight[0], rtol=1e-11)
        np.testing.assert_allclose(layer.bias.detach(), bias[0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(net.eval()(inputs).detach(), dense.mean_network(fleet, inputs[None])[0], rtol=1e-12)


def test_whole_numbers_are_scaled_too():
    dropout = Dropout(0.5, seed=1)
    x = torch.full((4, 6), 7)
    assert set(dropout(x).flatten().tolist()) == {0.0, 7.0}
    assert dropout.eval()(x).flatten().tolist() == [3.5] * 24
    assert set(Dropout(0.5, seed=1, convention="inverted")(x).flatten().tolist()) == {0.0, 14.0}
