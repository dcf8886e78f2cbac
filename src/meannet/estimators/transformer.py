"""What the pretrained transformers share: checks, a fit through the package's own loop, features, samples, files."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]

from meannet import __version__, checkpoint
from meannet.config import MOST_STEPS, Pretrain
from meannet.estimators.allowed import PARAMETERS, Allowed, check, check_counts, either, layers, number, whole
from meannet.estimators.cases import Matrix, Scaling, chunks, dense_inputs, flat
from meannet.estimators.parameters import all_or_nothing, net_seeds, on_device, seed_of
from meannet.estimators.progress import Line
from meannet.estimators.warning import warn
from meannet.pretrain import stack
from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import RBM
from meannet.pretrain.stack import Stack, new_stack
from meannet.pretrain.stages import Diverged, pretrain

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
    _asked: dict[str, Any]  # the parameters of the fit; those of the estimator may be set to others since
    _stack: Stack
    _scaling: Scaling
    _allowed: Mapping[str, Allowed] = {}  # where parameters may be other than in all of them

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute], its stubs are old
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from inputs (cases, features), dense or sparse; targets are ignored."""
        self._fit(X)
        return self

    def _fit(self, X: Any, nets: int = 1) -> Stack:
        """Fit to inputs, with a seed of its own for each net; gives the stack of all nets, and keeps the first's."""
        with all_or_nothing(self):
            self._check_parameters()
            X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32))
            self._seed = seed_of(self.random_state)
            made = self._train(X, nets)
            self._asked = self._parameters()
            self.n_iter_ = len(self.history_)
            self._stack = _first(made)
        return made

    def _train(self, X: Matrix, nets: int) -> Stack:
        kind = self._visible(X)
        self._scaling = scaling(X, kind)
        sizes = (X.shape[1], *self._hidden())
        settings = self._settings(kind, X.shape[0])
        products = sum(below * above for below, above in pairwise(sizes)) * X.shape[0] * 5 * settings.epochs[0] * nets
        device = on_device(self.device, products)
        made = new_stack(settings, sizes, 1, net_seeds(self._seed, nets), device)
        inputs = dense_inputs(X, np.arange(X.shape[0]), self._scaling, device)
        self.history_: list[dict[str, Any]] = []
        line = Line(sum(one.epochs for one in made.stages), bool(self.verbose))
        try:
            # Products in float32: the same data give the same features on every machine, to the rounding of sums.
            for done in pretrain(made, inputs, None):
                error = {"reconstruction_error": done.values[0]}
                self.history_.append({"stage": done.stage.name, "epoch": done.epoch} | error)
                line.show(error)
        except Diverged as error:
            setting = error.setting.removeprefix("pretrain.").replace(".", "_")
            raise ValueError(f"{error.what}; lower {setting} of the {type(self).__name__}") from None
        finally:
            line.close()
        return made

    def transform(self, X: Any) -> np.ndarray:
        """The features: probabilities that the units of the last hidden layer are on, float64 (cases, units)."""
        return self._each(X, self._features)

    def sample(self, n_samples: int = 100, steps: int = 1000) -> np.ndarray:
        """Means of the visible units given drawn hidden states, at the end of chains that begin at random states.

        On average they are the model's mean. They follow from the seed of the fit: each call gives the same.
        """
        check_is_fitted(self)
        check_counts(1, n_samples=n_samples, steps=steps)
        noise = torch.full((1, n_samples, self.n_features_in_), 0.5, dtype=torch.float64)
        start = Draws(self._stack.seeds, 253, 0).on(noise)[0]
        drawn = stack.samples(self._stack, start, n_samples, steps)
        assert drawn is not None
        found = drawn[0].numpy()
        return found * self._scaling.scale + self._scaling.mean

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one checksummed safetensors file, without pickle."""
        tensors, learned = self._learned()
        parameters = self._parameters()
        if isinstance(self.random_state, np.random.RandomState):
            parameters["random_state"] = self._seed
        facts = {
            "format": FORMAT,
            "meannet": __version__,
            "estimator": type(self).__name__,
            "parameters": parameters,
        }
        checkpoint.save(Path(path), tensors, facts | learned, keep_previous=False)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote."""
        tensors, facts = checkpoint.read_named(Path(path))
        if facts.get("format") != FORMAT or facts.get("estimator") != cls.__name__:
            what = f"{facts.get('estimator', 'no estimator')} in format {facts.get('format')}"
            raise ValueError(f"{path} holds {what}, not {cls.__name__} in format {FORMAT}")
        made = cls(**_again(facts["parameters"]))
        made._learn_again(tensors, facts)
        return made

    def _learned(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """What the fit found, as tensors and JSON."""
        check_is_fitted(self)
        tensors = self._stack.state() | {
            "mean": torch.from_numpy(self._scaling.mean),
            "scale": torch.from_numpy(self._scaling.scale),
        }
        return tensors, {
            "asked": self._asked,
            "kind": self._stack.settings.visible,
            "cases": self._stack.settings.batch,
            "seed": self._seed,
            "history": self.history_,
            "names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
        }

    def _learn_again(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Become fitted with what `_learned` gave."""
        self._seed, self.history_, self.n_iter_ = facts["seed"], facts["history"], len(facts["history"])
        self._scaling = Scaling(tensors["mean"].numpy(), tensors["scale"].numpy())
        self.n_features_in_ = len(self._scaling.mean)
        if facts["names"] is not None:
            self.feature_names_in_ = np.array(facts["names"], dtype=object)
        self._asked = facts.get("asked") or self._parameters()  # files once said nothing of it
        as_fitted = type(self)(**_again(self._asked))
        settings = as_fitted._settings(facts["kind"], facts["cases"])
        kept = new_stack(settings, (self.n_features_in_, *as_fitted._hidden()), 1, [self._seed])
        kept.restore(tensors, len(kept.stages), 0)
        self._stack = _first(kept)

    def _parameters(self) -> dict[str, Any]:
        """As JSON has them."""
        return {name: _plain(value) for name, value in self.get_params(deep=False).items()}

    @property
    def _n_features_out(self) -> int:
        return self._stack.sizes[-1]

    def _each(self, X: Any, function: Any) -> np.ndarray:
        """What a function of scaled cases (1, cases, features) gives, a block of cases at a time."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        self._compare_scale(X)
        scaled = (torch.from_numpy(self._scaling.apply(part))[None] for part in chunks(X, max(self._stack.sizes)))
        return np.concatenate([function(part)[0].numpy() for part in scaled])

    def _compare_scale(self, X: Matrix) -> None:
        """Warn of inputs far from [0, 1] where those of the fit were there, so that none are scaled."""
        unscaled = (self._scaling.mean == 0).all() and (self._scaling.scale == 1).all()
        if self._stack.settings.visible == "bernoulli" and unscaled and (X.min() < -1 or X.max() > 2):
            reach = f"inputs reach from {X.min():g} to {X.max():g}"
            warn(f"{reach}, and those of the fit were in [0, 1]: scale them alike")

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
        check(self, {**_PARAMETERS, **self._allowed})


def scaling(X: Matrix, kind: str) -> Scaling:
    """To mean 0 and standard deviation 1 for Gaussian units; into [0, 1] for others, unless they are there already."""
    if kind == "gaussian":
        found = Scaling.of(X, np.arange(X.shape[0]), None)
        if not sparse.issparse(X):
            return found
        return Scaling(flat(X.mean(axis=0)), found.scale)
    if in_unit_interval(X):
        return Scaling.none(X.shape[1])
    least, most = flat(X.min(axis=0)), flat(X.max(axis=0))
    return Scaling(least, np.where(most > least, most - least, 1.0))


def _first(made: Stack) -> Stack:
    """The first net's, on the CPU and in float64: features must not depend on how cases are cut into blocks."""
    seeds = made.seeds[:1].cpu()

    def own(machine: RBM) -> RBM:
        held: dict[str, Any] = {name: tensor[:1].cpu().double() for name, tensor in machine.state().items()}
        return replace(machine, seeds=seeds, **held)

    both = made.dbm
    if both is not None:
        chains, activities = (tensor[:1].cpu().double() for tensor in (both.chains, both.activities))
        both = replace(both, folded=own(both.folded), chains=chains, activities=activities)
    return replace(made, seeds=seeds, layers=[own(layer) for layer in made.layers], dbm=both)


def in_unit_interval(X: Matrix) -> bool:
    return bool(X.min() >= 0 and X.max() <= 1)


def _again(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that JSON has held."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | bool | int | float) else None


_PARAMETERS = PARAMETERS | {
    "n_components": whole(1),
    "hidden": (
        lambda value: layers(value) and np.size(value) > 0,
        "an int or a tuple of ints, each 1 or more",
    ),
    "visible": either("auto", "bernoulli", "gaussian"),
    "lr": number(0, np.inf),
    "epochs": whole(1),
    "joint_lr": number(0, np.inf),
    "joint_epochs": whole(1),
    "sweeps": whole(1),
    "chains": whole(1),
    "steps": whole(1, MOST_STEPS),
    "persistent": either(True, False),
    "decay": number(0, np.inf, closed=True),
}
