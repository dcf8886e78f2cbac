"""Dropout as a PyTorch module (body): omit while training, scale at test, from a random stream of its own."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Self

import torch
from torch import Tensor, nn

from meannet.core.dropout import kept
from meannet.core.philox import MASK

CONVENTIONS = ("paper", "inverted")

# Seeds of modules that were given none: one for each that is made, so that no two share masks, though copies do; and
# far from those that people choose.
_unseeded = count(1 << 62)


class Dropout(nn.Module):
    """Omits each unit of each case with probability `rate` while training; at test passes on 1 - rate of all of them.

    `rate` is one number, or a tensor of rates that broadcasts against the units of a case. The first axis of the input
    is the cases, everything after it their units. The mask is a function of `seed`, `layer`, `updates` (how often it
    has been used in training) and the place in the batch: torch's generators are neither read nor moved, CPU and GPU
    agree, and a state_dict brings back what comes next. With `convention="inverted"` it divides by 1 - rate while
    training and does nothing at test, as nn.Dropout does.
    """

    seed: Tensor
    layer: Tensor
    updates: Tensor
    rates: Tensor

    def __init__(
        self,
        rate: float | Sequence[float] | Tensor = 0.5,
        *,
        seed: int | None = None,
        layer: int = 0,
        convention: str = "paper",
    ):
        super().__init__()
        # The device "meta" holds no numbers, and these are the module's settings.
        device = torch.device("cpu") if torch.get_default_device().type == "meta" else None
        rates = torch.as_tensor(rate, dtype=torch.float64, device=device).detach().clone()
        if not ((rates >= 0) & (rates < 1)).all():
            raise ValueError(f"rate is the probability of omitting a unit and must be in [0, 1), not {rate}")
        if convention not in CONVENTIONS:
            raise ValueError(f"unknown convention {convention!r}; the conventions are {', '.join(CONVENTIONS)}")
        seed = next(_unseeded) if seed is None else seed
        if not 0 <= seed < 1 << 63 or not 0 <= layer < 1 << 24:
            raise ValueError(f"seed must be in [0, 2^63) and layer in [0, 2^24), not {seed} and {layer}")
        self.convention = convention
        self.first_case = 0  # place of the first case in the whole mini-batch, where several processes share one
        self.purpose = MASK
        self.register_buffer("seed", torch.tensor(seed, device=device))
        self.register_buffer("layer", torch.tensor(layer, device=device))
        self.register_buffer("updates", torch.tensor(0, device=device))
        # One rate is a setting, like nn.Dropout's p; a rate for each unit is part of the net.
        self.register_buffer("rates", rates, persistent=rates.dim() > 0)

    def forward(self, x: Tensor) -> Tensor:
        self._check_shape(x)
        if x.is_meta:  # a shape and a type, nothing to omit
            return x if self.convention == "inverted" and not self.training else torch.where(x != 0, x, 0.0)
        if not self.training:
            return x if self.convention == "inverted" else x * self.keep_probability(x.dtype)
        if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
            raise RuntimeError(
                "meannet.nn.Dropout was run again inside a backward pass, where it would draw another mask than in the "
                "forward pass; leave it outside torch.utils.checkpoint"
            )
        # Not a product: an omitted unit passes on nothing even where it is infinite.
        thinned = torch.where(self.mask(x), x, 0.0)
        self.updates.add_(1)
        return thinned if self.convention == "paper" else thinned / self.keep_probability(x.dtype)

    def mask(self, x: Tensor) -> Tensor:
        """Which units of x the next update keeps, bool, in the shape of x; draws nothing."""
        units = x.shape[1:]
        rates = self.rates.expand(units).reshape(1, -1) if self.rates.dim() else self.rates.view(1, 1)
        cases = torch.arange(self.first_case, self.first_case + x.shape[0], device=x.device)
        keep = kept(self.seed.view(1), self.updates, self.layer, rates, cases, math.prod(units), self.purpose)
        return keep.view(x.shape)

    def keep_probability(self, dtype: torch.dtype) -> Tensor:
        """1 - rate, a scalar or one a unit; for whole numbers in torch's default type, since they could not hold it."""
        return (1 - self.rates).to(dtype if dtype.is_floating_point else torch.get_default_dtype())

    def extra_repr(self) -> str:
        rate = f"{self.rates.item():g}" if self.rates.dim() == 0 else f"{tuple(self.rates.shape)} rates"
        convention = "" if self.convention == "paper" else f", convention={self.convention!r}"
        return f"{rate}, seed={self.seed.item()}, layer={self.layer.item()}{convention}"

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        held = dict(self.named_buffers())
        super()._apply(fn, recurse)
        for name, tensor in held.items():  # moved, but never rounded by half() and its like, nor lost on the way
            device = self.get_buffer(name).device
            setattr(self, name, tensor if device.type == "meta" else tensor.to(device))
        return self

    def _check_shape(self, x: Tensor):
        rates, units = self.rates.shape, x.shape[1:]
        if x.dim() == 0:
            raise ValueError("the first axis of the input is the cases; a single number has none")
        fits = all(r in (1, u) for r, u in zip(reversed(rates), reversed(units), strict=False))
        if len(rates) > len(units) or not fits:
            raise ValueError(f"rates of shape {tuple(rates)} do not fit units of shape {tuple(units)}")


def seed_dropout_(module: nn.Module, seed: int) -> nn.Module:
    """Give every Dropout inside the same seed and a layer number of its own, in the module's order, at update 0."""
    dropouts = [part for part in module.modules() if isinstance(part, Dropout)]
    for layer, dropout in enumerate(dropouts):
        dropout.seed.fill_(seed)
        dropout.layer.fill_(layer)
        dropout.updates.zero_()
    return module


@contextmanager
def counters_kept(dropouts: Sequence[Dropout]) -> Generator[None]:
    """For the while each Dropout has a seed, numbers and a purpose to set at will; after it those that it had."""
    before = [(part.seed, part.layer, part.updates, part.purpose, part.first_case) for part in dropouts]
    try:
        for part in dropouts:
            part.seed, part.layer, part.updates = part.seed.clone(), part.layer.clone(), part.updates.clone()
        yield
    finally:
        for part, own in zip(dropouts, before, strict=True):
            part.seed, part.layer, part.updates, part.purpose, part.first_case = own
