"""The Triton kernels against the plain version: on a GPU where there is one, else through Triton's interpreter."""

import itertools
import math
from functools import partial

import pytest
import torch
from scipy.sparse import csr_array

from meannet.config import Optim
from meannet.core import philox
from meannet.core.dropout import kept
from meannet.core.maxnorm import constrain_incoming_
from meannet.data.sparse import Sparse
from meannet.nn import dense
from meannet.train import Plain, train

pytest.importorskip("triton", reason="Triton is not installed: the fast path has nothing to run on")

from meannet.fast import cuda, kernels
from meannet.fast.cuda import Captured

# The interpreter computes both sides of every `where` in numpy, which warns where a GPU would not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF = math.inf
BOTH = pytest.mark.parametrize("units", dense.UNITS)
ON_A_GPU = pytest.mark.skipif(
    DEVICE == "cpu", reason="Triton's interpreter multiplies bfloat16 numbers as if they were integers"
)
SEEDS = (3, 5, 2**40 + 7)


def make(sizes, units, rates, seeds=SEEDS, sd=0.5, **more):
    """`rates` has a number for each layer, or one for each of its nets."""
    per_layer = []
    for rate in rates:
        one = torch.tensor(rate, dtype=torch.float64)
        per_layer.append(one.expand(len(seeds))[:, None] if one.dim() == 0 else one[:, None])
    return dense.initial_fleet(sizes, seeds, per_layer, units=units, sd=sd, device=DEVICE, **more)


def cases(sizes, count):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(count, sizes[0], generator=generator)
    return inputs.to(DEVICE), torch.randint(0, sizes[-1], (count,), generator=generator).to(DEVICE)


def both_ways(sizes, units, rates, *, count, batch, limit, step, momentum=0.6, epochs=2, precision="float32", **more):
    """The plain fleet and the fast one after the same epochs, and their tallies."""
    fleets = [make(sizes, units, rates, **more) for _ in range(2)]
    inputs, targets = cases(sizes, count)
    plain = Plain(fleets[0], inputs, targets, batch, limit)
    fast = Captured(fleets[1], inputs, targets, batch, limit, precision=precision)
    tallies = [
        (plain.epoch(epoch, step, momentum, lambda: False), fast.epoch(epoch, step, momentum, lambda: False))
        for epoch in range(epochs)
    ]
    return fleets, tallies


def agree(fleets, tallies, rounding=1e-5):
    for name, tensor in fleets[0].state().items():
        fast = fleets[1].state()[name]
        torch.testing.assert_close(fast, tensor, rtol=rounding, atol=rounding, msg=partial("{}: {}".format, name))
    for plain, fast in tallies:
        torch.testing.assert_close(fast.loss, plain.loss, rtol=rounding, atol=rounding)
        assert fast.errors.tolist() == plain.errors.tolist()
        assert fast.moved.tolist() == plain.moved.tolist()
        if fleets[0].units == "rectified":
            assert fast.active.tolist() == plain.active.tolist()


ENGINES = Plain, partial(Captured, precision="float32")
SHAPES = {
    "one hidden layer": ((20, 33, 10), (0.2, 0.5)),
    "two hidden layers": ((20, 33, 27, 10), (0.2, 0.5, 0.5)),
    "three hidden layers": ((9, 17, 12, 11, 3), (0.2, 0.5, 0.3, 0.4)),
    "no hidden layer": ((20, 10), (0.2,)),
    "layers of one unit": ((1, 1, 1, 2), (0.2, 0.5, 0.3)),
    "more than a block wide": ((130, 70, 65, 17), (0.2, 0.5, 0.5)),
    "exactly a block wide": ((128, 64, 32, 16), (0.2, 0.5, 0.5)),
    "more inputs than a block": ((1030, 5, 260, 3), (0.2, 0.5, 0.5)),
    "more hidden units than a block": ((5, 1030, 3), (0.2, 0.5)),
}


