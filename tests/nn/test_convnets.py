"""The nets of appendices G and H, against torch's own functions put together step by step."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from meannet import mean_network
from meannet.config import Conv, Patches
from meannet.core.dropout import kept
from meannet.nn import convnets
from meannet.nn.convnets import Rates, image_net, largest_rate, patch_net, start_, working_spreads

# The smallest patch on which all of H's pools of 3 x 3 fit: 12 places, 6 after a pool, 3, and 1 after the last.
SMALL = Patches(size=48, banks=(8, 12, 16, 16, 24), groups=(1, 2, 4, 4, 4))


def rand(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def sizes(net, x):
    return [tuple(activity.shape[1:]) for activity in net.eval().activities(x)]


def test_the_nets_of_g_have_its_layers_and_sizes():
    x = rand(2, 3, 32, 32)
    pooled = [(64, 16, 16), (64, 8, 8), (64, 4, 4)]
    plain, local = convnets.cifar10(dropout=False), convnets.cifar10(dropout=True)
    assert sizes(plain, x) == [*pooled, (10,)] and sizes(local, x) == [*pooled, (16, 4, 4), (10,)]
    filters = 64 * 75 + 2 * 64 * 1600 + 3 * 64
    assert sum(p.numel() for p in plain.parameters()) == filters + 10 * (64 * 16 + 1)
    assert sum(p.numel() for p in local.parameters()) == filters + 256 * (64 * 9 + 1) + 10 * (16 * 16 + 1)
    assert [layer.pool.kind for layer in plain.weight_layers()[:3]] == ["max", "average", "average"]
    assert [layer.norm is not None for layer in plain.weight_layers()] == [True, True, False, False]
    assert plain.dropouts() == [] and [float(d.rates) for d in local.dropouts()] == [0.5]
    assert local.weight_layers()[3].dropout is not None


def test_the_nets_of_h_have_its_layers_and_sizes():
    dense, plain, x = convnets.imagenet(dropout=True), convnets.imagenet(dropout=False), rand(1, 3, 224, 224)
    first, conv = dense.weight_layers()[0].layer, [layer.layer for layer in dense.weight_layers()[1:5]]
    assert F.conv2d(x, first.weight, first.bias, first.stride, first.padding).shape == (1, 64, 56, 56)
    assert conv[0](rand(1, 64, 28, 28), dense.subsampled(x)).shape == (1, 256, 28, 28)
    below = [(64, 28, 28), (256, 14, 14), (512, 14, 14), (512, 14, 14), (512, 7, 7)]
    assert sizes(dense, x) == [*below, (4096,), (4096,), (1000,)] and sizes(plain, x) == [*below, (1000,)]
    assert [layer.groups for layer in conv] == [4, 16, 16, 16]  # of 64, 32, 32 and 32 banks
    assert [layer.weight.shape[1] for layer in conv] == [16 + 3, 16, 32, 32]  # channels that a group reads
    assert [layer.dropout is not None for layer in dense.weight_layers()] == [False] * 5 + [True, True, False]
    assert plain.dropouts() == []


def by_hand(net, x, units):
    """Total inputs, units, pools and normalisation in the order of the paper, with torch's own functions."""
    *hidden, output = net.weight_layers()
    for layer in hidden:
        own = layer.layer
        if layer.pool is not None:
            x = units(F.conv2d(x, own.weight, own.bias, padding=own.padding))
            kind = F.max_pool2d if layer.pool.kind == "max" else F.avg_pool2d
            x = kind(x, layer.pool.size, layer.pool.stride, ceil_mode=True)
        elif own.weight.dim() == 4:
            patches = F.unfold(x, 3, padding=1)
            units_in = torch.stack(
                [
                    (patches[:, :, u % patches.shape[2]] * own.weight[u].flatten()).sum(1) + own.bias[u]
                    for u in range(len(own.weight))
                ],
                1,
            )
            x = units(units_in).view(len(x), -1, *x.shape[2:])
        else:
            x = units(F.linear(x.flatten(1), own.weight, own.bias))
        if layer.norm is not None:
            x = F.local_response_norm(x, 9, 0.001, 0.75, 1.0)
    return F.linear(x.flatten(1), output.layer.weight, output.layer.bias)


