"""BernoulliRBM, GaussianRBM and DBN: features learned without labels (A.2, B.1), the scikit-learn way."""

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from meannet.config import Pretrain
from meannet.estimators.allowed import Allowed, check_counts, number
from meannet.estimators.cases import Matrix, case_keys, dense_rows
from meannet.estimators.transformer import Pretrained, in_unit_interval
from meannet.estimators.warning import warn
from meannet.pretrain import ais, rbm
from meannet.pretrain.rbm import RBM

_LR = number(0, np.inf)
NEARLY = 0.1  # so far beyond [0, 1] inputs may have been meant to be within


class _RBM(Pretrained):
    """One layer."""

    def __init__(
        self,
        n_components=256,
        *,
        lr=0.05,
        epochs=20,
        batch=32,
        steps=1,
        persistent=False,
        momentum=(0.5, 0.9),
        decay=0.0002,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.n_components = n_components
        self.lr = lr
        self.epochs = epochs
        self.batch = batch
        self.steps = steps
        self.persistent = persistent
        self.momentum = momentum
        self.decay = decay
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @property
    def components_(self) -> np.ndarray:
        """Weights, (units, features), of inputs as they are scaled inside."""
        return self._machine.weights[0].numpy()

    @property
    def intercept_hidden_(self) -> np.ndarray:
        return self._machine.hidden_biases[0].numpy()

    @property
    def intercept_visible_(self) -> np.ndarray:
        return self._machine.visible_biases[0].numpy()

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Means of the inputs given features or states of the hidden units, on the inputs' own scale."""
        machine = self._machine
        hidden = check_array(np.atleast_2d(dense_rows(X)))
        if hidden.shape[1] != machine.sizes[1]:
            raise ValueError(f"X has {hidden.shape[1]} features, but there are {machine.sizes[1]} hidden units")
        found = rbm.visible_means(machine, torch.tensor(hidden)[None])[0].numpy()
        return found * self._scaling.scale + self._scaling.mean

    def free_energy(self, X: Any) -> np.ndarray:
        """Of each case, up to the log partition function minus its log density on the scale used inside."""
        return self._each(X, lambda inputs: rbm.free_energy(self._machine, inputs))

    def log_partition(self, temperatures: int = 1000, particles: int = 100) -> tuple[float, float, float]:
        """The log partition function by annealed importance sampling, and the ends of three standard errors.

        What is drawn follows from the seed of the fit, so that each call gives the same.
        """
        return log_partition(self._machine, temperatures, particles)

    def _hidden(self) -> tuple[int, ...]:
        return (self.n_components,)

    def _settings(self, kind: str, cases: int, **more: Any) -> Pretrain:
        return super()._settings(kind, cases, steps=self.steps, persistent=bool(self.persistent), **more)

    @property
    def _machine(self) -> RBM:
        check_is_fitted(self)
        return self._stack.layers[0]


class BernoulliRBM(_RBM):
    """A restricted Boltzmann machine with binary units, trained by contrastive divergence; transforms to features.

    Parameters
    ----------
    n_components : int
        Hidden units, which are the features.
    lr : float
        Learning rate, of the average gradient of a mini-batch.
    epochs, batch : int
        Times through the cases, and cases in a mini-batch.
    steps : int
        Gibbs steps of an update, the k of CD-k.
    persistent : bool
        Keep chains from update to update instead of beginning at the data.
    momentum : pair of floats
        In the first 5 epochs, and after them.
    decay : float
        Weight decay.
    random_state : int, RandomState or None
    device : "auto", "cpu" or "cuda"
    verbose : int
        1 shows a line of progress.

    Inputs are probabilities. Where they are not all in [0, 1], each feature is brought there by its least and largest
    value among the cases of the fit.

    Attributes
    ----------
    components_, intercept_hidden_, intercept_visible_ : arrays
        Weights (units, features) and biases.
    history_ : list of dicts
        The reconstruction error after each epoch.
    n_iter_, n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    def score_samples(self, X: Any) -> np.ndarray:
        """Pseudo log-likelihoods, one a case: the log probability of one unit given the rest, times all units.

        Which unit follows from the case itself and the seed, so that a case has the same score in any company.
        """

        def scores(inputs: torch.Tensor) -> torch.Tensor:
            keys = case_keys(inputs[0].numpy(), np.zeros((inputs.shape[1], 0))) ^ np.uint64(self._seed)
            unit = torch.from_numpy((keys % np.uint64(inputs.shape[2])).astype(np.int64))
            return rbm.pseudo_log_likelihood(self._machine, inputs, unit)

        return self._each(X, scores)

    def _visible(self, X: Matrix) -> str:
        return "bernoulli"


class GaussianRBM(_RBM):
    """A restricted Boltzmann machine for real-valued inputs, with Gaussian visible units of variance 1 (B.1).

    Inputs are standardised inside. The parameters and attributes are those of BernoulliRBM; a learning rate of 0.001 to
    0.01 is the habit for Gaussian units.
    """

    def __init__(
        self,
        n_components=256,
        *,
        lr=0.005,
        epochs=20,
        batch=32,
        steps=1,
        persistent=False,
        momentum=(0.5, 0.9),
        decay=0.0002,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        super().__init__(
            n_components=n_components,
            lr=lr,
            epochs=epochs,
            batch=batch,
            steps=steps,
            persistent=persistent,
            momentum=momentum,
            decay=decay,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )

    def score_samples(self, X: Any) -> np.ndarray:
        """Minus the free energy: the log density of each case up to a constant, the log partition function."""
        return -self.free_energy(X)

    def _visible(self, X: Matrix) -> str:
        return "gaussian"


class DBN(Pretrained):
    """A deep belief net: restricted Boltzmann machines one upon another, each trained on the features of those below.

    It is a transformer, and what `DropoutClassifier(pretrain=DBN(...))` starts from.

    Parameters
    ----------
    hidden : int or tuple of ints
        Units of each layer.
    visible : "auto", "bernoulli" or "gaussian"
        The kind of visible units; "auto" takes Bernoulli ones where all inputs are in [0, 1], and warns where they are
        only nearly.
    lr : float or None
        Learning rate; None is 0.05, and for a Gaussian first layer 0.005.
    epochs, batch, steps, persistent, momentum, decay, random_state, device, verbose
        As in BernoulliRBM; the epochs are those of each layer.

    Attributes
    ----------
    components_, intercepts_ : lists of arrays
        Weights (units, inputs) of each layer; biases of the visible units and of those of each layer.
    history_ : list of dicts
        The reconstruction error of a layer after each epoch.
    """

    _allowed: Mapping[str, Allowed] = {"lr": (lambda value: value is None or _LR[0](value), f"None or {_LR[1]}")}

    def __init__(
        self,
        hidden=(256, 256),
        *,
        visible="auto",
        lr=None,
        epochs=20,
        batch=32,
        steps=1,
        persistent=False,
        momentum=(0.5, 0.9),
        decay=0.0002,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.hidden = hidden
        self.visible = visible
        self.lr = lr
        self.epochs = epochs
        self.batch = batch
        self.steps = steps
        self.persistent = persistent
        self.momentum = momentum
        self.decay = decay
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @property
    def components_(self) -> list[np.ndarray]:
        check_is_fitted(self)
        return [layer.weights[0].numpy() for layer in self._stack.layers]

    @property
    def intercepts_(self) -> list[np.ndarray]:
        check_is_fitted(self)
        visible = [layer.visible_biases[0].numpy() for layer in self._stack.layers[:1]]
        return visible + [layer.hidden_biases[0].numpy() for layer in self._stack.layers]

    def _visible(self, X: Matrix) -> str:
        if self.visible != "auto":
            return self.visible
        if in_unit_interval(X):
            return "bernoulli"
        least, most = X.min(), X.max()
        if least >= -NEARLY and most <= 1 + NEARLY:
            warn(
                f"inputs reach from {least:.9g} to {most:.9g}, so that visible='auto' takes Gaussian units; "
                "clip inputs to [0, 1] for Bernoulli ones, or say which with visible"
            )
        return "gaussian"

    def _hidden(self) -> tuple[int, ...]:
        sizes: Any = (self.hidden,) if isinstance(self.hidden, numbers.Integral) else self.hidden
        return tuple(int(size) for size in sizes)

    def _learning_rates(self, kind: str) -> tuple[float, ...]:
        return (0.005 if kind == "gaussian" else 0.05, 0.05) if self.lr is None else (self.lr,)

    def _settings(self, kind: str, cases: int, **more: Any) -> Pretrain:
        return super()._settings(kind, cases, steps=self.steps, persistent=bool(self.persistent), **more)


def log_partition(machine: RBM, temperatures: int, particles: int) -> tuple[float, float, float]:
    """Of one machine, and the ends of three standard errors."""
    check_counts(1, temperatures=temperatures)
    check_counts(2, particles=particles)
    found = ais.log_partition(machine, temperatures=temperatures, particles=particles)
    return found.log_partition.item(), found.low.item(), found.high.item()


def belief_net(pretrain: Any) -> "DBN | _RBM | None":
    """The stack that a classifier may start from, frozen or not; None where it is none."""
    inner = pretrain.estimator if isinstance(pretrain, FrozenEstimator) else pretrain
    return inner if isinstance(inner, DBN | _RBM) else None


def layer_sizes(pretrain: Any) -> tuple[int, ...]:
    """Of a classifier's hidden layers: of a frozen stack those it has, of others those it is to have."""
    stack = belief_net(pretrain)
    assert stack is not None
    fitted = isinstance(pretrain, FrozenEstimator) and hasattr(stack, "_stack")
    return stack._stack.sizes[1:] if fitted else stack._hidden()
