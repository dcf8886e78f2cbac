"""Mean networks of image nets (G, H) as modules of plain.py: what each part is, and its parameters, in float64."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from meannet import plain
from meannet.nn.conv import LocallyConnected2d, RandomGroupConv2d, Subsampled, TwoInputConv2d
from meannet.nn.convfleet import ConvFleet
from meannet.nn.convnets import ConvNet, Layer

WHITE = {1: 1.0, 3: 255.0}  # by channels: grey images are learned from as numbers up to 1, colour ones as bytes


def mean_module(fleet: ConvFleet, largest: float) -> tuple[nn.Module, dict[str, Any]]:
    """From pixels up to `largest` to probabilities, nets averaged; and what plain.network must know of it.

    A net whose images are smaller than the pictures it learned from answers with the average of ten views of them.
    """
    nets, mean, scale = [copy.deepcopy(net).double() for net in fleet.nets], torch.as_tensor(fleet.mean), fleet.scale
    written = [_written(net, mean.shape) for net in nets]
    inputs, classes = mean.numel(), len(nets[0].weight_layers()[-1].bias)
    views = plain.Views.COUNT if tuple(mean.shape) != nets[0].shape else 1
    facts = {
        "reach": None,
        "sizes": [inputs, max(inputs, views * written[0].widest), classes],
        "units": nets[0].weight_layers()[0].units,
        "output": "softmax",
        "groups": [],
        "nets": len(nets),
        "channels": nets[0].shape[0],
        "views": views,
        "layers": written[0].parts,
    }
    unit = largest / WHITE[nets[0].shape[0]]
    for one in written:
        one.state["0.mean"] = mean.double().flatten() * unit
        one.state["0.scale"] = torch.full((inputs,), unit / scale, dtype=torch.float64)
    return plain.network(facts, [one.state for one in written]), facts


class _Parts:
    """Parts one after another, each a kind and its sizes; their parameters by name; the maps after the last."""

    def __init__(self, shape: tuple[int, int, int], first: int = 0):
        self.channels, self.rows, self.columns = shape
        self.first, self.widest = first, 1
        self.parts: list[list[Any]] = []
        self.state: dict[str, Tensor] = {}

    def add(self, kind: str, *sizes: Any, **parameters: Tensor) -> None:
        number = self.first + len(self.parts)
        self.parts.append([kind, *sizes])
        for name, tensor in parameters.items():
            self.state[f"{number}.{name}"] = tensor.clone(memory_format=torch.contiguous_format)

    def add_sum(self, *branches: "_Parts") -> None:
        number = self.first + len(self.parts)
        self.parts.append(["sum", *(branch.parts for branch in branches)])
        for k, branch in enumerate(branches):
            self.state |= {f"{number}.branches.{k}.{name}": tensor for name, tensor in branch.state.items()}
        self.widest = max(self.widest, *(branch.widest for branch in branches))
        self.channels, self.rows, self.columns = branches[0].channels, branches[0].rows, branches[0].columns

    def add_conv(self, weight: Tensor, bias: Tensor, stride: int = 1, padding: int = 0, groups: int = 1) -> None:
        banks, size = len(weight), weight.shape[-1]
        self.add("conv", self.channels, banks, size, stride, padding, groups, weight=weight, bias=bias)
        self.channels = banks
        self.rows, self.columns = ((side + 2 * padding - size) // stride + 1 for side in (self.rows, self.columns))
        self.widest = max(self.widest, banks * self.rows * self.columns)

    def add_groups(self, layer: RandomGroupConv2d | TwoInputConv2d, weight: Tensor, bias: Tensor) -> None:
        self.add("channels", self.channels, order=layer.permutation)
        self.add_conv(weight, bias, padding=weight.shape[-1] // 2, groups=layer.groups)

    def add_rest(self, layer: Layer) -> None:
        """What follows a layer's total inputs, but for dropout."""
        if layer.units:
            self.add("units")
        if layer.pool is not None:
            pool = layer.pool
            self.add("pool", pool.kind, self.channels, pool.size, self.rows, self.columns, pool.stride)
            self.rows, self.columns = pool.out_size(self.rows), pool.out_size(self.columns)
        if layer.norm is not None:
            assert layer.norm.offset == 1.0
            adjacent = layer.norm.adjacent(torch.zeros(self.channels, 1, 1, dtype=torch.float64))
            self.add("norm", self.channels, layer.norm.beta, adjacent=adjacent)


def _written(net: ConvNet, pictures: torch.Size) -> _Parts:
    """The parts after the scaling.

    A unit's weights are scaled by the share of times that the unit which feeds them was there. A local layer is written
    as a dense one with zeros: its maps are small, and every program has that.
    """
    channels, rows, columns = pictures
    whole = _Parts(net.shape, first=1)
    whole.add("maps", channels, rows, columns)
    if tuple(pictures) != net.shape:
        whole.add("views", net.shape[1], rows, columns)
    # Up to the layer that sees the subsampled image too, this is one of two branches.
    now, image = (whole if net.subsampled is None else _Parts(net.shape)), _Parts(net.shape)
    keep, flat = 1.0, False
    for layer in net.weight_layers():
        own, weight, bias = layer.layer, layer.weight.detach() * keep, layer.bias.detach()
        if isinstance(own, TwoInputConv2d):
            assert net.subsampled is not None
            now.add_groups(own, weight[:, : own.own], bias)
            share = _shares(net.subsampled, net.shape[1])
            image.add("subsampled", *share.shape, weight=share)
            image.rows = image.columns = len(share)
            image.add_conv(
                layer.weight.detach()[:, own.own :], torch.zeros_like(bias), own.image_stride, weight.shape[-1] // 2
            )
            whole.add_sum(now, image)
            now = whole
        elif isinstance(own, RandomGroupConv2d):
            now.add_groups(own, weight, bias)
        elif isinstance(own, nn.Conv2d):
            now.add_conv(weight, bias, own.stride[0], int(own.padding[0]))
        else:
            if not flat:
                now.add("flat")
            flat = True
            weight = _dense(own) * keep if isinstance(own, LocallyConnected2d) else weight
            now.add("dense", weight.shape[1], len(bias), weight=weight, bias=bias)
        now.add_rest(layer)
        keep = 1.0 if layer.dropout is None else float(1 - layer.dropout.rates)
    assert now is whole
    return whole


def _shares(subsampled: Subsampled, pixels: int) -> Tensor:
    """(places, pixels): each pixel's share in each place of a side; beyond the edge are the pixels before it."""
    kernel = subsampled.kernel.double()
    centres = range(subsampled.first, pixels, subsampled.every)
    found = torch.zeros(len(centres), pixels, dtype=torch.float64)
    for place, centre in enumerate(centres):
        for pixel, share in enumerate(kernel, start=centre - len(kernel) // 2):
            found[place, pixels - 1 - abs(pixels - 1 - abs(pixel))] += share
    return found


@torch.no_grad()
def _dense(local: LocallyConnected2d) -> Tensor:
    """(units, inputs): what each unit gives for each input alone."""
    inputs = local.in_channels * local.in_size[0] * local.in_size[1]
    alone = torch.eye(inputs, dtype=torch.float64).view(inputs, local.in_channels, *local.in_size)
    assert local.bias is not None
    none = torch.zeros_like(local.bias)
    outputs = torch.func.functional_call(local, {"bias": none}, (alone,))
    return outputs.flatten(1).T.contiguous()
