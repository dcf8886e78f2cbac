"""Parts of the image nets, against loops in numpy, finite differences and torch's own functions."""

import copy
import math
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from meannet.core.maxnorm import constrain_incoming_
from meannet.nn import LocallyConnected2d, Pool2d, RandomGroupConv2d, ResponseNorm, Subsampled, TwoInputConv2d
from meannet.optim import DropoutSGD, param_groups

SHAPES = [  # channels, banks, input, filter, stride, padding
    (2, 3, (5, 4), (3, 2), (1, 1), (0, 0)),
    (1, 1, (3, 3), (3, 3), (1, 1), (0, 0)),
    (3, 4, (6, 7), (3, 3), (2, 1), (1, 1)),
    (2, 2, (5, 5), (2, 3), (3, 2), (1, 2)),
]


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def local(channels, banks, size, kernel, stride, padding, **others):
    return LocallyConnected2d(channels, banks, size, kernel, stride, padding, dtype=torch.float64, **others)


def local_by_loop(layer, x):
    """Place by place and bank by bank."""
    (rows, columns), (height, width) = layer.out_size, layer.kernel_size
    weight = layer.weight.detach().numpy().reshape(layer.out_channels, rows, columns, *layer.weight.shape[1:])
    bias = layer.bias.detach().numpy().reshape(layer.out_channels, rows, columns)
    (above, beside), (down, right) = layer.padding, layer.stride
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (above, above), (beside, beside)))
    out = np.zeros((len(x), layer.out_channels, rows, columns))
    for case in range(len(x)):
        for bank in range(layer.out_channels):
            for r in range(rows):
                for c in range(columns):
                    patch = padded[case, :, r * down : r * down + height, c * right : c * right + width]
                    out[case, bank, r, c] = (patch * weight[bank, r, c]).sum() + bias[bank, r, c]
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_local_layer_is_a_loop_over_places_and_banks(shape):
    layer, x = local(*shape), randn(3, shape[0], *shape[2])
    np.testing.assert_allclose(layer(x).detach(), local_by_loop(layer, x), rtol=1e-12, atol=1e-14)
    one = layer(x[0]).detach()  # a case without the axis of cases
    np.testing.assert_allclose(one, layer(x).detach()[0], rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_local_layer_with_the_same_filter_everywhere_is_a_convolution(shape):
    channels, banks, size, kernel, stride, padding = shape
    layer, conv = local(*shape), nn.Conv2d(channels, banks, kernel, stride, padding, dtype=torch.float64)
    places = layer.out_size[0] * layer.out_size[1]
    with torch.no_grad():
        layer.weight.copy_(conv.weight.repeat_interleave(places, 0))
        layer.bias.copy_(conv.bias.repeat_interleave(places))
    x = randn(2, channels, *size)
    assert layer(x).shape == conv(x).shape
    np.testing.assert_allclose(layer(x).detach(), conv(x).detach(), rtol=1e-12, atol=1e-13)


def test_local_layer_over_the_whole_input_is_linear():
    layer = LocallyConnected2d(3, 5, 4, 4, dtype=torch.float64)
    x = randn(6, 3, 4, 4)
    linear = F.linear(x.flatten(1), layer.weight.flatten(1), layer.bias)
    np.testing.assert_allclose(layer(x).flatten(1).detach(), linear.detach(), rtol=1e-12)


def test_local_gradients_are_finite_differences_to_the_second_order():
    layer, x = local(2, 2, (4, 3), (2, 2), (1, 1), (1, 0)), randn(2, 2, 4, 3).requires_grad_()
    weight, bias = (
        randn(*layer.weight.shape, seed=1).requires_grad_(),
        randn(*layer.bias.shape, seed=2).requires_grad_(),
    )

    def apply(x, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, x).square()

    assert torch.autograd.gradcheck(apply, (x, weight, bias))
    assert torch.autograd.gradgradcheck(apply, (x, weight, bias))


def test_the_papers_local_layer_has_its_size():
    layer = LocallyConnected2d(64, 16, 4, 3, padding=1)
    assert layer.weight.shape == (16 * 4 * 4, 64, 3, 3) and layer(torch.zeros(2, 64, 4, 4)).shape == (2, 16, 4, 4)
    assert layer.weight.abs().max() <= (64 * 9) ** -0.5 < 1.001 * layer.weight.abs().max()


def test_local_layer_without_biases_and_with_wrong_requests():
    assert local(*SHAPES[0], bias=False).bias is None
    assert "bias=False" in repr(local(*SHAPES[0], bias=False))
    with pytest.raises(ValueError, match=r"expected inputs of \(…, 2, 5, 4\), not \(3, 2, 5, 5\)"):
        local(*SHAPES[0])(randn(3, 2, 5, 5))
    with pytest.raises(ValueError, match="do not fit into an input"):
        LocallyConnected2d(1, 1, 3, 5)


def response_by_loop(x, size, alpha, beta, offset):
    """As printed, with alpha as it is meant by whoever calls: bank by bank over the adjacent ones that exist."""
    x = x.numpy()
    banks, out = x.shape[1], np.empty_like(x)
    for i in range(banks):
        near = range(max(0, i - size // 2), min(banks, i - size // 2 + size))
        total = sum(x[:, j] ** 2 for j in near)
        out[:, i] = x[:, i] / (offset + alpha * total) ** beta
    return out


@pytest.mark.parametrize("size", [1, 2, 5, 9, 20])
def test_response_norm_is_a_loop_over_banks_in_both_forms(size):
    x = 10 * randn(2, 12, 3, 2)
    authors, printed = ResponseNorm(size, 0.3, 0.6), ResponseNorm(size, 0.3, 0.6, form="printed")
    np.testing.assert_allclose(authors(x), response_by_loop(x, size, 0.3 / size, 0.6, 1.0), rtol=1e-12)
    np.testing.assert_allclose(printed(x), response_by_loop(x, size, 0.3, 0.6, 1.0), rtol=1e-12)


def test_the_papers_settings_are_torchs_function_with_the_authors_convention():
    x = 50 * randn(2, 64, 3, 3)
    np.testing.assert_allclose(ResponseNorm()(x), F.local_response_norm(x, 9, 1e-3, 0.75, 1.0), rtol=1e-12)
    np.testing.assert_allclose(
        ResponseNorm(form="printed")(x), F.local_response_norm(x, 9, 9e-3, 0.75, 1.0), rtol=1e-12
    )
    np.testing.assert_allclose(ResponseNorm(5, 1e-4, offset=2.0)(x), F.local_response_norm(x, 5, k=2.0), rtol=1e-12)


def test_response_norm_gradients_are_finite_differences_to_the_second_order():
    x = randn(2, 5, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(ResponseNorm(3, 0.5), (x,))
    assert torch.autograd.gradgradcheck(ResponseNorm(3, 0.5), (x,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_response_norm_sums_squares_that_low_precision_cannot_hold(dtype):
    x = torch.full((1, 9, 2, 2), 400.0, dtype=dtype)  # 400^2 is beyond the largest float16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ResponseNorm(form="printed")(x)
    expected = ResponseNorm(form="printed")(x.double())
    assert found.dtype == dtype
    np.testing.assert_allclose(found.double(), expected, rtol=1e-2)


@pytest.mark.parametrize(("settings", "words"), [({"form": "caffe"}, "authors, printed"), ({"size": 0}, "1 or more")])
def test_wrong_response_norms_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        ResponseNorm(**settings)


def test_each_group_reads_its_own_channels_and_no_other():
    layer, x = (
        RandomGroupConv2d(12, 8, 3, groups=4, seed=5, padding=1, stride=2, dtype=torch.float64),
        randn(2, 12, 5, 5),
    )
    own = layer.permutation.view(4, 3)
    assert sorted(layer.permutation.tolist()) == list(range(12))
    parts = [
        F.conv2d(x[:, own[group]], layer.weight[2 * group : 2 * group + 2], layer.bias[2 * group : 2 * group + 2], 2, 1)
        for group in range(4)
    ]
    np.testing.assert_allclose(layer(x).detach(), torch.cat(parts, 1).detach(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(layer(x[0]).detach(), layer(x).detach()[0], rtol=1e-12, atol=1e-14)
    x.requires_grad_()
    layer(x)[:, :2].sum().backward()
    assert x.grad is not None
    assert set(x.grad.abs().sum((0, 2, 3)).nonzero().flatten().tolist()) == set(own[0].tolist())


GROUPED = [  # channels, banks, groups, input, filter, stride, padding, dilation
    (6, 4, 2, (5, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
    (4, 8, 4, (6, 5), (3, 2), (2, 1), (1, 0), (1, 1)),
    (6, 3, 3, (5, 6), (2, 2), (1, 2), (0, 1), (2, 1)),
    (3, 2, 1, (3, 3), (1, 1), (1, 1), (0, 0), (1, 1)),
]


def conv_by_loop(x, weight, read, stride, padding, dilation=(1, 1)):
    """Case by case, bank by bank and place by place; `read` has the channels that each bank reads."""
    (down, right), (above, beside), (taller, wider), (high, wide) = stride, padding, dilation, weight.shape[2:]
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (above, above), (beside, beside)))
    rows = (padded.shape[2] - taller * (high - 1) - 1) // down + 1
    columns = (padded.shape[3] - wider * (wide - 1) - 1) // right + 1
    out = np.zeros((len(x), len(weight), rows, columns))
    for case, bank, r, c in np.ndindex(*out.shape):
        for k, channel in enumerate(read[bank]):
            for i, j in np.ndindex(high, wide):
                pixel = padded[case, channel, r * down + i * taller, c * right + j * wider]
                out[case, bank, r, c] += weight[bank, k, i, j] * pixel
    return out


def read_by_bank(layer, banks):
    """Channels that each bank reads: those of its group."""
    own = layer.permutation.view(layer.groups, -1).tolist()
    return [own[bank * layer.groups // banks] for bank in range(banks)]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("shape", GROUPED)
def test_random_groups_are_a_loop_over_banks_places_and_the_channels_of_their_group(shape, joined):
    channels, banks, groups, size, kernel, *geometry = shape
    stride, padding, dilation = geometry
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "dtype": torch.float64}
    layer, x = RandomGroupConv2d(channels, banks, kernel, groups, seed=4, **settings), randn(2, channels, *size)
    layer.joined = joined
    weight, bias = (parameter.detach().numpy() for parameter in layer.parameters())
    expected = conv_by_loop(x, weight, read_by_bank(layer, banks), *geometry) + bias[:, None, None]
    np.testing.assert_allclose(layer(x).detach(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("joined", [False, True])
def test_gradients_of_random_groups_are_finite_differences_to_the_second_order(joined):
    layer = RandomGroupConv2d(4, 4, 2, 2, seed=1, padding=1, stride=2, dtype=torch.float64)
    layer.joined = joined
    values = [randn(2, 4, 3, 3), randn(4, 2, 2, 2, seed=1), randn(4, seed=2)]

    def apply(x, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, x).square()

    assert torch.autograd.gradcheck(apply, [value.requires_grad_() for value in values])
    assert torch.autograd.gradgradcheck(apply, values)


def test_the_groups_come_from_the_seed_and_travel_in_the_state_dict():
    one, same, other = (RandomGroupConv2d(64, 256, 5, groups=4, seed=seed) for seed in (1, 1, 2))
    assert one.permutation.equal(same.permutation) and not one.permutation.equal(other.permutation)
    x = torch.randn(1, 64, 6, 6)
    assert not other(x).equal(one(x))
    other.load_state_dict(one.state_dict())
    assert other(x).equal(one(x)) and copy.deepcopy(one)(x).equal(one(x))


def test_random_groups_are_spread_evenly_over_channels():
    first = [set(RandomGroupConv2d(8, 8, 1, groups=4, seed=seed).permutation[:2].tolist()) for seed in range(800)]
    often = np.array([sum(channel in group for group in first) for channel in range(8)])
    assert np.abs(often - 200).max() < 4.5 * np.sqrt(800 * 0.25 * 0.75)


def pool_by_loop(x, kind, size, stride):
    """Window by window; a window begins inside and is clipped at the edge."""
    x = x.numpy()
    starts = [[s for s in range(0, side, stride) if s == 0 or s - stride + size < side] for side in x.shape[-2:]]
    out = np.empty((*x.shape[:-2], len(starts[0]), len(starts[1])))
    for i, top in enumerate(starts[0]):
        for j, left in enumerate(starts[1]):
            window = x[..., top : top + size, left : left + size]
            out[..., i, j] = window.max((-2, -1)) if kind == "max" else window.mean((-2, -1))
    return out


@pytest.mark.parametrize("kind", Pool2d.KINDS)
@pytest.mark.parametrize(("size", "stride"), [(3, 2), (2, 2), (3, 1), (5, 3), (2, 3), (4, 4), (1, 1), (9, 2)])
def test_pools_are_loops_over_clipped_windows(kind, size, stride):
    for rows, columns in ((8, 8), (7, 5), (4, 9), (3, 1), (2, 6)):
        x, pool = randn(2, 3, rows, columns), Pool2d(kind, size, stride)
        found = pool(x)
        np.testing.assert_allclose(found, pool_by_loop(x, kind, size, stride), rtol=1e-12, atol=1e-14)
        assert found.shape[-2:] == (pool.out_size(rows), pool.out_size(columns))


def test_the_papers_pools_halve_32_places_three_times():
    pool = Pool2d("max")
    assert [pool.out_size(side) for side in (32, 16, 8, 56, 28, 14)] == [16, 8, 4, 28, 14, 7]


@pytest.mark.parametrize("kind", Pool2d.KINDS)
def test_pool_gradients_are_finite_differences(kind):
    assert torch.autograd.gradcheck(Pool2d(kind), (randn(2, 2, 6, 5).requires_grad_(),))


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
@pytest.mark.parametrize("kind", Pool2d.KINDS)
def test_compiled_pools_have_the_same_gradients_at_the_edges(kind):
    torch.compiler.reset()
    pool, x = Pool2d(kind), randn(2, 3, 8, 6).requires_grad_()
    above = randn(2, 3, 4, 3)
    expected, found = (torch.autograd.grad(made(x), x, above)[0] for made in (pool, torch.compile(pool, dynamic=False)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(("size", "stride"), [(3, 2), (2, 2), (3, 1), (2, 3), (5, 2), (12, 1)])
@pytest.mark.parametrize("sides", [(8, 6), (9, 13)])
def test_compiled_maxima_have_torchs_values_and_gradients_with_ties_and_what_is_not_finite(size, stride, sides):
    torch.compiler.reset()
    x = randn(3, 2, *sides).round()  # many places are as large as each other
    x[0, 0, 3, 2], x[1, 1] = math.nan, -math.inf
    x.requires_grad_()
    pool = Pool2d("max", size, stride)
    expected, found = pool(x), torch.compile(pool, backend="aot_eager", fullgraph=True)(x)
    np.testing.assert_array_equal(found.detach(), expected.detach())
    above = randn(*expected.shape)
    gradients = [torch.autograd.grad(shown, x, above)[0] for shown in (expected, found)]
    np.testing.assert_allclose(gradients[1], gradients[0], atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 9, 20])
def test_compiled_response_norm_is_a_loop_over_banks_with_the_same_gradients(size):
    torch.compiler.reset()
    norm, x = ResponseNorm(size, 0.3, 0.6), (10 * randn(2, 12, 3, 2)).requires_grad_()
    found, above = torch.compile(norm, backend="aot_eager", fullgraph=True)(x), randn(2, 12, 3, 2)
    np.testing.assert_allclose(found.detach(), response_by_loop(x.detach(), size, 0.3 / size, 0.6, 1.0), rtol=1e-12)
    gradients = [torch.autograd.grad(shown, x, above)[0] for shown in (norm(x), found)]
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-10, atol=1e-12)


def test_an_average_at_the_edge_is_that_of_the_places_that_are_there():
    assert Pool2d("average")(torch.ones(1, 1, 8, 8)).equal(torch.ones(1, 1, 4, 4))


@pytest.mark.parametrize(("settings", "words"), [(("median",), "max, average"), (("max", 0), "1 or more")])
def test_wrong_pools_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Pool2d(*settings)


def test_the_second_input_is_a_blurred_image_sampled_under_the_first_layers_filters():
    subsampled = Subsampled()
    image = randn(2, 3, 224, 224)
    found = subsampled.double()(image)
    assert found.shape == (2, 3, 56, 56)
    kernel = np.exp(-0.5 * (np.arange(-6, 7) / 2) ** 2)
    kernel = np.outer(kernel, kernel) / kernel.sum() ** 2
    padded = np.pad(image.numpy(), ((0, 0), (0, 0), (6, 6), (6, 6)), mode="reflect")
    for row, column in ((0, 0), (0, 55), (27, 13), (55, 55)):
        y, x = 4 * row + 1, 4 * column + 1
        expected = (padded[..., y : y + 13, x : x + 13] * kernel).sum((-2, -1))
        np.testing.assert_allclose(found[..., row, column], expected, rtol=1e-6, atol=1e-7)  # the kernel is float32
    # A filter of 11 x 11, 4 apart and padded by 4, is centred on the pixels that are kept.
    spot = torch.zeros(1, 1, 11, 11).double()
    spot[..., 5, 5] = 1
    assert F.conv2d(image[:, :1], spot, stride=4, padding=4)[:, :, 1:].equal(image[:, :1, 1::4, 1::4][:, :, 1:])
    flat = Subsampled()(torch.full((1, 3, 64, 64), 7.0))
    np.testing.assert_allclose(flat, np.full((1, 3, 16, 16), 7.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("every", "first", "sides"), [(4, 1, (12, 16)), (4, 0, (9, 7)), (3, 2, (8, 11)), (2, 1, (6, 5)), (1, 0, (4, 3))]
)
def test_subsampling_is_a_loop_over_the_pixels_around_those_that_are_kept(every, first, sides):
    image, reach = randn(2, 3, *sides), 3 * every // 2  # three standard deviations of half the distance
    near = range(-reach, reach + 1)
    rows, columns = (range(first, side, every) for side in sides)
    expected, total = np.zeros((2, 3, len(rows), len(columns))), 0.0
    for down in near:
        for right in near:
            weight = math.exp(-0.5 * (down**2 + right**2) / (every / 2) ** 2)
            total += weight
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    y, x = abs(row + down), abs(column + right)  # reflected at the edges
                    y, x = min(y, 2 * (sides[0] - 1) - y), min(x, 2 * (sides[1] - 1) - x)
                    expected[:, :, i, j] += weight * image[:, :, y, x].numpy()
    found = Subsampled(every, first).double()(image)
    np.testing.assert_allclose(found, expected / total, rtol=1e-6, atol=1e-7)  # the kernel is float32


def test_subsampling_has_gradients_that_are_finite_differences_and_keeps_one_of_the_first_pixels():
    assert torch.autograd.gradcheck(Subsampled(2, 1).double(), (randn(2, 2, 6, 5).requires_grad_(),))
    for first in (-1, 4):
        with pytest.raises(ValueError, match=f"one of the first 4, not {first}"):
            Subsampled(4, first)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(
    ("channels", "banks", "kernel", "groups", "image_channels", "stride"),
    [(6, 4, 3, 2, 3, 2), (4, 8, 5, 4, 1, 2), (3, 2, 3, 1, 2, 3), (2, 2, 1, 2, 3, 1)],
)
def test_the_layer_with_two_inputs_is_two_loops_added(channels, banks, kernel, groups, image_channels, stride, joined):
    settings = {"image_stride": stride, "dtype": torch.float64}
    layer = TwoInputConv2d(channels, banks, kernel, groups, image_channels, seed=4, **settings)
    layer.joined = joined
    x, image = randn(2, channels, 4, 3), randn(2, image_channels, 4 * stride, 3 * stride, seed=1)
    weight, bias = (parameter.detach().numpy() for parameter in layer.parameters())
    own, around = channels // groups, (kernel // 2, kernel // 2)
    below = conv_by_loop(x, weight[:, :own], read_by_bank(layer, banks), (1, 1), around)
    beside = conv_by_loop(image, weight[:, own:], [range(image_channels)] * banks, (stride, stride), around)
    found = layer(x, image).detach()
    np.testing.assert_allclose(found, below + beside + bias[:, None, None], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("joined", [False, True])
def test_gradients_of_the_layer_with_two_inputs_are_finite_differences_to_the_second_order(joined):
    layer = TwoInputConv2d(4, 2, 3, 2, 1, seed=1, dtype=torch.float64)
    layer.joined = joined
    values = [randn(1, 4, 2, 2), randn(1, 1, 4, 4, seed=1), randn(2, 3, 3, 3, seed=2), randn(2, seed=3)]

    def apply(x, image, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x, image)).square()

    assert torch.autograd.gradcheck(apply, [value.requires_grad_() for value in values])
    assert torch.autograd.gradgradcheck(apply, values)


def test_the_layer_with_two_inputs_adds_two_convolutions():
    layer = TwoInputConv2d(64, 256, 5, groups=4, seed=3, dtype=torch.float64)
    below, image = randn(2, 64, 28, 28), randn(2, 3, 56, 56, seed=1)
    own = layer.permutation.view(4, 16)
    expected = torch.cat(
        [
            F.conv2d(below[:, own[g]], layer.weight[64 * g :][:64, :16], layer.bias[64 * g :][:64], padding=2)
            for g in range(4)
        ],
        1,
    ) + F.conv2d(image, layer.weight[:, 16:], stride=2, padding=2)
    found = layer(below, image)
    assert found.shape == (2, 256, 28, 28)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="same size"):
        layer(below, image[..., :40, :40])


def test_the_norm_bound_shortens_filters_and_nothing_else():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), LocallyConnected2d(4, 2, 4, 3), nn.Flatten(), nn.Linear(8, 3))
    net[0].weight.data = net[0].weight.data.contiguous(memory_format=torch.channels_last)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    optimizer = DropoutSGD(param_groups(net, limit=0.2), lr=0.0, rule="plain")
    net(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    for old, new in zip(before, net.parameters(), strict=True):
        flat = old.flatten(1).numpy() if old.dim() == 4 else None
        if flat is None:  # biases and the output layer
            assert new.equal(old)
            continue
        lengths = (flat**2).sum(1, keepdims=True)
        assert (lengths > 0.2).any()
        expected = np.where(lengths > 0.2, flat * np.sqrt(0.2 / lengths), flat)
        np.testing.assert_allclose(new.detach().flatten(1), expected, rtol=1e-5)
        assert constrain_incoming_(new.detach().flatten(1), 0.21).square().sum(1).max() <= 0.2 * (1 + 1e-5)


class Beside(nn.Module):
    """The layer with two inputs, above a pool of what is subsampled beside it."""

    def __init__(self):
        super().__init__()
        self.below, self.subsampled = Pool2d("average", 4, 4), Subsampled(2, 1)
        self.layer = TwoInputConv2d(4, 6, 3, groups=2, image_channels=4)

    def forward(self, x):
        return self.layer(self.below(x), self.subsampled(x))


def parts():
    return nn.Sequential(
        Beside(),
        RandomGroupConv2d(6, 6, 3, groups=3, padding=1),
        Pool2d("max", 3, 1),
        ResponseNorm(3),
        Pool2d("average", 1, 1),
        LocallyConnected2d(6, 2, 2, 3, padding=1),
    )


@pytest.mark.parametrize("joined", [False, True])
def test_parts_compile_and_export_without_breaks_and_do_the_same(joined):
    torch.compiler.reset()
    net, x = parts().double(), randn(3, 4, 16, 16)
    net[0].layer.joined = net[1].joined = joined
    expected = net(x)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    np.testing.assert_allclose(compiled(x).detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},)).module()
    np.testing.assert_allclose(program(x).detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    assert program(randn(5, 4, 16, 16)).shape == (5, 2, 2, 2)


def test_parts_take_images_whose_channels_come_last_in_memory():
    net, x = parts().double(), randn(3, 4, 16, 16)
    expected = net(x).detach()
    net, last = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    assert net[0].layer.weight.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(net(last).detach(), expected, rtol=1e-10, atol=1e-12)


def test_parts_survive_copying_saving_autocast_and_other_precisions():
    net, x = parts(), torch.randn(3, 4, 16, 16)
    twin = copy.deepcopy(net)
    twin.load_state_dict(net.state_dict())
    assert twin(x).equal(net(x))
    assert net.double()(x.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = twin(x)
    assert low.dtype == torch.bfloat16
    np.testing.assert_allclose(low.float().detach(), twin(x).detach(), atol=0.01)
    low.float().sum().backward()
    assert all(parameter.grad is not None for parameter in twin.parameters())
