"""The parameters of both estimators: what they may be, and the nets and schedules that they ask for."""

import math
import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state

from meannet.config import Optim
from meannet.estimators.allowed import PARAMETERS, check
from meannet.estimators.warning import warn
from meannet.nn.dense import Fleet, initial_fleet

USUAL_HIDDEN = (256,)
UPDATES = 3000  # that epochs="auto" aims at
LEAST_EPOCHS, MOST_EPOCHS = 10, 300
BIAS_SD = 1.0  # of rectified units at the start: they bend at places all over the cases, not all near their mean
PAYS = 10**11  # products from which on device="auto" takes a GPU; two CPU cores take some ten seconds for them


class Parameters(BaseEstimator):
    """Stored as they are given, and checked when a fit begins."""

    _seed: int

    def __init__(
        self,
        hidden=USUAL_HIDDEN,
        *,
        units="rectified",
        dropout_hidden=0.5,
        dropout_visible=0.0,
        epochs="auto",
        batch=32,
        lr="auto",
        lr_end=0.01,
        momentum=(0.5, 0.95),
        limit=15.0,
        standardize=True,
        n_nets=1,
        pretrain=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=50,
        warm_start=False,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.hidden = hidden
        self.units = units
        self.dropout_hidden = dropout_hidden
        self.dropout_visible = dropout_visible
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.lr_end = lr_end
        self.momentum = momentum
        self.limit = limit
        self.standardize = standardize
        self.n_nets = n_nets
        self.pretrain = pretrain
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute], its stubs are old
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

    def _check_parameters(self) -> None:
        check(self, PARAMETERS)
        stack: Any = self.pretrain
        if stack is not None and not isinstance(stack, FrozenEstimator):
            stack._check_parameters()
        given = _sizes(self.hidden)
        if self.pretrain is not None and given not in (USUAL_HIDDEN, self._hidden()):
            used = f"the net has the layers of pretrain, {self._hidden()}"
            warn(f"hidden={given} is not used: {used}")

    def _new_fleet(
        self, inputs: int, outputs: int, output: str, groups: tuple[int, ...], device: torch.device
    ) -> Fleet:
        sizes = (inputs, *self._hidden(), outputs)
        rates = [self.dropout_visible, *[self.dropout_hidden] * len(self._hidden())]
        gain = 2.0 if self._units() == "rectified" else 1.0
        last = len(rates) - 1
        # Activities keep their size from layer to layer, counting the units that are kept (He et al. 2015).
        sd = [
            math.sqrt((gain if k < last else 1.0) / (size * (1 - rate)))
            for k, (size, rate) in enumerate(zip(sizes, rates, strict=False))
        ]
        return initial_fleet(
            sizes,
            net_seeds(self._seed, self.n_nets),
            [torch.full((self.n_nets, 1), float(rate), dtype=torch.float64) for rate in rates],
            units=self._units(),
            output=output,
            groups=groups,
            sd=sd,
            bias_sd=BIAS_SD if self._units() == "rectified" else 0.0,
            device=device,
        )

    def _usual_lr(self, inputs: int) -> float:
        """The learning rate that "auto" stands for, with so many inputs."""
        raise NotImplementedError

    def _optim(self, count: int, inputs: int, partial: bool) -> Optim:
        batch = min(self.batch, count)
        epochs: Any = self.epochs
        if epochs == "auto":
            epochs = min(MOST_EPOCHS, max(LEAST_EPOCHS, math.ceil(UPDATES / math.ceil(count / batch))))
        lr: Any = self._usual_lr(inputs) if self.lr == "auto" else self.lr
        start, end = self.momentum
        return Optim(
            epochs=1 if partial else epochs,
            batch=batch,
            lr=lr,
            decay=1.0 if partial else self.lr_end ** (1 / epochs),
            momentum_start=start,
            momentum_end=end,
            momentum_epochs=epochs // 4,
            limit=self.limit if self.pretrain is None else math.inf,  # A.2: so as not to lose what was pretrained
        )

    def _units(self) -> str:
        return self.units if self.pretrain is None else "logistic"

    def _hidden(self) -> tuple[int, ...]:
        if self.pretrain is not None:
            from meannet.estimators.pretrained import layer_sizes

            return layer_sizes(self.pretrain)
        return _sizes(self.hidden)

    def _shape(self) -> dict[str, Any]:
        """What a net that is trained further must have been made with, as JSON has it."""
        return {
            "hidden": list(self._hidden()),
            "units": self._units(),
            "dropout_hidden": float(self.dropout_hidden),
            "dropout_visible": float(self.dropout_visible),
            "standardize": bool(self.standardize),
            "n_nets": int(self.n_nets),
        }

    def _weight_count(self, inputs: int) -> int:
        """About how many products one case needs on its way through one net."""
        sizes = (inputs, *self._hidden())
        return sum(below * above for below, above in pairwise((*sizes, 1)))

    def _device(self, products: int) -> torch.device:
        """Where so many products are best done: "auto" leaves to the CPU what is over before a GPU has started."""
        return on_device(self.device, products)


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """A fit that fails, or is interrupted where it cannot be used, leaves the estimator as it was."""
    before = {name: [*held] if name == "history_" else held for name, held in vars(estimator).items()}
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def _sizes(hidden: Any) -> tuple[int, ...]:
    """Of hidden layers; one number is one layer."""
    return tuple(int(size) for size in ((hidden,) if isinstance(hidden, numbers.Integral) else hidden))


def on_device(device: str, products: int) -> torch.device:
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda', but PyTorch finds no CUDA device here; use device='cpu' or 'auto'")
    pays = device == "cuda" or (device == "auto" and products > PAYS and torch.cuda.is_available())
    return torch.device("cuda" if pays else "cpu")


def seed_of(random_state: Any) -> int:
    """From 0 to 2^32 - 1; whole numbers are seeds themselves."""
    if isinstance(random_state, numbers.Integral):
        check_random_state(random_state)  # scikit-learn's own message where it is out of range
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def net_seeds(seed: int, nets: int) -> list[int]:
    """One a net; the first is the seed itself, and fits with different seeds below 2^32 share none."""
    return [net << 32 | seed for net in range(nets)]
