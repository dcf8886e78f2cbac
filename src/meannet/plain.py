"""A mean network (body) in plain PyTorch, in float64, from raw inputs to probabilities or predictions.

`meannet export --to torch` writes a copy of this file, NAME.py, beside the weights, NAME.safetensors. The copy needs
torch, numpy and safetensors, and nothing of meannet. `python NAME.py cases.npy` prints a line a case: what the network
takes it for, then all outputs. In a program: `from NAME import load; network, facts = load()`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

FARTHEST = 1e9  # so that no square overflows
LEAST = -3e38  # smaller than any activity
CASES_AT_ONCE = 16


class Standardise(nn.Module):
    """z = (x - mean) / scale, after x is brought to their precision; both are one number a column.

    Where there is a reach, z / sqrt(1 + (z / reach)²), which draws outliers in to it and leaves what is near.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, reach: float | None = None):
        super().__init__()
        self.reach = reach
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != len(self.scale):  # one column would otherwise do for all
            raise ValueError(f"cases have {x.shape[-1]} columns; the network takes {len(self.scale)}")
        z = (x.to(self.scale.dtype) - self.mean) / self.scale
        if self.reach is None:
            return z
        z = z.clamp(-FARTHEST, FARTHEST)
        return z / (1 + (z / self.reach).square()).sqrt()


class MeanField(nn.Module):
    """Inputs, and after them the second layer's mean-field activities in a deep Boltzmann machine that sees them."""

    def __init__(self, inputs: int, first: int, second: int, sweeps: int):
        super().__init__()
        self.sweeps = sweeps
        self.first, self.second = nn.Linear(inputs, first), nn.Linear(first, second)

    def forward(self, x: Tensor) -> Tensor:
        below = self.first(x)
        above = self.second((2 * below).sigmoid()).sigmoid()
        for _ in range(self.sweeps):
            above = self.second((above @ self.second.weight + below).sigmoid()).sigmoid()
        return torch.cat((x, above), -1)


class Restore(Standardise):
    """From standardised targets back to their own scale."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.mean


class Pool(nn.Module):
    """Maximum or average of windows of maps, the last of which may reach over the edge; only what is inside counts."""

    inside: Tensor  # the share of each window that is inside

    def __init__(self, kind: str, size: int, rows: int, columns: int, stride: int):
        super().__init__()
        self.kind, self.stride, self.window = kind, stride, (min(size, rows), min(size, columns))
        over, shares = [], []
        for side, window in zip((rows, columns), self.window, strict=True):
            further = -(-(side - window) // stride)
            count = further + (further * stride < side)  # each window begins inside
            starts = range(0, count * stride, stride)
            over.append(max(0, starts[-1] + window - side))
            shares.append([(min(side, start + window) - start) / window for start in starts])
        self.over = (0, over[1], 0, over[0])
        down, across = (torch.tensor(share, dtype=torch.float64, device="cpu") for share in shares)
        self.register_buffer("inside", down[:, None] * across, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "max":
            return F.max_pool2d(F.pad(x, self.over, value=LEAST), self.window, self.stride)
        return F.avg_pool2d(F.pad(x, self.over), self.window, self.stride) / self.inside.to(x.dtype)


class Norm(nn.Module):
    """x / (1 + sum of alpha x² over adjacent channels)^beta; `adjacent` is (channels, channels), with alpha or 0."""

    adjacent: Tensor

    def __init__(self, channels: int, beta: float):
        super().__init__()
        self.beta = beta
        self.register_buffer("adjacent", torch.empty(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + F.conv2d(x * x, self.adjacent[:, :, None, None])).pow(-self.beta)


class Views(nn.Module):
    """Maps to ten patches of them, the centre, the corners and their reflections; (10 cases, …), view after view."""

    COUNT = 10

    def __init__(self, size: int, rows: int, columns: int):
        super().__init__()
        low, wide = rows - size, columns - size
        self.size, self.places = size, [(low // 2, wide // 2), (0, 0), (0, wide), (low, 0), (low, wide)]

    def forward(self, x: Tensor) -> Tensor:
        patches = [x[:, :, top : top + self.size, left : left + self.size] for top, left in self.places]
        return torch.cat([*patches, *(patch.flip(-1) for patch in patches)])


class ViewsMean(nn.Module):
    """The mean over each case's views."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (Views.COUNT, -1)).mean(0)


class Channels(nn.Module):
    """Channels in another order, which groups of filters read one after another."""

    order: Tensor

    def __init__(self, channels: int):
        super().__init__()
        self.register_buffer("order", torch.empty(channels, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(1, self.order)


class Subsampled(nn.Module):
    """Square maps blurred and made smaller: `weight`, (places, pixels), has each pixel's share in a place of a side."""

    weight: Tensor

    def __init__(self, places: int, pixels: int):
        super().__init__()
        self.register_buffer("weight", torch.empty(places, pixels))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight @ x @ self.weight.T


class Sum(nn.Module):
    """What several sequences of parts make of the same maps, added up."""

    def __init__(self, branches: Sequence[nn.Module]):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        first, *others = (branch(x) for branch in self.branches)
        return sum(others, first)


class Softmaxes(nn.Module):
    """Several softmaxes side by side."""

    def __init__(self, groups: Sequence[int]):
        super().__init__()
        self.groups = list(groups)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part.softmax(-1) for part in x.split(self.groups, -1)], -1)


