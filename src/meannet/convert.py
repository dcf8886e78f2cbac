"""Between the paper's convention (omit while training, scale at test) and inverted dropout, both ways.

Inverted dropout divides what it keeps by k, the keep probability, so a weight that such units feed must be k times the
paper's for the net to be the same one. Its gradient is then 1/k of the paper's, and to stay the same net after each
update it needs: the weight and its velocity times k, learning rate times k^2, bound on the squared length times k^2,
weight decay divided by k^2. Biases stay as they are.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from meannet.nn import Dropout, TwoInputConv2d
from meannet.optim import LAYERS, DropoutSGD

# What may stand between a dropout and the layer it feeds, since scaling its input scales its output: exactly for one
# rate, and unit by unit for the first of them only.
_ELEMENTWISE = (nn.Flatten, nn.Identity, nn.ReLU, nn.LeakyReLU)
_POOLING = (nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)


def to_inverted(
    module: nn.Module, optimizer: DropoutSGD | None = None, *, feeds: Mapping[str, str] | None = None
) -> tuple[nn.Module, DropoutSGD | None]:
    """Copies of the module, its dropouts inverted, and of its optimizer that train alike; masks stay the same.

    `feeds` maps the name of each layer that a dropout feeds to the name of that dropout; nn.Sequential needs none.
    """
    return _converted(module, optimizer, feeds, "inverted", 0)


def to_paper(
    module: nn.Module, optimizer: DropoutSGD | None = None, *, feeds: Mapping[str, str] | None = None, seed: int = 0
) -> tuple[nn.Module, DropoutSGD | None]:
    """The other way: copies in the paper's convention. Each nn.Dropout becomes a Dropout with this seed, numbered."""
    return _converted(module, optimizer, feeds, "paper", seed)


def feeding(module: nn.Module) -> dict[str, str]:
    """Which dropout feeds which layer of an nn.Sequential (or one nested in another), by their names."""
    found: dict[str, str] = {}
    waiting: tuple[str, Any] | None = None
    for name, part in _in_order(module):
        if isinstance(part, (Dropout, nn.Dropout)):
            if waiting:
                raise ValueError(f"dropouts {waiting[0]!r} and {name!r} feed the same layer; join them into one")
            waiting = name, part
        elif waiting and isinstance(part, LAYERS):
            found[name], waiting = waiting[0], None
        elif waiting and not isinstance(part, (*_ELEMENTWISE, *(() if _per_unit(waiting[1]) else _POOLING))):
            raise ValueError(
                f"{type(part).__name__} {name!r} stands between dropout {waiting[0]!r} and the next layer, and what "
                "scales its input may not scale its output alike; put the dropout right before the layer that it feeds"
            )
    if waiting:
        raise ValueError(f"dropout {waiting[0]!r} feeds no layer; outputs cannot be converted")
    return found


def _converted(
    module: nn.Module, optimizer: DropoutSGD | None, feeds: Mapping[str, str] | None, to: str, seed: int
) -> tuple[nn.Module, DropoutSGD | None]:
    feeds = feeding(module) if feeds is None else feeds
    _check_feeds(module, feeds)
    made = copy.deepcopy(module)
    made.zero_grad(set_to_none=True)
    factors: dict[Tensor, Tensor] = {}  # of each weight of the copy, what it is multiplied by
    for layer_name, dropout_name in feeds.items():
        layer, dropout = made.get_submodule(layer_name), made.get_submodule(dropout_name)
        assert isinstance(layer, LAYERS)
        if _convention(dropout) != to:
            keep = _keep_probability(dropout, layer, layer_name)
            factors[layer.weight] = keep if to == "inverted" else 1 / keep
    with torch.no_grad():
        for weight, factor in factors.items():
            weight.mul_(factor.to(weight.device, weight.dtype))
    for number, name in enumerate(dict.fromkeys(feeds.values())):
        _switch_(made, name, to, seed, number)
    return made, None if optimizer is None else _optimizer_of(optimizer, module, made, factors)


def _switch_(made: nn.Module, name: str, to: str, seed: int, number: int) -> None:
    dropout = made.get_submodule(name)
    if isinstance(dropout, Dropout):
        dropout.convention = to
    elif to == "paper":
        assert isinstance(dropout, nn.Dropout)
        device = next((p.device for p in made.parameters()), None)
        own = Dropout(dropout.p, seed=seed, layer=number).train(dropout.training).to(device)
        made.set_submodule(name, own)


