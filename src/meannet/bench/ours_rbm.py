"""meannet's contrastive divergence, with the interface of the peers under benchmarks/."""

import statistics

import torch

from meannet import fast
from meannet.bench.work import Work
from meannet.config import Pretrain
from meannet.pretrain.stack import new_stack
from meannet.pretrain.stages import pretrain

threads = torch.get_num_threads


def prepare(work: Work):
    """A function that makes `work.updates` updates of every machine and returns their mean reconstruction error.

    It is an epoch as a run has it, the look at reconstructions at its end included.
    """
    device = torch.device(work.device)
    settings = Pretrain(epochs=(2**30,), batch=work.batch, softmax_epochs=0)
    stack = new_stack(settings, work.sizes, 1, range(work.nets), device)
    inputs = torch.from_numpy(work.inputs[: work.updates * work.batch]).to(device)
    epochs = pretrain(stack, inputs, None, products=fast.products(device, work.path))
    return lambda: statistics.fmean(next(epochs).values)