class Average(nn.Module):
    """The mean of what several networks give."""

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([network(x) for network in self.networks]).mean(0)


def network(facts: Mapping[str, Any], states: Sequence[Mapping[str, Tensor]]) -> nn.Module:
    """Networks of this shape with these parameters; several are averaged."""
    networks = []
    for state in states:
        made = _unfilled(facts)
        made.load_state_dict(state, assign=True)
        networks.append(made)
    return (networks[0] if len(networks) == 1 else Average(networks)).requires_grad_(False).eval()


def networks(module: nn.Module) -> list[nn.Sequential]:
    """Those that are averaged, or the only one, each from the scaling of inputs to the outputs."""
    found = module.networks if isinstance(module, Average) else [module]
    return [network for network in found if isinstance(network, nn.Sequential)]


def answers(facts: Mapping[str, Any], outputs: Tensor) -> list[Any]:
    """What outputs (cases, outputs) take each case for: a label, a number, or a list of them.

    The list has a label for each of several targets, a number for each, or 0 or 1 for each label that a case may have.
    """
    if facts["answers"] == "number":
        return outputs[:, 0].tolist()
    if facts["answers"] == "numbers":
        return outputs.tolist()
    if facts["answers"] == "multilabel":
        return (outputs > 0.5).int().tolist()
    parts = outputs.split([len(classes) for classes in facts["classes"]], -1)
    each = [
        [classes[k] for k in part.argmax(-1).tolist()] for classes, part in zip(facts["classes"], parts, strict=True)
    ]
    return each[0] if facts["answers"] == "single" else [list(labels) for labels in zip(*each, strict=True)]


def load(path: str | Path | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """The network in a file that was exported, by default the one beside this file, and what is known about it."""
    with safe_open(Path(__file__).with_suffix(".safetensors") if path is None else path, framework="pt") as file:
        facts = json.loads(file.metadata()["record"].partition(" ")[2])  # a checksum stands before it
        states: list[dict[str, Tensor]] = [{} for _ in range(facts["nets"])]
        for name in file.keys():  # noqa: SIM118, not a dict
            net, _, parameter = name.partition(".")
            states[int(net)][parameter] = file.get_tensor(name)
    return network(facts, states), facts


def _unfilled(facts: Mapping[str, Any]) -> nn.Sequential:
    """One network, its parameters without memory, so that nothing is drawn from the global random stream."""
    sizes, layers = list(facts["sizes"]), len(facts["sizes"]) - 1
    with torch.device("meta"):
        parts: list[nn.Module] = [Standardise(torch.empty(sizes[0]), torch.empty(sizes[0]), facts["reach"])]
        if facts.get("layers"):
            last = [nn.Softmax(-1), ViewsMean()] if facts["views"] > 1 else [nn.Softmax(-1)]
            return nn.Sequential(*parts, *(_image_part(one, facts) for one in facts["layers"]), *last)
        if facts.get("sweeps"):
            parts.append(MeanField(*sizes[:3], sweeps=facts["sweeps"]))
            sizes[0] += sizes[2]
        for k, (inputs, units) in enumerate(pairwise(sizes)):
            parts.append(nn.Linear(inputs, units))
            if k < layers - 1:
                parts.append(nn.Sigmoid() if facts["units"] == "logistic" else nn.ReLU())
        if facts["output"] == "linear":
            parts.append(Restore(torch.empty(sizes[-1]), torch.empty(sizes[-1])))
        elif facts["groups"]:
            parts.append(Softmaxes(facts["groups"]))
        else:
            parts.append(nn.Sigmoid() if facts["output"] == "logistic" else nn.Softmax(-1))
    return nn.Sequential(*parts)


def _image_part(one: Sequence[Any], facts: Mapping[str, Any]) -> nn.Module:
    """A part of an image net: its kind, and sizes."""
    match one:
        case ["maps", channels, rows, columns]:
            return nn.Unflatten(1, (channels, rows, columns))
        case ["views", size, rows, columns]:
            return Views(size, rows, columns)
        case ["conv", channels, banks, size, stride, padding, groups]:
            return nn.Conv2d(channels, banks, size, stride=stride, padding=padding, groups=groups)
        case ["channels", channels]:
            return Channels(channels)
        case ["subsampled", places, pixels]:
            return Subsampled(places, pixels)
        case ["sum", *branches]:
            return Sum([nn.Sequential(*(_image_part(part, facts) for part in branch)) for branch in branches])
        case ["units"]:
            return nn.Sigmoid() if facts["units"] == "logistic" else nn.ReLU()
        case ["pool", kind, _, size, rows, columns, stride]:
            return Pool(kind, size, rows, columns, stride)
        case ["norm", channels, beta]:
            return Norm(channels, beta)
        case ["flat"]:
            return nn.Flatten()
        case ["dense", inputs, units]:
            return nn.Linear(inputs, units)
    raise ValueError(f"no part of an image net is called {one[0]!r}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} cases.npy")
    made, facts = load()
    cases = np.load(sys.argv[1], allow_pickle=False)
    blocks = torch.from_numpy(cases.reshape(len(cases), -1)).split(CASES_AT_ONCE)
    outputs = torch.cat([made(block) for block in blocks])
    for answer, row in zip(answers(facts, outputs), outputs.tolist(), strict=True):
        print(*(answer if isinstance(answer, list) else [answer]), *row, sep=",")


if __name__ == "__main__":
    main()
