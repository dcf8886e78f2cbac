"""The mean network and sampled thinned networks (body) of any PyTorch module that has dropout in it."""

import copy
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from meannet.core.philox import SAMPLE
from meannet.nn import Dropout, seed_dropout_
from meannet.nn.dropout import counters_kept

# Parts of torch that omit units on their own when they are training, and do nothing else differently then. An encoder
# layer that is not training takes a shortcut past the dropouts in it.
_OMITTING = (Dropout, _DropoutNd, nn.MultiheadAttention, nn.RNNBase, nn.TransformerEncoderLayer)


class Scaled(nn.Module):
    """Passes on a fixed share of each unit: what is left of a Dropout in a mean network."""

    share: Tensor

    def __init__(self, share: Tensor):
        super().__init__()
        self.register_buffer("share", share)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.share.to(x.dtype)


def mean_network(module: nn.Module) -> nn.Module:
    """A copy with all units, in evaluation mode, that scales what units pass on where training did not.

    nn.Dropout and its kin, attention and recurrent layers have scaled while training and are switched off, so that the
    copy omits nothing even if put into training mode; meannet.nn.Dropout becomes a plain scale, of 1 - rate in the
    paper's convention. Calls of F.dropout in a forward of one's own are off as long as they follow the copy's mode.
    `module` is left as it is.
    """
    mean = copy.deepcopy(getattr(module, "_orig_mod", module)).eval()  # a compiled module's own
    mean.zero_grad(set_to_none=True)
    for part in list(mean.modules()):
        if isinstance(part, _DropoutNd):
            part.p = 0.0
        elif isinstance(part, (nn.MultiheadAttention, nn.RNNBase)):
            part.dropout = 0.0
        for name, child in part._modules.items():  # named_children() skips a child's second name
            if isinstance(child, Dropout):
                setattr(part, name, _scaled(child))
    return _scaled(mean) if isinstance(mean, Dropout) else mean


@torch.no_grad()
def sample_networks(
    module: nn.Module, x: Any, n: int, seed: int = 0, *, also: type[nn.Module] | tuple[type[nn.Module], ...] = ()
) -> Tensor:
    """Outputs of n thinned networks, (n, …), without a trace in modes, random states, counters or gradients.

    x is the input, or a tuple or mapping of inputs. Only parts that omit units train for the while: meannet.nn.Dropout,
    nn.Dropout, nn.Dropout1d to 3d, nn.AlphaDropout and nn.FeatureAlphaDropout, as well as nn.MultiheadAttention,
    recurrent layers and nn.TransformerEncoderLayer, whose own rates are in their forward; all else, batch normalisation
    for one, stays in evaluation mode. `also` names classes of one's own that call F.dropout. The first of many sampled
    networks are those that a smaller n gives.
    """
    also = (also,) if isinstance(also, type) else also
    if n < 1:
        raise ValueError(f"the number of sampled networks must be 1 or more, not {n}")
    omitting = [part for part in module.modules() if isinstance(part, (*_OMITTING, *also))]
    if not omitting:
        raise ValueError("the module has no dropout to sample; name classes that call F.dropout themselves in `also`")
    arguments = x if isinstance(x, tuple) else () if isinstance(x, Mapping) else (x,)
    named = dict(x) if isinstance(x, Mapping) else {}
    tensors = [*module.parameters(), *module.buffers(), *(v for v in (*arguments, *named.values()) if _is_tensor(v))]
    dropouts = [part for part in omitting if isinstance(part, Dropout)]
    with _modes_kept(module), _random_states_kept(tensors, seed), counters_kept(dropouts):
        seed_dropout_(module, seed)
        for dropout in dropouts:
            dropout.purpose = SAMPLE  # a stream that is neither that of updates nor another Dropout's
        module.eval()
        for part in omitting:
            part.training = True  # train() would reach what is inside, too
        outputs = [module(*arguments, **named) for _ in range(n)]
    if not _is_tensor(outputs[0]):
        raise ValueError(f"the module must return a tensor, not {type(outputs[0]).__name__}; wrap it in one that does")
    return torch.stack(outputs)


def _scaled(dropout: Dropout) -> nn.Module:
    scaled = nn.Identity() if dropout.convention == "inverted" else Scaled(1 - dropout.rates)
    return scaled.train(dropout.training)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


@contextmanager
def _modes_kept(module: nn.Module) -> Generator[None]:
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _random_states_kept(tensors: list[Tensor], seed: int) -> Generator[None]:
    """Seeds the generators of the CPU and of the GPUs in use; torch.manual_seed would reach GPUs that are not."""
    gpus = sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            torch.cuda.default_generators[gpu].manual_seed(seed)
        yield
