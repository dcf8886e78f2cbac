"""Annealed importance sampling (Salakhutdinov and Murray 2008): how large a machine's partition function is."""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import RBM, need_one_machine, sample_hidden, sample_visible

STAGE = 255  # of its draws


@dataclass(frozen=True)
class Estimate:
    """Log partition functions, (nets,), and the ends of three standard errors of the partition function itself."""

    log_partition: Tensor
    low: Tensor
    high: Tensor


@torch.no_grad()
def log_partition(rbm: RBM, *, temperatures: int = 1000, particles: int = 100) -> Estimate:
    """Estimated from chains that begin at independent visible units and end at the machine itself.

    At inverse temperature b weights are b times what they are; biases are themselves at all of them, since chains that
    begin where most units are off, as in digits, have less far to go. A deep Boltzmann machine's is that of its
    `folded` machine. `low` is minus infinity where three standard errors reach zero.
    """
    if temperatures < 1 or particles < 2:
        raise ValueError("it takes 1 temperature or more, and 2 particles or more for the error to be told")
    need_one_machine(rbm)
    nets, device, dtype = len(rbm.seeds), rbm.device, rbm.weights.dtype
    nothing = torch.zeros(nets, particles, rbm.sizes[1], device=device, dtype=dtype)
    visible = sample_visible(rbm, nothing, Draws(rbm.seeds, STAGE, 0))
    log_weights = torch.zeros(nets, particles, device=device, dtype=torch.float64)
    for k in range(1, temperatures + 1):
        total, biases = torch.bmm(visible, rbm.weights.mT).double(), rbm.hidden_biases[:, None].double()
        now, before = k / temperatures, (k - 1) / temperatures
        log_weights += (F.softplus(now * total + biases) - F.softplus(before * total + biases)).sum(-1)
        cooler = replace(rbm, weights=now * rbm.weights, rounded=None)
        draws = Draws(rbm.seeds, STAGE, k)
        visible = sample_visible(cooler, sample_hidden(cooler, visible, draws), draws)
    start = _log_partition_without_weights(rbm)
    mean = log_weights.logsumexp(1) - math.log(particles)
    relative = (log_weights - mean[:, None]).exp().std(1) / math.sqrt(particles)
    found = start + mean
    return Estimate(found, found + torch.log((1 - 3 * relative).clamp(min=0)), found + torch.log1p(3 * relative))


def _log_partition_without_weights(rbm: RBM) -> Tensor:
    """Of the machine that has biases only, (nets,) in float64."""
    units = rbm.visible_biases.double()
    found = F.softplus(rbm.hidden_biases.double()).sum(1)
    if rbm.labels:
        found = found + units[:, -rbm.labels :].logsumexp(1)
        units = units[:, : -rbm.labels]
    if rbm.visible == "gaussian":
        return found + 0.5 * math.log(2 * math.pi) * units.shape[1]
    return found + F.softplus(units).sum(1)
