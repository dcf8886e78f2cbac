"""BernoulliRBM, GaussianRBM, DBN and DBM: features learned without labels (A.2, B.1), the scikit-learn way."""

import numbers
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]

from meannet import __version__, checkpoint
from meannet.config import Joint, Pretrain
from meannet.estimators.cases import Matrix, Scaling, case_keys, chunks, dense_inputs, dense_rows
from meannet.estimators.parameters import (
    _PARAMETERS,
    _either,
    _layers,
    _number,
    _whole,
    on_device,
    seed_of,
)
from meannet.estimators.progress import Line
from meannet.pretrain import ais, dbm, rbm, stack
from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import RBM
from meannet.pretrain.stack import Stack, new_stack, pretrain
from meannet.pretrain.unrolled import layers

FORMAT = 1


class Pretrained(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What they share: checks, a fit through the package's own loop, features in float64, samples, save and load."""

    lr: Any
    epochs: int
    batch: int
    momentum: tuple[float, float]
    decay: float
    random_state: Any
    device: str
    verbose: int
    n_features_in_: int
    feature_names_in_: np.ndarray
    _stack: Stack
    _scaling: Scaling

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute], its stubs are old
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from inputs (cases, features), dense or sparse; targets are ignored."""
        self._check_parameters()
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32))
        self._seed = seed_of(self.random_state)
        kind = self._visible(X)
        self._scaling = _scaling(X, kind)
        sizes = (X.shape[1], *self._hidden())
        settings = self._settings(kind, X.shape[0])
        products = sum(below * above for below, above in pairwise(sizes)) * X.shape[0] * 5 * settings.epochs[0]
        device = on_device(self.device, products)
        made = new_stack(settings, sizes, 1, [self._seed], device)
        inputs = dense_inputs(X, np.arange(X.shape[0]), self._scaling, device)
        self.history_: list[dict[str, Any]] = []
        line = Line(sum(one.epochs for one in made.stages), bool(self.verbose))
        # Products in float32, so that the same data give the same features on every machine.
        for done in pretrain(made, inputs, None):
            error = {"reconstruction_error": done.values[0]}
            self.history_.append({"stage": done.stage.name, "epoch": done.epoch} | error)
            line.show(error)
        line.close()
        self.n_iter_ = len(self.history_)
        self._keep(made)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The features: probabilities that the units of the last hidden layer are on, float64 (cases, units)."""
        return self._each(X, self._features)

    def sample(self, n_samples: int = 100, steps: int = 1000) -> np.ndarray:
        """Inputs drawn from the model: means of the visible units at the end of chains that begin at random states."""
        check_is_fitted(self)
        if n_samples < 1 or steps < 1:
            raise ValueError(f"n_samples and steps must be 1 or more; got {n_samples!r} and {steps!r}")
        noise = torch.full((1, n_samples, self.n_features_in_), 0.5, dtype=torch.float64)
        start = Draws(self._stack.seeds, 253, 0).on(noise)[0]
        found = stack.samples(self._stack, start, n_samples, steps)[0].numpy()
        return found * self._scaling.scale + self._scaling.mean

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one checksummed safetensors file, without pickle."""
        check_is_fitted(self)
        tensors = self._stack.state() | {
            "mean": torch.from_numpy(self._scaling.mean),
            "scale": torch.from_numpy(self._scaling.scale),
        }
        parameters = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        if self.random_state is not None:
            parameters["random_state"] = self._seed
        facts = {
            "format": FORMAT,
            "meannet": __version__,
            "estimator": type(self).__name__,
            "parameters": parameters,
            "kind": self._stack.settings.visible,
            "cases": self._cases,
            "seed": self._seed,
            "history": self.history_,
            "names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
        }
        checkpoint.save(Path(path), tensors, facts, keep_previous=False)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote."""
        tensors, facts = checkpoint.read(Path(path))
        if facts.get("format") != FORMAT or facts.get("estimator") != cls.__name__:
            what = f"{facts.get('estimator', 'no estimator')} in format {facts.get('format')}"
            raise ValueError(f"{path} holds {what}, not {cls.__name__} in format {FORMAT}")
        parameters = {k: tuple(v) if isinstance(v, list) else v for k, v in facts["parameters"].items()}
        made = cls(**parameters)
        made._seed, made.history_, made.n_iter_ = facts["seed"], facts["history"], len(facts["history"])
        made._scaling = Scaling(tensors["mean"].numpy(), tensors["scale"].numpy())
        made.n_features_in_ = len(made._scaling.mean)
        if facts["names"] is not None:
            made.feature_names_in_ = np.array(facts["names"], dtype=object)
        settings = made._settings(facts["kind"], facts["cases"])
        kept = new_stack(settings, (made.n_features_in_, *made._hidden()), 1, [made._seed])
        kept.restore(tensors, len(kept.stages), 0)
        made._keep(kept)
        return made

    @property
    def _n_features_out(self) -> int:
        return self._hidden()[-1]

    def _keep(self, made: Stack) -> None:
        """The trained stack on the CPU, in float64: features must not depend on how cases are cut into blocks."""
        self._cases = made.settings.batch
        made.seeds = made.seeds.cpu()
        for machine in [*made.layers, *([made.dbm.folded] if made.dbm else [])]:
            machine.seeds = made.seeds
            for name, tensor in machine.state().items():
                setattr(machine, name, tensor.cpu().double())
        if made.dbm:
            made.dbm.chains, made.dbm.activities = made.dbm.chains.cpu().double(), made.dbm.activities.cpu().double()
        self._stack = made

    def _each(self, X: Any, function: Any) -> np.ndarray:
        """What a function of scaled cases (1, cases, features) gives, a block of cases at a time."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        scaled = (torch.from_numpy(self._scaling.apply(part))[None] for part in chunks(X, max(self._stack.sizes)))
        return np.concatenate([function(part)[0].numpy() for part in scaled])

    def _features(self, inputs: torch.Tensor) -> torch.Tensor:
        return stack.top_means(self._stack, inputs)

    def _visible(self, X: Matrix) -> str:
        """The kind of visible units for these inputs."""
        raise NotImplementedError

    def _hidden(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _learning_rates(self, kind: str) -> tuple[float, ...]:
        return (self.lr,)

    def _settings(self, kind: str, cases: int, **more: Any) -> Pretrain:
        """`cases` are those of the fit, or the mini-batch that they allowed."""
        usual: dict[str, Any] = {
            "visible": kind,
            "epochs": (self.epochs,),
            "lr": self._learning_rates(kind),
            "decay": (self.decay,),
            "initial_sd": (0.1 if kind == "bernoulli" else 0.01, 0.1),
            "data_biases": "all",
            "batch": min(self.batch, cases),
            "momentum_start": self.momentum[0],
            "momentum_end": self.momentum[1],
            "softmax_epochs": 0,
        }
        return Pretrain(**usual | more)

    def _check_parameters(self) -> None:
        for name in self.get_params(deep=False):
            good, allowed = _CHECKS.get(name, _ANYTHING)
            if not good(value := getattr(self, name)):
                kind = type(self).__name__
                raise ValueError(f"The {name!r} parameter of {kind} must be {allowed}. Got {value!r} instead.")


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
        hidden = np.atleast_2d(dense_rows(X))
        if hidden.shape[1] != machine.sizes[1]:
            raise ValueError(f"X has {hidden.shape[1]} features, but there are {machine.sizes[1]} hidden units")
        found = rbm.visible_means(machine, torch.from_numpy(hidden)[None])[0].numpy()
        return found * self._scaling.scale + self._scaling.mean

    def free_energy(self, X: Any) -> np.ndarray:
        """Of each case, up to the log partition function minus its log density on the scale used inside."""
        return self._each(X, lambda inputs: rbm.free_energy(self._machine, inputs))

    def log_partition(self, temperatures: int = 1000, particles: int = 100) -> tuple[float, float, float]:
        """The log partition function by annealed importance sampling, and the ends of three standard errors."""
        found = ais.log_partition(self._machine, temperatures=temperatures, particles=particles)
        return found.log_partition.item(), found.low.item(), found.high.item()

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
        The kind of visible units; "auto" takes Bernoulli ones where all inputs are in [0, 1].
    lr : float or None
        Learning rate; None is 0.05, and for a Gaussian first layer 0.005.
    epochs, batch, steps, momentum, decay, random_state, device, verbose
        As in BernoulliRBM; the epochs are those of each layer.

    Attributes
    ----------
    components_ : list of arrays
        Weights (units, inputs) of each layer.
    history_ : list of dicts
        The reconstruction error of a layer after each epoch.
    """

    def __init__(
        self,
        hidden=(256, 256),
        *,
        visible="auto",
        lr=None,
        epochs=20,
        batch=32,
        steps=1,
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
        self.momentum = momentum
        self.decay = decay
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @property
    def components_(self) -> list[np.ndarray]:
        check_is_fitted(self)
        return [layer.weights[0].numpy() for layer in self._stack.layers]

    def _visible(self, X: Matrix) -> str:
        if self.visible != "auto":
            return self.visible
        return "bernoulli" if _in_unit_interval(X) else "gaussian"

    def _hidden(self) -> tuple[int, ...]:
        sizes: Any = (self.hidden,) if isinstance(self.hidden, numbers.Integral) else self.hidden
        return tuple(int(size) for size in sizes)

    def _learning_rates(self, kind: str) -> tuple[float, ...]:
        return (0.005 if kind == "gaussian" else 0.05, 0.05) if self.lr is None else (self.lr,)

    def _settings(self, kind: str, cases: int, **more: Any) -> Pretrain:
        return super()._settings(kind, cases, steps=self.steps, **more)


class DBM(Pretrained):
    """A deep Boltzmann machine with two hidden layers of binary units; its features are those of mean field.

    Layers are trained one by one with doubled inputs, then both together: mean field for the cases, persistent chains
    for the model.

    Parameters
    ----------
    hidden : pair of ints
        Units of the two layers.
    lr, epochs : float, int
        Of each layer by itself.
    joint_lr, joint_epochs : float, int
        Of both together.
    sweeps : int
        Mean-field sweeps.
    chains, steps : int
        Persistent chains, and their Gibbs steps for each mini-batch.
    batch, momentum, decay, random_state, device, verbose
        As in BernoulliRBM, and so is the scaling of inputs to [0, 1].

    Attributes
    ----------
    components_ : list of arrays
        Weights (units, inputs) of each layer.
    history_ : list of dicts
        The reconstruction error after each epoch.
    """

    def __init__(
        self,
        hidden=(256, 256),
        *,
        lr=0.05,
        epochs=20,
        joint_lr=0.005,
        joint_epochs=20,
        sweeps=10,
        chains=100,
        steps=5,
        batch=32,
        momentum=(0.5, 0.9),
        decay=0.0002,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.hidden = hidden
        self.lr = lr
        self.epochs = epochs
        self.joint_lr = joint_lr
        self.joint_epochs = joint_epochs
        self.sweeps = sweeps
        self.chains = chains
        self.steps = steps
        self.batch = batch
        self.momentum = momentum
        self.decay = decay
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @property
    def components_(self) -> list[np.ndarray]:
        check_is_fitted(self)
        (first, _), (second, _) = layers(self._stack)
        return [first[0, :, : self.n_features_in_].numpy(), second[0].numpy()]

    def _features(self, inputs: torch.Tensor) -> torch.Tensor:
        assert self._stack.dbm is not None
        return dbm.mean_field(self._stack.dbm, inputs, sweeps=self.sweeps)[1]

    def _visible(self, X: Matrix) -> str:
        return "bernoulli"

    def _hidden(self) -> tuple[int, ...]:
        return tuple(self.hidden)

    def _settings(self, kind: str, cases: int, **more: Any) -> Pretrain:
        joint = Joint(
            epochs=self.joint_epochs,
            lr=self.joint_lr,
            lr_decay=0.1 ** (1 / self.joint_epochs),
            lr_least=0.0,
            decay=self.decay,
            sweeps=self.sweeps,
            chains=self.chains,
            steps=self.steps,
            cost=0.0,
        )
        return super()._settings(kind, cases, model="dbm", states="samples", sample_inputs=True, joint=joint, **more)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.hidden, tuple | list) or len(self.hidden) != 2:
            raise ValueError(f"The 'hidden' parameter of DBM must be a pair of ints. Got {self.hidden!r} instead.")


def belief_net(pretrain: Any) -> "DBN | _RBM | None":
    """The stack that a classifier may start from, frozen or not; None where it is none."""
    inner = pretrain.estimator if isinstance(pretrain, FrozenEstimator) else pretrain
    return inner if isinstance(inner, DBN | _RBM) else None


def _scaling(X: Matrix, kind: str) -> Scaling:
    """To mean 0 and standard deviation 1 for Gaussian units; into [0, 1] for others, unless they are there already."""
    if kind == "gaussian":
        found = Scaling.of(X, np.arange(X.shape[0]), None)
        if not sparse.issparse(X):
            return found
        mean = np.asarray(X.mean(axis=0), np.float64).reshape(-1)
        return Scaling(mean, found.scale)
    if _in_unit_interval(X):
        return Scaling.none(X.shape[1])
    least, most = (
        np.asarray(side.toarray() if sparse.issparse(side) else side, np.float64).reshape(-1)
        for side in (X.min(axis=0), X.max(axis=0))
    )
    return Scaling(least, np.where(most > least, most - least, 1.0))


def _in_unit_interval(X: Matrix) -> bool:
    return bool(X.min() >= 0 and X.max() <= 1)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | bool | int | float) else None


_ANYTHING = (lambda value: True, "")
_CHECKS = _PARAMETERS | {
    "n_components": _whole(1),
    "hidden": (lambda value: _layers(value) and value != (), "an int or a tuple of ints, each 1 or more"),
    "visible": _either("auto", "bernoulli", "gaussian"),
    "lr": (lambda value: value is None or _number(0, np.inf)[0](value), f"None or {_number(0, np.inf)[1]}"),
    "epochs": _whole(1),
    "joint_lr": _number(0, np.inf),
    "joint_epochs": _whole(1),
    "sweeps": _whole(1),
    "chains": _whole(1),
    "steps": _whole(1),
    "persistent": _either(True, False),
    "decay": _number(0, np.inf, closed=True),
}
