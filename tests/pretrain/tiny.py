"""Machines small enough to go through all their states, with numpy and by the definition."""

import itertools
from dataclasses import replace

import numpy as np
import torch

from meannet.pretrain.rbm import RBM, initial_rbm


def machine(visible=4, hidden=3, nets=2, kind="bernoulli", labels=0, scale=1.0, seed=0, **more) -> RBM:
    """Random parameters in float64, other ones for each net."""
    made = initial_rbm(visible, hidden, range(nets), kind=kind, labels=labels, dtype=torch.float64, **more)
    drawn = torch.Generator().manual_seed(seed)
    for tensor in (made.weights, made.visible_biases, made.hidden_biases):
        tensor.copy_(scale * torch.randn(tensor.shape, generator=drawn, dtype=torch.float64))
    return made


def copies(made: RBM, nets: int) -> RBM:
    """Many machines with the parameters of the first and seeds of their own, to average over draws."""
    many = {name: tensor[:1].repeat(nets, *[1] * (tensor.dim() - 1)) for name, tensor in made.state().items()}
    return replace(made, seeds=torch.arange(nets), **many)


def states(units: int, labels: int = 0) -> np.ndarray:
    """All of them, (2^units, units); of the labels, which come last, one is on."""
    free = np.array(list(itertools.product((0.0, 1.0), repeat=units - labels)))
    if not labels:
        return free
    return np.array([[*row, *one] for row in free for one in np.eye(labels)])


def parts(made: RBM, net: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(t[net].numpy() for t in (made.weights, made.visible_biases, made.hidden_biases))


def logistic(x):
    return 1 / (1 + np.exp(-x))


def joint(made: RBM, net: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visible states, hidden states and exp(-energy) of each pair, by the definition."""
    weights, a, b = parts(made, net)
    v, h = states(made.sizes[0], made.labels), states(made.sizes[1])
    return v, h, np.exp(v @ a[:, None] + (h @ b)[None] + np.einsum("vi,hj,ji->vh", v, h, weights))


def model_statistics(made: RBM, net: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expectations of hidden times visible, of visible and of hidden units under the machine."""
    v, h, p = joint(made, net)
    p = p / p.sum()
    return np.einsum("vh,hj,vi->ji", p, h, v), p.sum(1) @ v, p.sum(0) @ h


def samples(made: RBM, count: int, seed: int = 0) -> np.ndarray:
    """Visible states drawn from the machine itself, (count, visible)."""
    v, _, p = joint(made)
    share = p.sum(1) / p.sum()
    return v[np.random.default_rng(seed).choice(len(v), count, p=share)]


def changes(made: RBM, start: RBM) -> list[torch.Tensor]:
    """Of weights, visible and hidden biases, by net."""
    names = ("weights", "visible_biases", "hidden_biases")
    return [getattr(made, name) - getattr(start, name)[:1] for name in names]


def agree(found: list[torch.Tensor], expected: list[np.ndarray], errors: float = 4.5) -> None:
    """Each mean over nets is within so many standard errors of what was expected."""
    for tensor, wanted in zip(found, expected, strict=True):
        error = tensor.std(0).numpy() / np.sqrt(len(tensor))
        assert (np.abs(tensor.mean(0).numpy() - wanted) <= errors * error + 1e-12).all()