@pytest.mark.parametrize(("units", "function"), [("rectified", F.relu), ("logistic", torch.sigmoid)])
def test_a_net_is_its_layers_one_upon_another(units, function):
    conv = Conv(banks=(12, 11), pools=("max", "average"), filter=3, local=(3,))
    net = start_(image_net(conv, (7,), 5, shape=(3, 10, 9), units=units), 4, [0.5, 0.3, 0.2, 0.2], 0.5).double()
    x = 5 * rand(4, 3, 10, 9).double() - 2
    np.testing.assert_allclose(net(x).detach(), by_hand(net, x, function).detach(), rtol=1e-10)
    wider = F.pad(x, (0, 0, 0, 0, 0, 5))
    np.testing.assert_allclose(net(wider).detach(), net(x).detach(), rtol=1e-10)
    last = x.contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(net.to(memory_format=torch.channels_last)(last).detach(), net(x).detach(), rtol=1e-10)


def subsampled_by_hand(image):
    """Pixels 1, 5, 9 … of each row and column, weighted with those around them by a Gaussian of sd 2 (nn/conv.py)."""
    side = image.shape[-1]
    weights = np.zeros((side // 4, side))
    for place in range(side // 4):
        for away in range(-6, 7):
            pixel = abs(4 * place + 1 + away)  # reflected at the edges
            weights[place, min(pixel, 2 * (side - 1) - pixel)] += np.exp(-(away**2) / 8)
    weights = torch.from_numpy(weights / weights.sum(1, keepdims=True))
    return weights @ image @ weights.T


def h_by_hand(net, image, groups, omit=None):
    """Appendix H sentence by sentence; of the net only weights, biases and which channels a group reads are used."""
    first, second, *others = [layer.layer for layer in net.weight_layers()[:5]]
    *dense, output = [layer.layer for layer in net.weight_layers()[5:]]

    def in_groups(x, layer, filters, count, padding):
        read, banks = layer.permutation.view(count, -1), len(filters) // count
        parts = [slice(banks * group, banks * (group + 1)) for group in range(count)]
        maps = [
            F.conv2d(x[:, own], filters[part], layer.bias[part], padding=padding)
            for own, part in zip(read, parts, strict=True)
        ]
        return torch.cat(maps, 1)

    def pooled(x):
        return F.max_pool2d(x, 3, 2, ceil_mode=True)

    def normalised(x):
        return F.local_response_norm(x, 9, 0.001, 0.75, 1.0)

    x = normalised(pooled(F.relu(F.conv2d(image, first.weight, first.bias, stride=4, padding=4))))
    own = x.shape[1] // groups[1]
    below = in_groups(x, second, second.weight[:, :own], groups[1], 2)
    beside = F.conv2d(subsampled_by_hand(image), second.weight[:, own:], stride=2, padding=2)
    x = normalised(pooled(F.relu(below + beside)))
    for layer, count in zip(others, groups[2:], strict=True):
        x = F.relu(in_groups(x, layer, layer.weight, count, 1))
    x = pooled(x).flatten(1)
    for number, layer in enumerate(dense, 5):
        x = F.relu(F.linear(x, layer.weight, layer.bias))
        x = x / 2 if omit is None else x * omit(number, x)
    return F.linear(x, output.weight, output.bias)


def pixels(cases, size):
    """Centred bytes: with numbers as large as theirs it shows whether activities are normalised."""
    return 255 * rand(cases, 3, size, size).double() - 128


@pytest.mark.parametrize("training", [False, True])
def test_the_net_of_h_is_its_text_put_together_step_by_step(training):
    torch.manual_seed(2)
    net, x = patch_net(SMALL, (9, 7), 5, rate=0.5, seed=6).double().train(training), pixels(3, 48)

    def omit(layer, x):
        return kept(torch.tensor([6]), 0, layer, torch.tensor([[0.5]]), range(len(x)), x.shape[1])[0]

    expected = h_by_hand(net, x, SMALL.groups, omit if training else None)
    found = net(x)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-6)  # the blur's weights are float32
    above, parameters = rand(3, 5).double(), tuple(net.parameters())
    wanted = torch.autograd.grad(expected, parameters, above)
    for one, other in zip(torch.autograd.grad(found, parameters, above), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * float(other.abs().max()))
    for same in (F.pad(x, (0, 0, 0, 0, 0, 5)), x.contiguous(memory_format=torch.channels_last)):
        for dropout in net.dropouts():
            dropout.updates.zero_()
        np.testing.assert_allclose(net(same).detach(), found.detach(), rtol=1e-10)


def test_the_net_of_h_without_dropout_is_its_text_at_full_size():
    torch.manual_seed(3)
    net, x = convnets.imagenet(dropout=False, classes=20).double(), pixels(1, 224)
    expected = h_by_hand(net, x, (1, 4, 16, 16, 16)).detach()  # groups of 64, 32, 32 and 32 banks
    np.testing.assert_allclose(net(x).detach(), expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def reads(apply, *inputs):
    """For each input whether each bank (rows) has a derivative by any pixel of each channel (columns)."""
    found = torch.autograd.functional.jacobian(lambda *given: apply(*given).sum((0, 2, 3)), inputs)
    return [derivatives.abs().sum((1, 3, 4)) > 0 for derivatives in found]


def test_a_group_of_h_reads_channels_that_no_other_reads_and_together_they_read_all():
    layers, below, every = patch_net(SMALL, (), 2, seed=6).double().weight_layers(), 8, []
    for k, groups in enumerate(SMALL.groups[1:], 1):
        x, image = pixels(1, 6)[:, :1].repeat(1, below, 1, 1), pixels(1, 12)
        channels, *images = reads(layers[k].layer, *((x, image) if k == 1 else (x,)))
        assert all(seen.all() for seen in images)  # the second layer's banks all filter the whole image as well
        channels = channels.view(groups, -1, below)
        assert (channels == channels[:, :1]).all()  # the banks of a group read the same ones
        assert (channels[:, 0].sum(0) == 1).all() and (channels[:, 0].sum(1) == below // groups).all()
        neighbours = torch.arange(below).view(groups, -1)
        assert not channels[:, 0].equal(torch.zeros(groups, below).scatter(1, neighbours, 1).bool())
        every.append(channels[:, 0])
        below = SMALL.banks[k]
    assert not every[2].equal(every[3])  # groups of as many channels, but others


def groups_of(net):
    return [layer.layer.permutation for layer in net.weight_layers()[1:5]]


def test_every_layer_of_h_draws_groups_of_its_own_from_the_seed():
    one, same, other = (groups_of(patch_net(Patches(), (), 2, seed=seed)) for seed in (0, 0, 1))
    for layer, channels in enumerate((64, 256, 512, 512)):
        assert sorted(one[layer].tolist()) == list(range(channels))
        assert one[layer].equal(same[layer]) and not one[layer].equal(other[layer])
    for low in range(4):
        for high in range(low + 1, 4):
            # Channels that both layers have, in the order in which each layer's groups take them: no more of them in
            # the same place than chance would have, which is one.
            few = len(one[low])
            assert (one[high][one[high] < few] == one[low]).sum() < 6
    assert not {frozenset(group) for group in one[2].view(16, 32).tolist()} & {
        frozenset(group) for group in one[3].view(16, 32).tolist()
    }


def test_gradients_of_a_whole_net_are_finite_differences():
    conv = Conv(banks=(4, 3), pools=("max", "average"), filter=3, local=(2,), norm_alpha=0.5)
    net = start_(image_net(conv, (), 3, shape=(2, 6, 6)), 1, [0.4, 0.4, 0.4], 0.5).double()
    x, targets = rand(3, 2, 6, 6).double() - 0.5, torch.tensor([0, 2, 1])
    names, values = zip(*net.named_parameters(), strict=True)

    def loss(*values):
        return F.cross_entropy(torch.func.functional_call(net, dict(zip(names, values, strict=True)), x), targets)

    assert torch.autograd.gradcheck(loss, tuple(v.detach().requires_grad_() for v in values))


def test_dropout_leaves_out_units_and_the_mean_network_scales_them():
    net = start_(convnets.cifar10(dropout=True, seed=3), 0, [0.02, 0.02, 0.02, 0.05])
    x = rand(4, 3, 32, 32)
    *_, local, outputs = net.train().activities(x)
    masks = net.weight_layers()[3].dropout
    masks.updates.zero_()
    output = net.weight_layers()[4].layer
    by_mask = F.linear((local * masks.mask(local)).flatten(1), output.weight, output.bias)
    np.testing.assert_allclose(outputs.detach(), by_mask.detach(), rtol=1e-5, atol=1e-6)
    half = F.linear(0.5 * net.eval().activities(x)[3].flatten(1), output.weight, output.bias)
    np.testing.assert_allclose(net(x).detach(), half.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean_network(net)(x).detach(), net(x).detach(), rtol=1e-6)


def test_convolutional_and_upper_layers_have_rates_of_their_own():
    net = image_net(Conv(local=(16,)), (30,), rates=Rates(conv=0.25, top=0.5), seed=9)
    assert [float(d.rates) for d in net.dropouts()] == [0.25] * 3 + [0.5] * 2
    assert [int(d.layer) for d in net.dropouts()] == [0, 1, 2, 3, 4] and {int(d.seed) for d in net.dropouts()} == {9}


def test_weights_start_normal_with_biases_at_one_and_from_the_seed_alone():
    spreads = [0.01, 0.02, 0.03, 0.04]
    torch.manual_seed(0)
    net = start_(convnets.cifar10(dropout=True), 5, spreads, 0.05)
    torch.manual_seed(1)
    twin, other = (start_(convnets.cifar10(dropout=True), seed, spreads, 0.05) for seed in (5, 6))
    for k, (layer, sd) in enumerate(zip(net.weight_layers(), [*spreads, 0.05], strict=True)):
        weight = layer.layer.weight.detach()
        assert abs(float(weight.std()) / sd - 1) < 5 / weight.numel() ** 0.5
        assert abs(float(weight.mean())) < 5 * sd / weight.numel() ** 0.5
        assert layer.layer.bias.unique().tolist() == [1.0 if k < 4 else 0.0]
        assert weight.equal(twin.weight_layers()[k].layer.weight)
        assert not weight.equal(other.weight_layers()[k].layer.weight)


def reached(total):
    """The share of units, or of filters, with a positive total input in some case."""
    most = total.amax(0) if total.shape[1] == 16 else total.amax((0, 2, 3))
    return (most > 0).double().mean()


def test_variances_are_tried_until_units_get_inputs_that_vary_and_are_sometimes_positive():
    x = 64 * torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    net = convnets.cifar10(dropout=True)
    spreads = working_spreads(net, x)
    below = x
    for layer, sd in zip(net.weight_layers()[:-1], spreads, strict=True):
        total = layer.layer(below)
        from_case_to_case = total.std(0).mean()
        assert from_case_to_case / 2**0.5 < 0.5  # half the variance would not have done
        assert reached(total) >= 0.9
        if from_case_to_case < 0.5:  # twice the variance would have been too much
            assert reached(1 + 2**0.5 * (total - 1)) < 0.9
        assert abs(float(layer.layer.weight.detach().std()) / sd - 1) < 0.05
        below = layer(below)
    # Pixels 64 times smaller want first weights 64 times larger, and nothing else.
    small = working_spreads(convnets.cifar10(dropout=True), x / 64)
    np.testing.assert_allclose(small, [64 * spreads[0], *spreads[1:]], rtol=1e-9)


@pytest.mark.parametrize("bias", [0.1, 0.0, -2.0])
def test_without_a_positive_bias_to_speak_of_variances_are_those_for_half_of_one(bias):
    x = 64 * rand(16, 3, 8, 8)  # all positive: the signs of total inputs are the weights', however small these are
    net, half = (image_net(Conv(banks=(4,), pools=("max",)), (16,), shape=(3, 8, 8)) for _ in range(2))
    spreads = working_spreads(net, x, bias)
    assert spreads == working_spreads(half, x, 0.5)
    below = x
    for layer in net.weight_layers()[:-1]:
        total = layer.layer(below.flatten(1) if isinstance(layer.layer, torch.nn.Linear) else below)
        assert total.std(0).mean() >= 0.25 and reached(total) >= 0.9
        below = layer(below)


def test_images_without_any_variation_are_no_ground_to_choose_on():
    with pytest.raises(ValueError, match=r"layer 1 hardly vary.*conv\.initial_sd"):
        working_spreads(convnets.cifar10(dropout=False), torch.zeros(4, 3, 32, 32))


def test_the_rate_is_the_largest_power_of_ten_that_reduces_the_objective():
    tried = []

    def reduces(rate):  # of gradient descent on 30 w^2 from 1: each step multiplies w by 1 - 60 rate
        tried.append(rate)
        return abs(1 - 60 * rate) < 1

    assert largest_rate(reduces) == 0.01 and tried == [1.0, 0.1, 0.01]
    with pytest.raises(ValueError, match="no learning rate"):
        largest_rate(lambda rate: False)
