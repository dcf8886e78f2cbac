"""A fitted estimator as one checksummed safetensors file: tensors and JSON, nothing that can execute."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from torch import Tensor

from meannet import __version__, checkpoint
from meannet.estimators import pretrained
from meannet.estimators.cases import Scaling
from meannet.estimators.network import shape
from meannet.estimators.targets import Labels
from meannet.nn.dense import Fleet

FORMAT = 1
STACKS = ("BernoulliRBM", "GaussianRBM", "DBN")  # that a classifier may start from
SCALINGS = ("_scaling", "_targets")
PLAIN = ("n_features_in_", "n_iter_", "history_", "_seed", "_asked", "_flat", "_columns")


def save(estimator: Any, path: Path, **more: Any) -> None:
    """Everything that predicting and going on with training need, and `more` facts that others read."""
    fleet: Fleet = estimator._fleet
    tensors = {f"fleet.{name}": tensor for name, tensor in fleet.state().items()} | {"seeds": fleet.seeds}
    tensors |= {f"rates.{k}": rate for k, rate in enumerate(fleet.rates) if rate is not None}
    for name in SCALINGS:
        if hasattr(estimator, name):
            scaling: Scaling = getattr(estimator, name)
            tensors[f"{name}.mean"], tensors[f"{name}.scale"] = map(torch.from_numpy, (scaling.mean, scaling.scale))
            tensors[f"{name}.reach"] = torch.tensor(scaling.reach, dtype=torch.float64)
    facts: dict[str, Any] = {
        **more,
        "format": FORMAT,
        "meannet": __version__,
        "estimator": type(estimator).__name__,
        "parameters": _parameters(estimator),
        "fleet": {
            "units": fleet.units,
            "output": fleet.output,
            "groups": list(fleet.groups),
            "layers": len(fleet.weights),
        },
        "attributes": {name: getattr(estimator, name) for name in PLAIN if hasattr(estimator, name)},
    }
    if hasattr(estimator, "feature_names_in_"):
        facts["feature_names"] = estimator.feature_names_in_.tolist()
    if hasattr(estimator, "_labels"):
        labels: Labels = estimator._labels
        facts["labels"] = {
            "kind": labels.kind,
            "dtype": labels.dtype.str,
            "classes": [
                {"dtype": c.dtype.str, "values": [_plain(label) for label in c.tolist()]} for c in labels.classes
            ],
        }
    frozen = estimator.pretrain.estimator if isinstance(estimator.pretrain, FrozenEstimator) else None
    if frozen is not None and hasattr(frozen, "_stack"):  # it may have been set after the fit, and not be fitted
        learned, facts["frozen"] = frozen._learned()
        # Copies: its scaling is the nets' own, and no memory may be in a file twice.
        tensors |= {f"frozen.{name}": tensor.clone() for name, tensor in learned.items()}
    checkpoint.save(path, tensors, facts, keep_previous=False)


def load(kind: type, path: Path) -> Any:
    """The estimator of this kind that `save` wrote."""
    tensors, facts = checkpoint.read_named(path)
    if facts.get("format") != FORMAT or facts.get("estimator") != kind.__name__:
        what = facts.get("estimator", "no estimator")
        raise ValueError(f"{path} holds {what} in format {facts.get('format')}, not {kind.__name__} in format {FORMAT}")
    parameters = {name: _from_json(value) for name, value in facts["parameters"].items()}
    if "frozen" in facts:
        held = {name.removeprefix("frozen."): tensor for name, tensor in tensors.items() if name.startswith("frozen.")}
        parameters["pretrain"]._learn_again(held, facts["frozen"])
        parameters["pretrain"] = FrozenEstimator(parameters["pretrain"])
    estimator = kind(**parameters)
    for name, value in facts["attributes"].items():
        setattr(estimator, name, value)
    for name in SCALINGS:
        if f"{name}.mean" in tensors:
            mean, scale, reach = (tensors[f"{name}.{part}"] for part in ("mean", "scale", "reach"))
            setattr(estimator, name, Scaling(mean.numpy(), scale.numpy(), float(reach)))
    if "feature_names" in facts:
        estimator.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    if "labels" in facts:
        known = facts["labels"]
        classes = [np.array(c["values"], dtype=np.dtype(c["dtype"])) for c in known["classes"]]
        estimator._labels = Labels(known["kind"], classes, np.dtype(known["dtype"]))
        estimator.classes_ = classes if known["kind"] == "several" else classes[0]
    estimator._fleet = _fleet(tensors, facts["fleet"])
    return estimator._finish()


def described(estimator: Any) -> dict[str, Any]:
    """What is known of the mean network beside its parameters, as JSON: all that predicting labels needs."""
    labels: Labels | None = getattr(estimator, "_labels", None)
    names = getattr(estimator, "feature_names_in_", None)
    numbers = "number" if getattr(estimator, "_flat", False) else "numbers"
    return shape(estimator._fleet, estimator._scaling) | {
        "meannet": __version__,
        "of": f"a {type(estimator).__name__}",
        "answers": labels.kind if labels else numbers,
        "classes": [[_plain(label) for label in c.tolist()] for c in labels.classes] if labels else None,
        "names": None if names is None else names.tolist(),
        "image": None,
        "largest": None,
    }


def _fleet(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Fleet:
    def group(name: str) -> list[Tensor]:
        return [tensors[f"fleet.{name}.{k}"] for k in range(facts["layers"])]

    return Fleet(
        units=facts["units"],
        output=facts["output"],
        groups=tuple(facts["groups"]),
        seeds=tensors["seeds"],
        rates=[tensors.get(f"rates.{k}") for k in range(facts["layers"])],
        weights=group("weights"),
        biases=group("biases"),
        weight_velocities=group("weight_velocities"),
        bias_velocities=group("bias_velocities"),
    )


def _parameters(estimator: Any) -> dict[str, Any]:
    found = {name: _to_json(value) for name, value in estimator.get_params(deep=False).items()}
    if isinstance(estimator.random_state, np.random.RandomState):
        found["random_state"] = estimator._seed  # the one it gave for this fit
    return found


def _to_json(value: Any) -> Any:
    """Tuples and dictionaries, whose keys may be any labels, in a form that JSON has."""
    if isinstance(value, BaseEstimator):  # what the nets were pretrained by, without what it learned
        inner = value.estimator if isinstance(value, FrozenEstimator) else value
        return {"estimator": [type(inner).__name__, _to_json(inner.get_params())]}
    if isinstance(value, tuple):
        return {"tuple": [_to_json(v) for v in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_plain(k), _to_json(v)] for k, v in value.items()]}
    if isinstance(value, list):
        return [_to_json(v) for v in value]
    return None if isinstance(value, np.random.RandomState) else _plain(value)


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(v) for v in value]
    if isinstance(value, dict):
        ((form, held),) = value.items()
        if form == "estimator":
            return getattr(pretrained, STACKS[STACKS.index(held[0])])(**_from_json(held[1]))
        return tuple(map(_from_json, held)) if form == "tuple" else {k: _from_json(v) for k, v in held}
    return value


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | bool | int | float):
        raise ValueError(f"cannot save {value!r}: labels and parameters must be numbers or strings")
    return value