@BOTH
@pytest.mark.parametrize("shape", SHAPES)
def test_epochs_with_a_rest_are_the_plain_versions_for_nets_of_any_shape(units, shape):
    sizes, rates = SHAPES[shape]
    settings = {"limit": [1.5, INF], "step": [0.5, 0.3], "seeds": SEEDS[1:], "epochs": 1 if max(sizes) > 200 else 2}
    agree(*both_ways(sizes, units, rates, count=11, batch=8, **settings))


def test_tiles_for_many_nets_give_the_same_as_those_for_few(monkeypatch):
    monkeypatch.setattr(cuda, "FEW_NETS", 0)
    sizes, rates = SHAPES["more than a block wide"]
    agree(*both_ways(sizes, "logistic", rates, count=11, batch=8, limit=[1.5] * 3, step=[0.5] * 3))


def test_a_layer_whose_tiles_would_miss_the_blocks_is_refused(monkeypatch):
    monkeypatch.setattr(cuda, "LAYER_OF_FEW", cuda.Tile(64, 32, 32, 4, 3))
    with pytest.raises(AssertionError):
        both_ways((130, 70, 3), "logistic", (0.2, 0.5), count=4, batch=2, limit=[1.0] * 3, step=[0.5] * 3)


def test_lengths_of_more_parts_than_are_read_at_once_are_whole(monkeypatch):
    monkeypatch.setattr(cuda, "MOST_PARTS", 2)
    sizes, rates = SHAPES["more inputs than a block"]
    agree(*both_ways(sizes, "logistic", rates, count=11, batch=8, limit=[1.5, 0.1, INF], step=[0.5] * 3))


@BOTH
def test_each_net_has_its_own_rates_bound_and_step(units):
    rates = ([0.0, 0.2, 0.4], [0.0, 0.5, 0.9], [0.5, 0.0, 0.1])
    fleets, tallies = both_ways(
        (20, 13, 14, 5), units, rates, count=10, batch=5, limit=[0.5, INF, 2.0], step=[1.0, 0.0, 0.1], sd=1.0
    )
    agree(fleets, tallies)
    squared = fleets[1].weights[0].square().sum(-1).amax(1)
    assert squared[0] <= 0.5 + 1e-5 and squared[1] > 2 and squared[2] <= 2 + 1e-5


@BOTH
def test_layers_without_dropout_keep_every_unit(units):
    settings = {"limit": [4.0] * 3, "step": [0.3] * 3, "epochs": 1}
    agree(*both_ways((12, 11, 9, 4), units, (0.0, 0.0, 0.0), count=8, batch=5, **settings))


@BOTH
@pytest.mark.parametrize(
    ("count", "batch"),
    [(3, 1), (7, 100), (17, 16), (135, 131)],
    ids=["batches of one", "less than a batch", "a rest of one", "more cases than a block"],
)
def test_mini_batches_of_any_size_are_averaged_over(units, count, batch):
    settings = {"limit": [2.0, INF], "step": [0.5, 0.3], "seeds": SEEDS[1:], "epochs": 1 if count > 20 else 2}
    agree(*both_ways((10, 9, 3), units, (0.2, 0.5), count=count, batch=batch, **settings))


def test_per_unit_rates_are_drawn_as_in_the_plain_version():
    fleets = [make((6, 21, 4), "logistic", (0.2, 0.5)) for _ in range(2)]
    for fleet in fleets:
        fleet.rates[1] = torch.linspace(0, 0.95, 21, dtype=torch.float64, device=DEVICE).expand(3, -1)
    inputs, targets = cases((6, 21, 4), 8)
    engines = [kind(one, inputs, targets, 4, [INF] * 3) for kind, one in zip(ENGINES, fleets, strict=True)]
    agree(fleets, [tuple(one.epoch(0, [0.5] * 3, 0.5, lambda: False) for one in engines)])


