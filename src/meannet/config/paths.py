"""Settings by their paths, as `--set` names them: `net.hidden=1200,1200`."""

import dataclasses
import typing
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from meannet.config.experiment import Experiment
from meannet.config.parts import Pretrain
from meannet.config.values import nearest, parse


def override(experiment: Experiment, settings: Iterable[str]) -> Experiment:
    """Apply `path=value` settings in order; names that do not exist are answered with the nearest that do."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes path=value, not {setting!r}; for example --set optim.lr=1")
        experiment = _set(experiment, path.split("."), text, path)
    return experiment


def settings(experiment: Experiment) -> dict[str, Any]:
    """Every setting by its path, in order: `net.hidden`, `arms.dropout.lr`, ..."""
    found: dict[str, Any] = {}
    for group in ("data", "net", "conv", "patches", "dropout", "adapt", "optim"):
        if getattr(experiment, group) is not None:
            found |= _by_path(group, getattr(experiment, group))
    if experiment.pretrain:
        found |= _pretraining(experiment.pretrain)
    left_out = (
        ("name",) if experiment.conv else ("name", "conv", "top_decay", *["weight_decay"] * bool(experiment.patches))
    )
    for arm in experiment.arms:
        found |= {f"arms.{arm.name}.{f.name}": getattr(arm, f.name) for f in fields(arm) if f.name not in left_out}
    rest = ("seeds", "record_every", "samples")
    return found | {name: getattr(experiment, name) for name in rest}


def _by_path(path: str, part: Any) -> dict[str, Any]:
    """The values of a group and of the groups in it; a group that is not there has none."""
    found: dict[str, Any] = {}
    for name in (f.name for f in fields(part)):
        value = getattr(part, name)
        if dataclasses.is_dataclass(value):
            found |= _by_path(f"{path}.{name}", value)
        elif value is not None:
            found[f"{path}.{name}"] = value
    return found


def _pretraining(part: Pretrain) -> dict[str, Any]:
    """Without what a deep belief net has no use for."""
    own = {f"pretrain.{f.name}": getattr(part, f.name) for f in fields(part) if f.name != "joint"}
    joint = {f"pretrain.joint.{f.name}": getattr(part.joint, f.name) for f in fields(part.joint)}
    return own | joint if part.model == "dbm" else {path: v for path, v in own.items() if path != "pretrain.labels"}


def _set(part: Any, path: list[str], text: str, whole: str) -> Any:
    if isinstance(part, tuple):
        names = [arm.name for arm in part]
        ends = [k for k in range(len(path), 0, -1) if ".".join(path[:k]) in names]  # a name may have dots in it
        if not ends:
            name = ".".join(path[:-1]) or path[0]
            raise ValueError(f"no arm {name!r} in {whole}; {nearest(name, names)}")
        name, rest = ".".join(path[: ends[0]]), path[ends[0] :]
        if not rest:
            raise ValueError(f"{whole} is a whole arm; set one of its values, such as {whole}.lr")
        return tuple(_set(arm, rest, text, whole) if arm.name == name else arm for arm in part)
    hints = {name: kind for name, kind in typing.get_type_hints(type(part)).items() if name not in _NOT_SETTINGS}
    name = path[0]
    if name not in hints:
        where = whole[: len(whole) - len(".".join(path))]
        raise ValueError(f"no setting {whole!r}; {nearest(name, hints)}" + (f" (in {where[:-1]})" if where else ""))
    value = getattr(part, name)
    if value is None and name in _ABSENT:
        raise ValueError(f"no setting {whole!r}: {_ABSENT[name]}")
    if dataclasses.is_dataclass(value) or (name == "arms"):
        if not path[1:]:
            raise ValueError(
                f"{whole!r} is a group; set one of its values, such as {whole}.{next(iter(_names(value)))}"
            )
        return replace(part, **{name: _set(value, path[1:], text, whole)})
    if value is None and name in ("selection", "speech"):
        kind = "text" if name == "selection" else "speech"
        raise ValueError(f"{whole} is for data sets of {kind}; {part.name} is none")
    if path[1:]:
        raise ValueError(f"{'.'.join(path[:1])} in {whole!r} is a value and has no {path[1]!r}")
    return replace(part, **{name: parse(hints[name], text, whole)})


_ABSENT = {  # groups that an experiment may be without
    "pretrain": "this experiment does not pretrain; mnist.a2_dbn and others do",
    "adapt": "no arm of this experiment adapts its rates; those of claims.adapted do",
    "conv": "this experiment has no convolutional layers; cifar10.g_conv has",
    "patches": "this experiment learns from no patches; imagenet.h_dropout does",
}
_NOT_SETTINGS = (
    "recipe",
    "paper",
    "about",
    "claims",
    "sources",
    "time",
    "next",
    "show_features",
    "quick_epochs",
    "name",
)


def _names(value: Any) -> list[str]:
    return [arm.name for arm in value] if isinstance(value, tuple) else [f.name for f in fields(value)]