def _optimizer_of(
    optimizer: DropoutSGD, module: nn.Module, made: nn.Module, factors: Mapping[Tensor, Tensor]
) -> DropoutSGD:
    """The same optimizer for the copy: each group divided by the factors of its weights, velocities scaled along."""
    if any(factor.dim() > 0 for factor in factors.values()):
        raise ValueError(
            "rates of each unit's own turn the norm bound into a weighted one and the learning rate into one for each "
            "column, which DropoutSGD does not have; convert the module alone, or give the layer one rate"
        )
    twins: dict[Tensor, Tensor] = dict(zip(module.parameters(), made.parameters(), strict=True))
    if strangers := [p for group in optimizer.param_groups for p in group["params"] if p not in twins]:
        raise ValueError(f"{len(strangers)} of the optimizer's parameters are not the module's")
    groups = []
    for group in optimizer.param_groups:
        divided: dict[float, list[Tensor]] = {}
        for parameter in group["params"]:
            factor = factors.get(twins[parameter])
            divided.setdefault(1.0 if factor is None else factor.item(), []).append(twins[parameter])
        groups += [_settings(group, factor) | {"params": params} for factor, params in divided.items()]
    copied = DropoutSGD(groups, lr=optimizer.defaults["lr"])
    copied.defaults.update(optimizer.defaults)
    for parameter, state in optimizer.state.items():
        factor = factors.get(twins[parameter])
        velocity = state["velocity"].clone()
        scaled = velocity if factor is None else velocity.mul_(factor.item())
        copied.state[twins[parameter]]["velocity"] = scaled
    return copied


def _settings(group: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """A group's settings for weights that are `factor` times what they were."""
    settings = {name: value for name, value in group.items() if name not in ("params", "param_names")}
    for name in ("lr", "initial_lr", "limit"):
        if name in settings:
            settings[name] = settings[name] * factor**2
    settings["weight_decay"] = settings["weight_decay"] / factor**2
    return settings


def _keep_probability(dropout: Any, layer: Any, layer_name: str) -> Tensor:
    """Of the units that feed the layer: one number, or one for each column of a linear layer's weight."""
    if isinstance(dropout, nn.Dropout):
        if dropout.p == 1:
            raise ValueError(f"the dropout that feeds {layer_name!r} omits everything")
        return torch.tensor(1 - dropout.p, dtype=torch.float64)
    keep = dropout.keep_probability(torch.float64)
    if keep.dim() and (not isinstance(layer, nn.Linear) or keep.numel() != layer.in_features):
        raise ValueError(
            f"{layer_name!r} must be linear, with one input for each of the {keep.numel()} rates that feed it"
        )
    return keep.flatten() if keep.dim() else keep


def _check_feeds(module: nn.Module, feeds: Mapping[str, str]) -> None:
    parts = dict(module.named_modules(remove_duplicate=False))
    if unknown := [name for name in (*feeds, *feeds.values()) if name not in parts]:
        raise ValueError(f"the module has no part named {unknown[0]!r}")
    for name, dropout in feeds.items():
        if not isinstance(parts[name], LAYERS) or not isinstance(parts[dropout], (Dropout, nn.Dropout)):
            kinds = f"{type(parts[dropout]).__name__} {dropout!r} and {type(parts[name]).__name__} {name!r}"
            raise ValueError(f"a dropout must feed a linear, convolutional or locally connected layer, not {kinds}")
        if isinstance(parts[name], TwoInputConv2d):
            raise ValueError(
                f"TwoInputConv2d {name!r} cannot be converted: it has two inputs, one weight for both, and `feeds` "
                f"does not say which of them dropout {dropout!r} thins"
            )
    idle = [name for name, part in parts.items() if _omits(part) and name not in feeds.values()]
    if idle:
        kind = type(parts[idle[0]]).__name__
        raise ValueError(f"{kind} {idle[0]!r} feeds no layer that is named, or is of a kind that cannot be converted")
    uses: dict[Any, int] = {}
    for _, parameter in module.named_parameters(remove_duplicate=False):
        uses[parameter] = uses.get(parameter, 0) + 1
    for name in feeds:
        weight = parts[name].weight
        if uses.get(weight) != 1:
            raise ValueError(f"the weight of {name!r} is shared or computed from others and cannot be converted")


def _omits(part: nn.Module) -> bool:
    return isinstance(part, (Dropout, nn.modules.dropout._DropoutNd))


def _convention(dropout: nn.Module) -> str:
    return dropout.convention if isinstance(dropout, Dropout) else "inverted"


def _per_unit(dropout: nn.Module) -> bool:
    return isinstance(dropout, Dropout) and dropout.rates.dim() > 0


def _in_order(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    if not isinstance(module, nn.Sequential):
        if prefix and (_omits(module) or not any(_omits(part) for part in module.modules())):
            return [(prefix, module)]
        raise ValueError("only nn.Sequential says what feeds what; name each layer and its dropout in `feeds`")
    inside = [_in_order(part, f"{prefix}.{name}" if prefix else name) for name, part in module._modules.items() if part]
    return [found for part in inside for found in part]