@pytest.mark.parametrize("units_in_layer", [1, 7, 8, 9, 33, 300])
@pytest.mark.parametrize(("update", "layer"), [(0, 0), (599, 1), (2**31 - 1, 3)])
def test_masks_are_the_plain_ones_bit_by_bit(units_in_layer, update, layer):
    seeds = torch.tensor([0, 3, 2**32 - 1, 2**32, 2**40 + 7, 2**63 - 1], device=DEVICE)
    rates = torch.tensor([[0.0], [0.2], [0.5], [0.5], [0.75], [0.99999]], dtype=torch.float64, device=DEVICE)
    ones, out = torch.ones(1, units_in_layer, device=DEVICE), torch.empty(6, 13, units_in_layer, device=DEVICE)
    zeros = torch.zeros(6, 39, dtype=torch.int64, device=DEVICE)  # every case is the one of ones
    first = torch.tensor([max(update - 2, 0)], device=DEVICE)
    at_least = cuda._thresholds(rates, units_in_layer)
    kernels.gather[(-(-units_in_layer // 64), 4, 6)](
        ones, zeros[:, 0].contiguous(), zeros, zeros[0], at_least, seeds, first, min(update, 2), layer, out,
        seeds, units_in_layer, 39, 13, units_in_layer, at_least.shape[1], MASKED=True, CUT=False, CASES=4, UNITS=64,
    )  # fmt: skip
    assert out.bool().equal(kept(seeds, update, layer, rates, range(13), units_in_layer))


def test_the_bound_leaves_vectors_of_zeros_and_output_units_alone():
    fleets = [make((5, 4, 3), "rectified", (0.0, 0.0)) for _ in range(2)]
    for fleet in fleets:
        fleet.weights[0][:, 1] = 0
        fleet.weights[1] *= 10
    inputs, targets = cases((5, 4, 3), 6)
    for fleet, kind in zip(fleets, ENGINES, strict=True):
        kind(fleet, inputs, targets, 3, [0.25] * 3).epoch(0, [0.0] * 3, 0.0, lambda: False)
    assert not fleets[1].weights[0][:, 1].any() and (fleets[1].weights[1].square().sum(-1) > 1).any()
    agree(fleets, [])


class Rounded:
    """An update with products of bfloat16 numbers, step by step in plain PyTorch: what is rounded, and when.

    Weights are kept as they are before the bound's scale, products read them rounded, and sums are float32.
    """

    def __init__(self, fleet, inputs, targets, batch, limit):
        self.fleet, self.inputs, self.targets, self.batch = fleet, inputs, targets, batch
        self.limit = torch.tensor(limit, device=DEVICE)[:, None]

    def epoch(self, epoch, step, momentum):
        fleet, round16 = self.fleet, lambda x: x.bfloat16().float()
        last = len(fleet.weights) - 1
        rate = torch.tensor(step, device=DEVICE)[:, None, None]
        powers = torch.tensor([cuda._power(one) for one in step], device=DEVICE)[:, None, None]
        scales = [torch.ones(w.shape[:2], device=DEVICE) for w in fleet.weights]
        loss, update = 0.0, epoch * -(-len(self.inputs) // self.batch)
        for chosen in philox.order(fleet.seeds, epoch, len(self.inputs)).split(self.batch, 1):
            keep = dense.masks(fleet, update, range(chosen.shape[1]))
            passed, slopes = [round16(self.inputs[chosen]) * keep[0]], []
            for k in range(last):
                squared = fleet.weights[k].square().sum(2)
                new = update % -(-len(self.inputs) // self.batch) == 0  # lengths are known from the first step on
                scales[k] = torch.where((squared > self.limit) & (not new), (self.limit / squared).sqrt(), 1.0)
                total = passed[k] @ round16(fleet.weights[k]).mT
                z = total * scales[k][:, None] + fleet.biases[k][:, None]
                passed.append(round16(z.relu() * keep[k + 1]))
                slopes.append((z > 0) * keep[k + 1].float())
            z = passed[last] @ round16(fleet.weights[last]).mT + fleet.biases[last][:, None]
            right = torch.nn.functional.one_hot(self.targets[chosen], z.shape[2])
            loss = loss - (z.log_softmax(2) * right).sum((1, 2)).double()
            delta = scaled = round16((z.softmax(2) - right) / chosen.shape[1])
            for k in range(last, -1, -1):
                back = scaled @ round16(fleet.weights[k])
                gradient = delta.mT @ passed[k]
                velocity = momentum * fleet.weight_velocities[k] - rate * gradient
                fleet.weights[k] = fleet.weights[k] * scales[k][..., None] + velocity
                fleet.weight_velocities[k] = (velocity * powers).half().float() / powers
                fleet.bias_velocities[k] = momentum * fleet.bias_velocities[k] - rate[:, 0] * delta.sum(1)
                fleet.biases[k] = fleet.biases[k] + fleet.bias_velocities[k]
                if k > 0:
                    delta = round16(back * slopes[k - 1])
                    scaled = round16(back * slopes[k - 1] * scales[k - 1][:, None])
            update += 1
        for weight in fleet.weights[:-1]:
            constrain_incoming_(weight, self.limit[..., None])
        return loss


@ON_A_GPU
def test_bfloat16_products_are_the_plain_ones_of_rounded_numbers_and_weights_stay_float32():
    sizes, step, limit = (20, 33, 27, 10), [0.1, 0.2, 0.3], [3.0, 1.5, INF]
    expected, fleet = (make(sizes, "rectified", (0.2, 0.5, 0.5), sd=0.2) for _ in range(2))
    inputs, targets = cases(sizes, 20)
    engine = Captured(fleet, inputs, targets, 10, limit, precision="bfloat16")
    reference = Rounded(expected, inputs, targets, 10, limit)
    for epoch in range(2):
        loss = reference.epoch(epoch, step, 0.6)
        torch.testing.assert_close(engine.epoch(epoch, step, 0.6, lambda: False).loss, loss, rtol=1e-4, atol=0)
    for name, tensor in expected.state().items():
        found = fleet.state()[name]
        assert found.dtype == torch.float32 and (found - tensor).norm() <= 2e-3 * tensor.norm(), name


@ON_A_GPU
@BOTH
@pytest.mark.parametrize("precision", cuda.PRECISIONS)
def test_loss_of_300_updates_stays_within_one_per_cent_of_the_plain_version(units, precision):
    sizes = (64, 100, 100, 10)
    settings = {"limit": [3.0, 15.0, INF], "step": [0.1] * 3, "epochs": 15, "precision": precision, "sd": 0.05}
    _, tallies = both_ways(sizes, units, (0.2, 0.5, 0.5), count=500, batch=25, **settings)
    for plain, fast in tallies:
        torch.testing.assert_close(fast.loss, plain.loss, rtol=0.01, atol=0)


def test_split_weights_are_the_nearest_bfloat16_and_come_back_exactly():
    special = torch.tensor([0.0, -0.0, INF, -INF, math.nan, 1.0, -1.0, 3.4e38, 1e-45, 1 + 2**-8, 1 + 3 * 2**-8])
    drawn = torch.randn(10_000, generator=torch.Generator().manual_seed(0)) * 0.05
    weight = torch.cat([special, drawn]).to(DEVICE)
    high, rest = torch.empty_like(weight, dtype=torch.bfloat16), torch.empty_like(weight, dtype=torch.int16)
    cuda.split_(weight, high, rest)
    nearest = weight.bfloat16()
    apart = (high.float() - weight).abs()[len(special) :]
    assert apart.equal((nearest.float() - weight).abs()[len(special) :])
    torch.testing.assert_close(cuda.joined(high, rest), weight, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 64, 64), (3, 65, 64), (2, 130, 200)])
def test_weights_in_blocks_are_where_the_kernels_look_for_them_and_come_back(shape):
    weight = torch.arange(math.prod(shape), dtype=torch.float32).view(shape) + 1
    blocks = cuda.in_blocks(weight).contiguous()
    across = -(-shape[2] // 64)
    for net, unit, column in itertools.product(range(shape[0]), (0, shape[1] - 1), (0, shape[2] // 2, shape[2] - 1)):
        block = unit // 64 * across + column // 64
        assert blocks[net].flatten()[block * 64**2 + unit % 64 * 64 + column % 64] == weight[net, unit, column]
    assert blocks.count_nonzero() == weight.numel() and cuda.out_of_blocks(blocks, shape).equal(weight)


def test_a_step_of_split_weights_is_the_step_of_whole_ones():
    """Of the gradient product zeros are left here: the interpreter does not multiply bfloat16 numbers.

    Velocities of split weights are rounded to 11 bits, those that were given and those that are left.
    """
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator)
    weight, velocity, scales = draw(2, 19, 33).to(DEVICE), draw(2, 19, 33).to(DEVICE), draw(2, 19).abs().to(DEVICE)
    found = []
    for split in (False, True):
        dtype = torch.bfloat16 if split else torch.float32
        power = torch.tensor([2.0**9, 2.0**7], device=DEVICE)
        kept = (velocity * power[:, None, None]).half()
        w, v = (
            cuda.in_blocks(x).contiguous() for x in (weight, kept if split else kept.float() / power[:, None, None])
        )
        high, rest = torch.empty_like(w, dtype=dtype), torch.empty_like(w, dtype=torch.int16)
        if split:
            cuda.split_(w, high, rest)
        else:
            high.copy_(w)
        delta, below = (torch.zeros(2, 5, n, dtype=dtype, device=DEVICE) for n in (19, 33))
        squares, bias = torch.zeros(2, 2, 19, device=DEVICE), torch.zeros(2, 19, device=DEVICE)
        one = torch.ones(2, device=DEVICE)
        kernels.gradient_step[(2, 2, 2)](
            delta, below, high, rest, v, power, scales, squares, bias, bias.clone(), one, one * 0.7,
            torch.zeros(2, 19, dtype=torch.int32, device=DEVICE), 5, 19, 33, 19, 19,
            BOUND=True, SPLIT=split, PRECISION="ieee", UNITS=16, CASES=16, BLOCK=32,
        )  # fmt: skip
        w, v = (cuda.out_of_blocks(x, weight.shape) for x in (cuda.joined(high, rest) if split else high, v))
        found.append((w, v.float() / power[:, None, None] if split else v, squares))
    expected = weight * scales[..., None] + 0.7 * velocity
    torch.testing.assert_close(found[0][0], expected, rtol=2**-11, atol=1e-3)
    (weights, velocities, squares), (split_weights, split_velocities, split_squares) = found
    torch.testing.assert_close(split_weights, weights, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(split_squares, squares, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(split_velocities, velocities, rtol=2**-11, atol=1e-9)


def test_a_velocity_too_large_for_float16_is_the_largest_there_is_and_the_weight_gets_all_of_it():
    given = torch.tensor([[60000.0, -60000.0, 3.0]], device=DEVICE).repeat(16, 1)[None].half()
    velocity = cuda.in_blocks(given).contiguous()
    high, rest = torch.zeros_like(velocity, dtype=torch.bfloat16), torch.zeros_like(velocity, dtype=torch.int16)
    delta, below = (torch.zeros(1, 4, n, dtype=torch.bfloat16, device=DEVICE) for n in (16, 3))
    bias, one = torch.zeros(1, 16, device=DEVICE), torch.ones(1, device=DEVICE)
    kernels.gradient_step[(1, 1, 1)](
        delta, below, high, rest, velocity, one, bias, bias, bias, bias.clone(), one, one * 2,
        torch.zeros(1, 16, dtype=torch.int32, device=DEVICE), 4, 16, 3, 16, 16,
        BOUND=False, SPLIT=True, PRECISION="ieee", UNITS=16, CASES=16, BLOCK=16,
    )  # fmt: skip
    velocity, weight = (cuda.out_of_blocks(x, given.shape) for x in (velocity, cuda.joined(high, rest)))
    assert velocity[0, 0].tolist() == [65504.0, -65504.0, 6.0]
    assert weight[0, 0].tolist() == [120000.0, -120000.0, 6.0]


@pytest.mark.parametrize("step", [1e-30, 1e-4, 0.05, 1.0, 10.0, 3e5])
def test_velocities_in_float16_hold_what_a_hundred_gradients_of_any_step_add_up_to(step):
    power = cuda._power(step)
    gradients = torch.tensor([100.0, 1.0, 1e-3, 1e-6], dtype=torch.float64)
    back = (gradients * step * power).half().double() / power / step
    torch.testing.assert_close(back, gradients, rtol=2**-11, atol=0)


@ON_A_GPU
def test_velocities_of_an_epoch_with_bfloat16_products_come_back_to_the_fleet():
    """No gradient reaches the lowest layer of a net whose next one is dead: its velocities shrink by the momentum."""
    fleet = make((8, 7, 3), "rectified", (0.2, 0.5))
    inputs, targets = cases((8, 7, 3), 12)
    fleet.biases[0].fill_(-100)
    fleet.weight_velocities[0].normal_(generator=torch.Generator(DEVICE).manual_seed(0)).mul_(0.01)
    before = fleet.weight_velocities[0].clone()
    Captured(fleet, inputs, targets, 6, [INF] * 3).epoch(0, [0.1] * 3, 0.5, lambda: False)
    torch.testing.assert_close(fleet.weight_velocities[0], before * 0.25, rtol=2**-10, atol=1e-7)


def test_a_dead_layer_and_a_missing_gradient_are_seen():
    fleets = [make((8, 7, 6, 3), "rectified", (0.2, 0.5, 0.5)) for _ in range(2)]
    for fleet in fleets:
        fleet.biases[0][0] = -100
        fleet.biases[1][1] = -100
    inputs, targets = cases((8, 7, 6, 3), 12)
    engines = [kind(one, inputs, targets, 6, [INF] * 3) for kind, one in zip(ENGINES, fleets, strict=True)]
    plain, fast = (one.epoch(0, [0.1] * 3, 0.5, lambda: False) for one in engines)
    assert fast.active.tolist() == plain.active.tolist() == [[False, False], [True, False], [True, True]]
    assert fast.moved.tolist() == plain.moved.tolist() == [False, False, True]
    agree(fleets, [(plain, fast)])


def test_training_stops_a_diverged_net_and_leaves_the_others_as_the_plain_version_has_them():
    optim = Optim(epochs=2, batch=6, lr=0.1, momentum_epochs=2)
    fleets = [make((8, 7, 6, 3), "rectified", (0.2, 0.5, 0.5)) for _ in range(2)]
    inputs, targets = cases((8, 7, 6, 3), 15)
    before = fleets[1].weights[0][1].clone()
    found = []
    for fleet, kind in zip(fleets, ENGINES, strict=True):
        records = list(train(fleet, kind(fleet, inputs, targets, 6, [INF] * 3), 15, optim, [0.1, 1e38, 0.1]))
        found.append([(f.net, f.epoch, f.why.split(":")[0]) for record in records for f in record.faults])
    assert found == [[(1, 1, "diverged")]] * 2
    assert fleets[1].weights[0][1].equal(before)
    agree(fleets, [])


def test_a_hidden_bias_that_is_not_a_number_is_a_divergence_in_both_versions():
    optim = Optim(epochs=1, batch=6, lr=0.1)
    inputs, targets = cases((8, 7, 3), 6)
    for kind in ENGINES:
        fleet = make((8, 7, 3), "rectified", (0.2, 0.5))
        fleet.biases[0][1, 2] = math.nan
        (record,) = train(fleet, kind(fleet, inputs, targets, 6, [INF] * 3), 6, optim, [0.1] * 3)
        assert [fault.net for fault in record.faults] == [1]


def test_an_epoch_of_any_number_of_updates_takes_few_replays_of_two_graphs_at_most():
    for updates in range(1, 1500):
        found = cuda.runs(updates)
        assert sum(found) == updates and max(found) <= 200 and len(set(found)) <= 2
        assert len(found) < 2 * updates / 200 + 1
    assert cuda.runs(601) == [200, 200, 200, 1] and cuda.runs(600) == [200] * 3 and cuda.runs(500) == [125] * 4


def test_graphs_of_two_sizes_train_as_the_plain_version_does_and_add_to_one_tally(monkeypatch):
    monkeypatch.setattr(cuda, "MOST_IN_A_GRAPH", 3)
    sizes, fleets = (8, 7, 6, 3), [make((8, 7, 6, 3), "logistic", (0.2, 0.5, 0.5)) for _ in range(2)]
    inputs, targets = cases(sizes, 23)
    plain, fast = (kind(one, inputs, targets, 3, [1.5] * 3) for kind, one in zip(ENGINES, fleets, strict=True))
    tallies, asked = [], []
    for epoch in range(3):
        stops = (lambda: False), (lambda: asked.append(fast))
        tallies.append([one.epoch(epoch, [0.3] * 3, 0.6, stop) for one, stop in zip((plain, fast), stops, strict=True)])
    assert len(asked) == 3 * 4  # three updates, three, one, and one of two cases
    agree(fleets, tallies)


def test_stopping_in_the_middle_gives_no_tally():
    fleet = make((8, 7, 3), "rectified", (0.2, 0.5))
    inputs, targets = cases((8, 7, 3), 15)
    fast = Captured(fleet, inputs, targets, 6, [INF] * 3, "float32")
    calls = iter([False, True])
    assert fast.epoch(0, [0.1] * 3, 0.5, lambda: next(calls)) is None


def test_training_goes_on_from_weights_put_in_from_outside():
    """As after a resume, or a return to the last good state: nothing of the weights is remembered elsewhere."""
    fleets = [make((8, 7, 3), "rectified", (0.2, 0.5)) for _ in range(2)]
    inputs, targets = cases((8, 7, 3), 12)
    plain, fast = (kind(one, inputs, targets, 6, [INF] * 3) for kind, one in zip(ENGINES, fleets, strict=True))
    start = {name: tensor.clone() for name, tensor in fleets[1].state().items()}
    fast.epoch(0, [0.5] * 3, 0.5, lambda: False)
    for name, tensor in fleets[1].state().items():
        tensor.copy_(start[name])
    agree(fleets, [tuple(one.epoch(4, [0.5] * 3, 0.5, lambda: False) for one in (plain, fast))])


def test_each_epoch_is_tallied_by_itself():
    fleet = make((8, 7, 3), "rectified", (0.2, 0.5))
    inputs, targets = cases((8, 7, 3), 12)
    fast = Captured(fleet, inputs, targets, 6, [INF] * 3, "float32")
    first = fast.epoch(0, [0.0] * 3, 0.5, lambda: False)
    fleet.biases[0][:2] = -100
    second = fast.epoch(0, [0.0] * 3, 0.5, lambda: False)
    assert first.active.tolist() == [[True]] * 3 and first.moved.tolist() == [True] * 3
    assert second.active.tolist() == [[False], [False], [True]] and second.moved.tolist() == [False, False, True]
    assert second.loss[2] == first.loss[2] and second.errors[2] == first.errors[2]


def test_sparse_inputs_train_as_the_same_inputs_dense(monkeypatch):
    monkeypatch.setattr(cuda, "ROWS_AT_A_TIME", 4)
    sizes = (20, 12, 3)
    inputs, targets = cases(sizes, 11)
    inputs = inputs * (inputs > 0.8)
    fleets = [make(sizes, "logistic", (0.2, 0.5)) for _ in range(2)]
    for fleet, given in zip(fleets, (inputs, Sparse.of(csr_array(inputs.cpu().numpy())).to(DEVICE)), strict=True):
        Captured(fleet, given, targets, 4, [1.0] * 3, precision="float32").epoch(0, [0.5] * 3, 0.6, lambda: False)
    for ours, theirs in zip(fleets[0].state().values(), fleets[1].state().values(), strict=True):
        assert torch.equal(ours, theirs)
