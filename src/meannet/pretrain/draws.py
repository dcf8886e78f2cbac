"""Random states of units without a stream: a function of seed, stage, update, place in the update and position."""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from meannet.core.dropout import LEVELS
from meannet.core.philox import GIBBS, normals, uniform16
from meannet.fast.cpu import library
from meannet.fast.units import triton_is_there

PLACES = 1 << 16  # of draws in an update


@dataclass
class Draws:
    """The draws of one update of one stage; each call takes the next place, so the order of calls is the address.

    A stage is one training of one machine, counted from 0 in a stack. The number of the update may be a tensor on the
    device of the seeds, so that a captured graph can count for itself.
    """

    seeds: Tensor  # (nets,) int64
    stage: int
    update: int | Tensor
    taken: int = 0

    def on(self, probabilities: Tensor) -> Tensor:
        """1 with these probabilities, else 0; (nets, cases, units) in their precision, the same bits on any device."""
        place = self._place()
        nets, cases, units = probabilities.shape
        if isinstance(self.update, Tensor) and _launches(self.seeds):
            return launched(probabilities.contiguous(), self.seeds, self.update, place)
        kernel = library() if probabilities.device.type == "cpu" else None
        if kernel is not None and probabilities.dtype == torch.float32:
            probabilities, states = probabilities.contiguous(), torch.empty(probabilities.shape)
            kernel.meannet_turn_on(
                ctypes.c_void_p(probabilities.data_ptr()),
                ctypes.c_void_p(states.data_ptr()),
                ctypes.c_void_p(self.seeds.data_ptr()),
                nets,
                ctypes.c_uint32(place),
                ctypes.c_uint32(int(self.update)),
                ctypes.c_int64(cases),
                ctypes.c_int64(units),
            )
            return states
        draws = uniform16(self.seeds, 0, place, self.update, range(cases), units)
        return (draws < probabilities * LEVELS - (LEVELS // 2 + 0.5)).to(probabilities.dtype)

    def one_of(self, totals: Tensor) -> Tensor:
        """One unit of each case on, with the softmax of these total inputs; (nets, cases, units)."""
        cases, units = totals.shape[1:]
        place = self._place()
        if isinstance(self.update, Tensor) and _launches(self.seeds):
            draws = launched_draws(cases, self.seeds, self.update, place)
        else:
            draws = uniform16(self.seeds, 0, place, self.update, range(cases), 8)[..., :1]
        ends = totals.softmax(-1).cumsum(-1)[..., :-1] * LEVELS - (LEVELS // 2 + 0.5)
        chosen = (draws >= ends).sum(-1)  # how many of the units before the last end below the draw
        return one_hot(chosen, units, totals.dtype)

    def next(self) -> tuple[Tensor, Tensor, int]:
        """Seeds, number of the update, and the place that a kernel of its own takes."""
        update = (
            self.update if isinstance(self.update, Tensor) else torch.tensor([self.update], device=self.seeds.device)
        )
        return self.seeds, update, self._place()

    def around(self, means: Tensor) -> Tensor:
        """Normal with these means and variance 1."""
        cases, units = means.shape[1:]
        return means + normals(self.seeds, 0, self._place(), self.update, range(cases), units).to(means.dtype)

    def _place(self) -> int:
        """The counter's word for purpose, stage and place."""
        if self.taken == PLACES:  # the next would be the first of the next stage
            raise ValueError(f"an update has {PLACES} draws of states and no more; take fewer Gibbs steps")
        self.taken += 1
        return GIBBS << 24 | self.stage << 16 | self.taken - 1


def launched(probabilities: Tensor, seeds: Tensor, update: Tensor, place: int) -> Tensor:
    """States from the kernel of the GPU."""
    from meannet.fast.kernels import turn_on

    nets, cases, units = probabilities.shape
    states, blocks = torch.empty_like(probabilities), -(-units // 8)
    grid = (-(-cases * blocks // 256), nets)
    turn_on[grid](probabilities, states, seeds, update, place, cases, units, blocks, BLOCK=256)
    return states


def launched_draws(cases: int, seeds: Tensor, update: Tensor, place: int) -> Tensor:
    """One draw for each case, (nets, cases, 1) int16, from the kernel of the GPU."""
    from meannet.fast.kernels import draw

    draws = torch.empty(len(seeds), cases, 1, dtype=torch.int16, device=seeds.device)
    draw[(-(-cases // 128), len(seeds))](draws, seeds, update, place, cases, BLOCK=128)
    return draws


def one_hot(numbers: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """1 at each number, else 0, along a new last axis; torch's own looks at the numbers, which a graph cannot."""
    return (numbers.unsqueeze(-1) == torch.arange(count, device=numbers.device)).to(dtype)


def _launches(seeds: Tensor) -> bool:
    return seeds.device.type == "cuda" and triton_is_there()
