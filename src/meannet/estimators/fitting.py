"""What both estimators share: parameters, a fit on the package's own loop, the mean network and thinned networks."""

import copy
import math
import numbers
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,  # pyrefly: ignore[missing-module-attribute], its stubs are old
    check_is_fitted,
    validate_data,  # pyrefly: ignore[missing-module-attribute]
)

from meannet import export, fast, plain
from meannet.core import metrics
from meannet.estimators import cases, saved
from meannet.estimators.cases import Matrix, Scaling
from meannet.estimators.network import Thinned, mean_module, rounded
from meannet.estimators.parameters import Parameters, seed_of
from meannet.estimators.progress import Line
from meannet.estimators.warning import warn
from meannet.nn import dense
from meannet.nn.dense import Fleet
from meannet.pretrain.stack import Stack
from meannet.pretrain.unrolled import install_
from meannet.train import Epoch, Fault, Unjudged, Why, train

REACH = 3.0  # standard deviations, which no standardised input exceeds
CONSTANT = 1e-6  # standard deviations; rounding alone moves a constant target by less
RISEN = 2.0  # how much a loss may be above its first value and be noise
NOTHING = 1e-9  # a loss that leaves nothing to learn, as of targets that are all alike
LEARNED = 1e-3  # a net with a loss below this that no longer moves has learned its cases, not collapsed


class TrainingFailed(ValueError):
    """Every net diverged or collapsed."""


