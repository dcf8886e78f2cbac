"""meannet itself, with the interface of the peers under benchmarks/."""

import itertools

import torch

from meannet import fast
from meannet.bench.work import Work, fresh
from meannet.train import Engine


def prepare(work: Work):
    """A function that makes `work.updates` updates of every net and returns their mean loss."""
    engine, epochs = engine_of(work), itertools.count()

    def run() -> float:
        tally = engine.epoch(next(epochs), [work.step] * work.nets, work.momentum, lambda: False)
        assert tally is not None
        return float(tally.loss.mean()) / (work.updates * work.batch)

    return run


def engine_of(work: Work) -> Engine:
    """All nets start from the net of this work, where it has one, and differ by their seeds."""
    fleet = fresh(work)
    for ours, given in zip([*fleet.weights, *fleet.biases], [*work.weights, *work.biases], strict=bool(work.weights)):
        ours.copy_(torch.from_numpy(given))
    part = slice(work.updates * work.batch)
    inputs, targets = torch.from_numpy(work.inputs[part]), torch.from_numpy(work.targets[part])
    limits = [work.limit] * work.nets
    return fast.engine(fleet, inputs.to(work.device), targets.to(work.device), work.batch, limits, work.path)


def threads() -> int:
    return kernel_threads() if fast_set() else torch.get_num_threads()


def kernel_threads() -> int:
    from meannet.fast.cpu import threads

    return threads()


def fast_set() -> str:
    """The instruction set of the CPU's fast path; empty where it was not built."""
    from meannet.fast.cpu import SETS, library

    kernel = library()
    return SETS[kernel.meannet_best_set()] if kernel else ""
