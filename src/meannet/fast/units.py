"""Logistic units of machines in training on a GPU: product, bias, logistic function and draw in one kernel.

The plain version is pretrain/rbm.py with torch's products; both draw the same numbers (pretrain/draws.py).
"""

from functools import cache

import torch
from torch import Tensor

CASES, UNITS, BLOCK = 32, 64, 64


def fused(weights: Tensor) -> bool:
    """Whether to use it: on a GPU with Triton, where products may be of TF32 numbers, as in captured updates."""
    low = torch.get_float32_matmul_precision() != "highest"
    return weights.device.type == "cuda" and weights.dtype == torch.float32 and low and triton_is_there()


def logistic(given: Tensor, weights: Tensor, biases: Tensor, factor: float = 1.0) -> Tensor:
    """Probabilities, the logistic function of factor * (given weights + biases), (nets, cases, units).

    `given` is (nets or 1, cases, inputs), `weights` (nets, inputs, units) in any layout, `biases` (nets, cases or 1,
    units).
    """
    return _launch(given, weights, biases, factor, None, given, given, 0, sampled=False)  # nothing is drawn


def logistic_states(
    given: Tensor,
    weights: Tensor,
    biases: Tensor,
    factor: float,
    draws: tuple[Tensor, Tensor, int],
    out: Tensor | None = None,
) -> Tensor:
    """1 with these probabilities, else 0; `draws` are seeds, the number of the update, and the place in it."""
    return _launch(given, weights, biases, factor, out, *draws, sampled=True)


def _launch(
    given: Tensor,
    weights: Tensor,
    biases: Tensor,
    factor: float,
    out: Tensor | None,
    seeds: Tensor,
    update: Tensor,
    place: int,
    *,
    sampled: bool,
) -> Tensor:
    from meannet.fast.kernels import logistic_layer

    nets, inputs, units = weights.shape
    cases = given.shape[1]
    given = given if given.stride(2) == 1 else given.contiguous()
    given, biases = given.expand(nets, -1, -1), biases.expand(nets, cases, units)
    found = given.new_empty(nets, cases, units) if out is None else out
    assert biases.stride(2) == found.stride(2) == 1
    grid = -(-units // UNITS), -(-cases // CASES), nets
    logistic_layer[grid](
        given,
        *given.stride()[:2],
        weights,
        *weights.stride(),
        biases,
        *biases.stride()[:2],
        found,
        *found.stride()[:2],
        factor,
        seeds,
        update,
        place,
        cases,
        units,
        inputs,
        SAMPLED=sampled,
        CASES=CASES,
        UNITS=UNITS,
        BLOCK=BLOCK,
    )
    return found


@cache
def triton_is_there() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
