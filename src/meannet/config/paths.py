"""Settings by their paths, as `--set` names them: `net.hidden=1200,1200`."""

import dataclasses
import typing
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from meannet.config.experiment import Experiment
from meannet.config.parts import Arm, Pretrain
from meannet.config.values import nearest, parse

Change = tuple[list[str], str, str]  # path from here on, value as text, whole path


class _Unknown(ValueError):
    def __init__(self, path: str, hint: str):
        super().__init__(f"no setting {path!r}; {hint}")
        self.path = path


def override(experiment: Experiment, settings: Iterable[str]) -> Experiment:
    """Apply `path=value` settings together: of two good ones for a path the last counts, and all must fit at the end.

    Names that do not exist are answered with the nearest that do.
    """
    changes: list[Change] = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes path=value, not {setting!r}; for example --set optim.lr=1")
        changes.append((path.split("."), text, path))
    try:
        return _changed(experiment, changes) if changes else experiment
    except _Unknown as error:
        if elsewhere := _of_that_name(experiment, error.path):
            raise _Unknown(error.path, f"did you mean {' or '.join(elsewhere)}?") from None
        raise


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


def _of_that_name(experiment: Experiment, path: str) -> list[str]:
    """Settings with the last name of a path that does not exist, in whatever group."""
    name = path.rpartition(".")[2]
    return [known for known in settings(experiment) if known.endswith(f".{name}") and not known.startswith("arms.")]


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


def _changed(part: Any, changes: list[Change]) -> Any:
    """A group with other values, in it and in the groups in it."""
    values: dict[str, Any] = {}
    deeper: dict[str, list[Change]] = {}
    hints = {name: kind for name, kind in typing.get_type_hints(type(part)).items() if name not in _NOT_SETTINGS}
    for path, text, whole in changes:
        name = path[0]
        if name not in hints:
            where = whole[: len(whole) - len(".".join(path))]
            if name in _NOT_SETTINGS and hasattr(part, name):
                raise ValueError(f"{whole} is the recipe's own and cannot be set; write an experiment of your own")
            raise _Unknown(whole, nearest(name, hints) + (f" (in {where[:-1]})" if where else ""))
        value = getattr(part, name)
        if value is None and name in _ABSENT:
            raise ValueError(f"no setting {whole!r}: {_ABSENT[name]}")
        if dataclasses.is_dataclass(value) or name == "arms":
            if not path[1:]:
                some = next(iter(_names(value)))
                raise ValueError(f"{whole!r} is a group; set one of its values, such as {whole}.{some}")
            deeper.setdefault(name, []).append((path[1:], text, whole))
            continue
        if value is None and name in ("selection", "speech"):
            kind = "text" if name == "selection" else "speech"
            raise ValueError(f"{whole} is for data sets of {kind}; {part.name} is none")
        if path[1:]:
            raise ValueError(f"{name} in {whole!r} is a value and has no {path[1]!r}")
        values[name] = parse(hints[name], text, whole)
    for name, inner in deeper.items():
        group = getattr(part, name)
        values[name] = _changed_arms(group, inner) if name == "arms" else _changed(group, inner)
    return replace(part, **values)


def _changed_arms(arms: tuple[Arm, ...], changes: list[Change]) -> tuple[Arm, ...]:
    names = [arm.name for arm in arms]
    by_arm: dict[str, list[Change]] = {}
    for path, text, whole in changes:
        ends = [k for k in range(len(path), 0, -1) if ".".join(path[:k]) in names]  # a name may have dots in it
        if not ends:
            name = ".".join(path[:-1]) or path[0]
            raise ValueError(f"no arm {name!r} in {whole}; {nearest(name, names)}")
        name, rest = ".".join(path[: ends[0]]), path[ends[0] :]
        if not rest:
            raise ValueError(f"{whole} is a whole arm; set one of its values, such as {whole}.lr")
        by_arm.setdefault(name, []).append((rest, text, whole))
    return tuple(_changed(arm, by_arm[arm.name]) if arm.name in by_arm else arm for arm in arms)


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
