"""DropoutClassifier and DropoutRegressor: nets that do not overfit a small data set, the scikit-learn way."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from meannet.core import mean
from meannet.estimators.cases import Scaling
from meannet.estimators.fitting import DropoutNet
from meannet.estimators.parameters import BIAS_SD, USUAL_HIDDEN, all_or_nothing
from meannet.estimators.targets import Labels, checked_labels

AVERAGES = ("arithmetic", "geometric")
REGRESSION = 0.05  # the learning rate of regression for nets of up to 256 units
STEADY = 10.0  # at most so many times the inverse squared length of what the last hidden layer passes on at the start


class DropoutClassifier(ClassifierMixin, DropoutNet):
    """Classification by a dense net trained with dropout; its mean network predicts.

    Parameters
    ----------
    hidden : int or tuple of ints
        Sizes of the hidden layers; () for none.
    units : "rectified" or "logistic"
    dropout_hidden, dropout_visible : float
        Probabilities of omitting a hidden unit and an input.
    epochs : int or "auto"
        "auto" chooses from the number of cases, more epochs for fewer.
    batch : int
        Cases in a mini-batch.
    lr : float or "auto"
        Learning rate at the start; "auto" is 0.5, 2 for logistic units, and 1 for those that were pretrained.
    lr_end : float
        The share of it that is left at the end; it falls by the same factor each epoch.
    momentum : pair of floats
        At the start, and from a quarter of the epochs on.
    limit : float
        Bound on the squared length of a hidden unit's incoming weight vector; inf for none.
    standardize : bool
        Bring inputs to mean 0 and standard deviation 1, and draw outliers in to 3 of these; sparse inputs are not
        shifted.
    n_nets : int
        Nets that are trained side by side from seeds of their own, and averaged; each has a `pretrain` of its own, but
        for a frozen one.
    pretrain : DBN, BernoulliRBM, GaussianRBM or None
        What to start from: it is fitted to the inputs first, and its layers, with logistic units, take the place of
        `hidden` and `units`, its scaling that of `standardize`, and there is no bound (A.2). One that was fitted to
        more inputs than there are labels for goes in as `FrozenEstimator(dbn)` and is used as it is; for partial_fit,
        too, which otherwise pretrains on the cases of its first call alone.
    early_stopping : bool
        Hold out `validation_fraction` of the cases, stop after `n_iter_no_change` epochs without a lower loss of the
        mean network on them, and go back to the best. With dropout this is not needed. Not for partial_fit.
    validation_fraction, n_iter_no_change
        See `early_stopping`.
    warm_start : bool
        Let `fit` go on from the nets there are, with the scale of inputs found by the first fit. Sizes, rates and the
        number of nets must then be what they were.
    random_state : int, RandomState or None
        The seed of initial weights, masks and order of cases. A fit depends on it and on the cases, not on their order.
    device : "auto", "cpu" or "cuda"
    verbose : int
        1 shows a line of progress.
    class_weight : dict, list of dicts, "balanced" or None
        Factors of the losses of classes, as in scikit-learn.

    Attributes
    ----------
    classes_ : array, or list of arrays where y has several targets; label numbers for multi-label targets.
    network_ : torch.nn.Module
        The mean network from raw inputs to probabilities or predictions, in float64. Inputs in float32 are predicted in
        float32, in half the time.
    history_ : list of dicts
        One an epoch: train_loss and train_error of the thinned networks, lr, momentum.
    n_iter_ : int
        Epochs that were trained.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

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
        class_weight=None,
        warm_start=False,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        super().__init__(
            hidden=hidden,
            units=units,
            dropout_hidden=dropout_hidden,
            dropout_visible=dropout_visible,
            epochs=epochs,
            batch=batch,
            lr=lr,
            lr_end=lr_end,
            momentum=momentum,
            limit=limit,
            standardize=standardize,
            n_nets=n_nets,
            pretrain=pretrain,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on inputs (cases, features), dense or sparse, and labels: (cases,), several targets, or 0s and 1s."""
        with all_or_nothing(self):
            goes_on = self._goes_on(partial=False)
            X, y = self._checked(X, y, reset=not goes_on, numeric=False)
            return self._fit_labels(X, checked_labels(y), sample_weight, None, goes_on=goes_on, partial=False)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One epoch on these cases; the first call names all classes, fixes the scale of the inputs and pretrains.

        For several targets `classes` is a list of arrays; multi-label targets need none.
        """
        with all_or_nothing(self):
            goes_on = self._goes_on(partial=True)
            X, y = self._checked(X, y, reset=not goes_on, numeric=False)
            y = checked_labels(y)
            if not goes_on and classes is None and y.ndim == 1:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            named = goes_on and classes is not None and y.ndim == 1
            if named and not np.array_equal(self.classes_, np.unique(classes)):
                raise ValueError(
                    f"classes={classes!r} is not what the first call to partial_fit got: {self.classes_!r}"
                )
            return self._fit_labels(X, y, sample_weight, classes, goes_on=goes_on, partial=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable labels according to the mean network."""
        probabilities = self._mean_outputs(X)
        return self._labels.decode(probabilities)

    def predict_proba(self, X: Any, *, average: str | None = None, n: int = 100) -> Any:
        """Probabilities (cases, classes) of the mean network, or the mean of `n` thinned networks.

        `average` is None, "arithmetic" or "geometric" (renormalised). A list of arrays where y has several targets;
        the probability of each label, (cases, labels), where they are multi-label.
        """
        if average is None:
            return self._given(self._mean_outputs(X))
        if average not in AVERAGES:
            raise ValueError(f"average must be None or one of {', '.join(AVERAGES)}; got {average!r}")
        parts = [self._averaged(part, average) for part in self._sampled(X, n)]
        return self._given(np.concatenate(parts))

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of what predict_proba gives."""
        found = self.predict_proba(X)
        return [np.log(part) for part in found] if isinstance(found, list) else np.log(found)

    def sample_proba(self, X: Any, n: int = 100) -> Any:
        """Probabilities of `n` thinned networks, (n, cases, classes); network i is the same one for every case."""
        return self._given(self._sampled_outputs(X, n))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of cases whose labels are all right."""
        check_is_fitted(self)
        if self._labels.kind != "several":
            return super().score(X, y, sample_weight)
        return float(np.average((self.predict(X) == np.asarray(y)).all(1), weights=sample_weight))

    def _fit_labels(
        self, X: Any, y: np.ndarray, sample_weight: Any, classes: Any, *, goes_on: bool, partial: bool
    ) -> Self:
        X, y, weights = self._weighted(X, y, sample_weight)
        if not goes_on:
            self._labels = Labels.of(y, classes)
            self.classes_ = self._labels.classes if self._labels.kind == "several" else self._labels.classes[0]
        targets = self._labels.encode(y)
        weights = self._labels.case_weights(self.class_weight, y, weights)
        return self._train(X, targets, weights, goes_on=goes_on, partial=partial)

    def _outputs(self) -> tuple[int, str, tuple[int, ...]]:
        return self._labels.outputs, self._labels.output, self._labels.groups

    def _usual_lr(self, inputs: int) -> float:
        if self.pretrain is not None:
            return 1.0  # A.2
        return 0.5 if self.units == "rectified" else 2.0

    def _given(self, probabilities: np.ndarray) -> Any:
        return self._labels.split(probabilities) if self._labels.kind == "several" else probabilities

    def _averaged(self, outputs: torch.Tensor, average: str) -> np.ndarray:
        """Of outputs (n, cases, outputs) before the softmax, probabilities (cases, outputs)."""
        combine = mean.arithmetic_mean if average == "arithmetic" else mean.geometric_mean
        if self._labels.kind == "multilabel":  # each label is a choice of two
            pairs = torch.stack((-outputs, outputs), -1)
            return combine(torch.nn.functional.logsigmoid(pairs)).exp()[..., 1].numpy()
        groups = [len(classes) for classes in self._labels.classes]
        return torch.cat([combine(part.log_softmax(-1)).exp() for part in outputs.split(groups, -1)], -1).numpy()


class DropoutRegressor(RegressorMixin, DropoutNet):
    """Regression by a dense net trained with dropout; its mean network predicts. Targets are standardised inside.

    The parameters are those of DropoutClassifier but for `class_weight`, with one difference: for `lr` "auto" is 0.05,
    and less for nets of more than 256 units. The attributes are the same but for `classes_`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on inputs (cases, features), dense or sparse, and targets (cases,) or (cases, targets)."""
        with all_or_nothing(self):
            return self._fit_numbers(X, y, sample_weight, partial=False)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """One epoch on these cases; the first call fixes the scales of inputs and targets, and pretrains."""
        with all_or_nothing(self):
            return self._fit_numbers(X, y, sample_weight, partial=True)

    def predict(self, X: Any, *, return_std: bool = False, n: int = 100) -> Any:
        """What the mean network predicts; with `return_std` also the standard deviation over `n` thinned networks.

        That is how far the networks differ, not how noisy the targets are.
        """
        found = self._shaped(self._mean_outputs(X))
        return (found, self.sample_predict(X, n).std(0)) if return_std else found

    def sample_predict(self, X: Any, n: int = 100) -> np.ndarray:
        """Predictions of `n` thinned networks, (n, cases) or (n, cases, targets)."""
        return self._shaped(self._sampled_outputs(X, n))

    def _fit_numbers(self, X: Any, y: Any, sample_weight: Any, *, partial: bool) -> Self:
        goes_on = self._goes_on(partial)
        X, y = self._checked(X, y, reset=not goes_on, numeric=True)
        y = np.asarray(y, np.float64)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        X, y, weights = self._weighted(X, y, sample_weight)
        targets = y.reshape(len(y), -1)
        if not goes_on:
            self._flat = y.ndim == 1
            self._columns = targets.shape[1]
        elif targets.shape[1] != self._columns:
            raise ValueError(f"y has {targets.shape[1]} targets, but the estimator was fitted on {self._columns}")
        return self._train(X, targets, weights, goes_on=goes_on, partial=partial)

    def _look_at_targets(self, targets: np.ndarray, rows: np.ndarray, weights: np.ndarray | None) -> None:
        self._targets = Scaling.of(targets, rows, weights)

    def _target_scaling(self) -> Scaling:
        return self._targets

    def _outputs(self) -> tuple[int, str, tuple[int, ...]]:
        return self._columns, "linear", ()

    def _usual_lr(self, inputs: int) -> float:
        """Small enough that output weights do not swing, however much the layer below them passes on."""
        below = (inputs, *self._hidden())[-1]
        rate = self.dropout_hidden if self._hidden() else self.dropout_visible
        square = 1.0 if not self._hidden() else (2 + BIAS_SD**2) / 2 if self._units() == "rectified" else 0.3
        return min(REGRESSION, STEADY / (1 + below * (1 - rate) * square))

    def _shaped(self, found: np.ndarray) -> np.ndarray:
        return found[..., 0] if self._flat else found