class DropoutNet(Parameters):
    """Dense nets trained with dropout, as a scikit-learn estimator; its two kinds are in supervised.py."""

    _asked: dict[str, Any]
    _unjudged: Unjudged | None = None

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one checksummed safetensors file, without pickle."""
        check_is_fitted(self)
        saved.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote."""
        return saved.load(cls, Path(path))

    def export(self, path: str | Path, *, to: str, force: bool = False) -> None:
        """Write the mean network with its scaling and labels as "onnx", "pt2" or "torch", to be read without meannet.

        The file is named .onnx, .pt2 or .safetensors; beside the last comes a .py that reads it. `force` replaces.
        """
        check_is_fitted(self)
        export.write(self.network_, saved.described(self), Path(path), to, force=force)

    def __getstate__(self):
        # The modules follow from the fleet, and would be most of the size.
        return {name: value for name, value in super().__getstate__().items() if name not in ("network_", "_single")}

    def __setstate__(self, state):
        super().__setstate__(state)
        if hasattr(self, "_fleet"):
            self._finish()

    def _target_scaling(self) -> Scaling | None:
        """Of targets that are numbers; None for labels."""
        return None

    def _outputs(self) -> tuple[int, str, tuple[int, ...]]:
        """How many, their kind, and the sizes of several softmaxes."""
        raise NotImplementedError

    def _look_at_targets(self, targets: np.ndarray, rows: np.ndarray, weights: np.ndarray | None) -> None:
        """What a new fit learns from targets before it trains."""

    def _tensor(self, targets: np.ndarray, device: torch.device) -> torch.Tensor:
        """Targets as the loop takes them."""
        scaling = self._target_scaling()
        if scaling is not None:
            targets = scaling.apply(targets).astype(np.float32)
        return torch.from_numpy(targets).to(device)

    def _checked(self, x: Any, y: Any, *, reset: bool, numeric: bool) -> tuple[Matrix, Any]:
        return validate_data(
            self,
            x,
            y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            multi_output=True,
            y_numeric=numeric,
            reset=reset,
        )

    def _weighted(self, x: Matrix, y: np.ndarray, sample_weight: Any) -> tuple[Matrix, np.ndarray, np.ndarray | None]:
        """The cases and their weights; those that weigh nothing are left out."""
        if sample_weight is None:
            return x, y, None
        weights = _check_sample_weight(sample_weight, x, dtype=np.float64)
        if (weights < 0).any():
            raise ValueError("Negative values in data passed to `sample_weight`.")
        if not weights.any():
            raise ValueError("Sample weights must contain at least one non-zero number.")
        there = weights > 0
        return (x, y, weights) if there.all() else (x[there], y[there], weights[there])

    def _goes_on(self, partial: bool) -> bool:
        """Whether this call trains the nets there are; then what decides their shape must be what it was."""
        if partial and self.early_stopping:
            raise ValueError("partial_fit does not support early_stopping=True: what it gets is all trained on")
        self._check_parameters()
        goes_on = hasattr(self, "_fleet") and (partial or bool(self.warm_start))
        for name, now in self._shape().items() if goes_on else ():
            if now != self._asked[name]:
                raise ValueError(
                    f"{name} is {now}, but the nets that training would go on with have {self._asked[name]}; "
                    "set it back, or use fit with warm_start=False"
                )
        return goes_on

    def _train(
        self, x: Matrix, targets: np.ndarray, weights: np.ndarray | None, *, goes_on: bool, partial: bool
    ) -> Self:
        """Train new nets, or go on with those there are; `partial` is one more epoch at the starting learning rate."""
        if not goes_on:
            self._seed, self._asked = seed_of(self.random_state), self._shape()
        keep, held = self._validation_split(x, targets)
        rows, weights = _arranged(x, targets, weights, keep, normalise=not partial)
        optim = self._optim(len(rows), x.shape[1], partial)
        device = self._device(self.n_nets * optim.epochs * len(rows) * self._weight_count(x.shape[1]))
        if goes_on:
            fleet = self._fleet.pick(range(len(self._fleet.seeds)), device)
        else:
            fleet = self._begin(x, targets, rows, weights, device)
        inputs = (cases.SparseRows if sparse.issparse(x) else cases.dense_inputs)(x, rows, self._scaling, device)
        engine = fast.engine(
            fleet,
            inputs,
            self._tensor(targets[rows], device),
            optim.batch,
            [optim.limit] * len(fleet.seeds),
            weights=None if weights is None else torch.tensor(weights, dtype=torch.float32, device=device),
            precision="float32",
        )
        start = self.n_iter_
        epochs = train(
            fleet,
            engine,
            len(rows),
            replace(optim, epochs=start + optim.epochs),
            [optim.lr] * len(fleet.seeds),
            start=start,
            unjudged=self._unjudged if goes_on else None,
            # A single update rule for every call: momentum goes on rising, and nothing falls.
            origin=0 if partial else start,
            still=not (inputs.any() if isinstance(inputs, torch.Tensor) else x.count_nonzero()),
        )
        nothing_to_learn = fleet.output == "softmax" and not fleet.groups and fleet.sizes[-1] == 1
        faults = [] if nothing_to_learn else self._follow(epochs, fleet, optim.epochs, x, targets, held)
        good = [net for net in range(len(fleet.seeds)) if net not in {fault.net for fault in faults}]
        self._answer_for(faults, len(fleet.seeds), optim.lr)
        self._fleet = fleet.pick(good, "cpu")
        if faults:  # it is of the nets there were
            self._unjudged = None
        return self._finish()

    def _begin(
        self, x: Matrix, targets: np.ndarray, rows: np.ndarray, weights: np.ndarray | None, device: torch.device
    ) -> Fleet:
        """New nets; the scales of inputs and targets, and an empty record."""
        self.pretrain_, stack = self._pretrained(x, rows)
        self._scaling = Scaling.none(x.shape[1])
        if self.pretrain_ is not None:
            self._scaling = self.pretrain_._scaling
        elif self.standardize:
            self._scaling = replace(Scaling.of(x, rows, weights), reach=REACH)
        self._look_at_targets(targets, rows, weights)
        self.n_iter_, self.history_ = 0, []
        fleet = self._new_fleet(x.shape[1], *self._outputs(), device)
        if fleet.output == "linear":  # a target that never varies needs no net to be predicted
            fleet.weights[-1][:, self._tensor(targets[rows], device).abs().amax(0) < CONSTANT] = 0
        if stack is not None:
            install_(fleet, stack, scale_up=True)
            fleet.weights[-1].mul_(0.01)  # so that the layers below keep still until it has learned something
        return fleet

    def _pretrained(self, x: Matrix, rows: np.ndarray) -> tuple[Any, Stack | None]:
        """What to start from, fitted to the cases unless it is frozen, and a stack for each net, or one for all."""
        if self.pretrain is None:
            return None, None
        if isinstance(self.pretrain, FrozenEstimator):
            frozen = self.pretrain.estimator
            check_is_fitted(frozen)
            if frozen.n_features_in_ != x.shape[1]:
                raise ValueError(f"X has {x.shape[1]} features, but pretrain was fitted on {frozen.n_features_in_}")
            ours, theirs = (getattr(one, "feature_names_in_", None) for one in (self, frozen))
            if ours is not None and theirs is not None and not np.array_equal(ours, theirs):
                raise ValueError("The feature names should match those that pretrain was fitted on, in the same order.")
            frozen._compare_scale(x)
            return frozen, frozen._stack
        fitted = clone(self.pretrain)
        if fitted.random_state is None and self.random_state is not None:
            fitted.set_params(random_state=self._seed)
        return fitted, fitted._fit(x[rows], self.n_nets)

    def _follow(
        self, epochs: Iterator[Epoch], fleet: Fleet, total: int, x: Matrix, targets: np.ndarray, held: np.ndarray | None
    ) -> list[Fault]:
        """Run the loop to its end, an early stop or an interruption, keeping the record; returns what went wrong."""
        faults: list[Fault] = []
        best, best_loss, since = None, math.inf, 0
        known = len(self.history_)
        line = Line(total, bool(self.verbose))
        try:
            for epoch in epochs:
                faults += [
                    fault
                    for fault in epoch.faults
                    if fault.why != Why.STILL or not epoch.train_loss[fault.net] < LEARNED
                ]
                gone = {fault.net for fault in faults}
                record = _record(epoch, [n for n in range(len(fleet.seeds)) if n not in gone], fleet.output)
                self.n_iter_, self._unjudged = epoch.epoch, epoch.unjudged
                self.history_.append(record)
                if held is not None:
                    loss = self._validation_loss(fleet, x, targets, held)
                    record["validation_loss"] = loss
                    since = 0 if loss < best_loss else since + 1
                    if loss < best_loss:
                        best, best_loss = [tensor.clone() for tensor in fleet.state().values()], loss
                line.show(record)
                if held is not None and since >= self.n_iter_no_change:
                    break
        except KeyboardInterrupt:
            warn(f"fit was interrupted; the nets are as they were after epoch {self.n_iter_}")
        line.close()
        if best is not None:
            torch._foreach_copy_(list(fleet.state().values()), best)
        losses = [record["train_loss"] for record in self.history_[known:]]
        if best is None and losses and losses[-1] > RISEN * max(losses[0], NOTHING):
            warn(
                f"the training loss rose, from {losses[0]:.3g} to {losses[-1]:.3g}; use more epochs, or lower lr",
                ConvergenceWarning,
            )
        return faults

    @torch.no_grad()
    def _validation_loss(self, fleet: Fleet, x: Matrix, targets: np.ndarray, held: np.ndarray) -> float:
        """Mean over cases and nets of the mean networks."""
        total = torch.zeros(len(fleet.seeds), dtype=torch.float64, device=fleet.device)
        for rows in cases.chunks(held[:, None], max(fleet.sizes)):
            rows = rows[:, 0]
            outputs = dense.mean_network(fleet, cases.dense_inputs(x, rows, self._scaling, fleet.device)[None])
            right = self._tensor(targets[rows], fleet.device)
            total += metrics.losses(outputs, right.expand(len(outputs), *right.shape), fleet.output, fleet.groups)
        good = total[total.isfinite()]
        return float(good.mean()) / len(held) if len(good) else math.inf

    def _answer_for(self, faults: list[Fault], nets: int, lr: float) -> None:
        if not faults:
            return
        first = faults[0]
        where = "" if first.layer is None else f" (layer {first.layer})"
        remedy = (
            f"lower lr (it is {lr:g})"
            if first.why == Why.DIVERGED
            else f"lower lr (it is {lr:g}) or dropout_hidden (it is {self.dropout_hidden:g}), or use more units"
        )
        if not self.standardize:
            remedy += ", or set standardize=True"
        if len(faults) == nets:
            raise TrainingFailed(f"training failed: in epoch {first.epoch} the net {first.why}{where}; {remedy}")
        warn(
            f"{len(faults)} of {nets} nets failed and are left out: in epoch {first.epoch} net {first.net} "
            f"{first.why}{where}; {remedy}",
            ConvergenceWarning,
        )

    def _finish(self) -> Self:
        self.network_ = mean_module(self._fleet, self._scaling, self._target_scaling())
        self._single = rounded(self.network_)
        return self

    def _validation_split(self, x: Matrix, targets: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Rows to train on and rows held out; None and None where nothing is."""
        if not self.early_stopping:
            return None, None
        count = len(targets)
        held = math.ceil(self.validation_fraction * count)
        if held >= count:
            raise ValueError(
                f"early_stopping with validation_fraction={self.validation_fraction} leaves no case of {count} to "
                "train on; set early_stopping=False"
            )
        order = cases.arrange(x, targets, None, normalise=False)[0]
        mixed = order[check_random_state(self._seed % 2**32).permutation(count)]
        return mixed[held:], mixed[:held]

    def _checked_inputs(self, x: Any) -> Matrix:
        check_is_fitted(self)
        return validate_data(self, x, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)

    @torch.no_grad()
    def _mean_outputs(self, x: Any) -> np.ndarray:
        """Probabilities or predictions of the mean network (cases, outputs), in the precision of the inputs."""
        x = self._checked_inputs(x)
        device = self._device(len(self._fleet.seeds) * x.shape[0] * self._weight_count(x.shape[1]))
        network = self._single if x.dtype == np.float32 else self.network_
        if device.type != "cpu":
            network = copy.deepcopy(network).to(device)
        parts = []
        for part in cases.chunks(x, max(self._fleet.sizes)):
            # A copy: what is read-only cannot be shared.
            inputs = torch.tensor(cases.dense_rows(part, x.dtype), device=device)
            parts.append(network(inputs).cpu().numpy())
        return np.concatenate(parts)

    def _sampled(self, x: Any, n: int) -> Iterator[torch.Tensor]:
        """Outputs of `n` thinned networks before the softmax, (n, cases, outputs), a block of cases at a time."""
        if not isinstance(n, numbers.Integral) or n < 1:
            raise ValueError(f"n must be a whole number of thinned networks, 1 or more; got {n!r}")
        x = self._checked_inputs(x)
        device = self._device(n * x.shape[0] * self._weight_count(x.shape[1]))
        thinned = Thinned(self._fleet, self._scaling, device)
        most = max(*self._fleet.sizes, n * self._fleet.sizes[-1])
        return (thinned.outputs(part, range(n)).cpu() for part in cases.chunks(x, most))

    def _sampled_outputs(self, x: Any, n: int) -> np.ndarray:
        """Probabilities or predictions of thinned networks, (n, cases, outputs)."""
        check_is_fitted(self)
        finish = plain.networks(self.network_)[0][-1]
        return np.concatenate([finish(part).numpy() for part in self._sampled(x, n)], 1)


def _arranged(
    x: Matrix, targets: np.ndarray, weights: np.ndarray | None, keep: np.ndarray | None, *, normalise: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    if keep is None:
        return cases.arrange(x, targets, weights, normalise=normalise)
    part = None if weights is None else weights[keep]
    rows, part = cases.arrange(x[keep], targets[keep], part, normalise=normalise)
    return keep[rows], part


def _record(epoch: Epoch, nets: list[int], output: str) -> dict[str, float]:
    """Means over nets of what the thinned networks did in an epoch; their error is a fraction of cases."""
    record = {"epoch": epoch.epoch, "train_loss": _mean(epoch.train_loss, nets)}
    if output != "linear":
        record["train_error"] = _mean(epoch.train_error, nets)
    return record | {"lr": epoch.lr[0], "momentum": epoch.momentum}


def _mean(values: list[float], nets: list[int]) -> float:
    return sum(values[net] for net in nets) / len(nets) if nets else math.nan
