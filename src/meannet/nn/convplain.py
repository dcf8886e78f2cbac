"""Mean networks of image nets (G) as modules of plain.py: what each part is, and its parameters, in float64."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from meannet import plain
from meannet.nn.conv import LocallyConnected2d
from meannet.nn.convfleet import ConvFleet
from meannet.nn.convnets import ConvNet

WHITE = 255.0  # of the bytes that image nets learn from


def mean_module(fleet: ConvFleet, largest: float) -> tuple[nn.Module, dict[str, Any]]:
    """From pixels up to `largest` to probabilities, nets averaged; and what plain.network must know of it."""
    nets, mean, scale = [copy.deepcopy(net).double() for net in fleet.nets], torch.as_tensor(fleet.mean), fleet.scale
    layers, _ = _parts(nets[0])
    inputs, classes = mean.numel(), len(nets[0].weight_layers()[-1].bias)
    widest = max((one[2] * one[4] * one[5] for one in layers if one[0] == "pool"), default=1)
    facts = {
        "reach": None,
        "sizes": [inputs, max(inputs, widest), classes],
        "units": nets[0].weight_layers()[0].units,
        "output": "softmax",
        "groups": [],
        "nets": len(nets),
        "channels": nets[0].shape[0],
        "layers": layers,
    }
    unit = largest / WHITE

    def state(net: ConvNet) -> dict[str, Tensor]:
        spread = torch.full((inputs,), unit / scale, dtype=torch.float64)
        return {"0.mean": mean.double().flatten() * unit, "0.scale": spread} | _parts(net)[1]

    return plain.network(facts, [state(net) for net in nets]), facts


def _parts(net: ConvNet) -> tuple[list[list[Any]], dict[str, Tensor]]:
    """The parts after the scaling, each a kind and its sizes, and their parameters by name.

    A unit's weights are scaled by the share of times that the unit which feeds them was there. A local layer is written
    as a dense one with zeros: its maps are small, and every program has that.
    """
    channels, rows, columns = net.shape
    layers: list[list[Any]] = [["maps", channels, rows, columns]]
    state: dict[str, Tensor] = {}
    keep, flat = 1.0, False

    def add(part: list[Any], **parameters: Tensor) -> None:
        layers.append(part)
        for name, tensor in parameters.items():
            state[f"{len(layers)}.{name}"] = tensor.clone(memory_format=torch.contiguous_format)

    for layer in net.weight_layers():
        own, bias = layer.layer, layer.bias.detach()
        if isinstance(own, nn.Conv2d):
            add(["conv", channels, len(bias), own.weight.shape[-1]], weight=own.weight.detach() * keep, bias=bias)
            channels = len(bias)
        else:
            if not flat:
                add(["flat"])
            flat = True
            weight = _dense(own) if isinstance(own, LocallyConnected2d) else layer.weight.detach()
            add(["dense", weight.shape[1], len(bias)], weight=weight * keep, bias=bias)
        if layer.units:
            add(["units"])
        if layer.pool is not None:
            pool = layer.pool
            add(["pool", pool.kind, channels, pool.size, rows, columns, pool.stride])
            rows, columns = pool.out_size(rows), pool.out_size(columns)
        if layer.norm is not None:
            assert layer.norm.offset == 1.0
            adjacent = layer.norm.adjacent(torch.zeros(channels, 1, 1, dtype=torch.float64))
            add(["norm", channels, layer.norm.beta], adjacent=adjacent)
        keep = 1.0 if layer.dropout is None else float(1 - layer.dropout.rates)
    return layers, state


@torch.no_grad()
def _dense(local: LocallyConnected2d) -> Tensor:
    """(units, inputs): what each unit gives for each input alone."""
    inputs = local.in_channels * local.in_size[0] * local.in_size[1]
    alone = torch.eye(inputs, dtype=torch.float64).view(inputs, local.in_channels, *local.in_size)
    assert local.bias is not None
    none = torch.zeros_like(local.bias)
    outputs = torch.func.functional_call(local, {"bias": none}, (alone,))
    return outputs.flatten(1).T.contiguous()
