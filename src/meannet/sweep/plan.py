"""What a sweep searches: settings around a recipe's own, for one of its arms, on held-out cases."""

import argparse
import hashlib
import json
import math
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from meannet import config
from meannet.config import Arm, Experiment, text_of

LARGEST_LIMIT = 60.0
IN_ARM = {  # what an arm calls its own value of a setting
    "dropout.hidden": "hidden_rates",
    "dropout.visible": "visible_rate",
    "optim.lr": "lr",
    "optim.limit": "limit",
}
Settings = dict[str, Any]  # by path, as --set names them


class Draw(NamedTuple):
    """A number that a trial draws, and the setting that it decides."""

    name: str
    decides: str
    low: float
    high: float
    how: str  # whole numbers, even over the range, or even over its logarithm


def table(own: Settings, layers: int) -> tuple[Draw, ...]:
    """What is searched around a recipe's own settings; nets have at least so many hidden layers."""
    lr = own["optim.lr"]
    return (
        Draw("layers", "net.hidden", layers, max(layers, 3), "whole"),
        Draw("units", "net.hidden", -2, 1, "whole"),  # a quarter to twice as many a layer, as powers of two
        Draw("dropout.hidden", "dropout.hidden", 0.2, 0.7, "even"),
        Draw("dropout.visible", "dropout.visible", 0.0, 0.4, "even"),
        Draw("optim.lr", "optim.lr", lr / 10, lr * 10, "log"),
        Draw("optim.limit", "optim.limit", 4.0, 2 * LARGEST_LIMIT, "log"),  # beyond the largest there is none
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a sweep searches, and around what."""

    experiment: Experiment  # with one arm and one architecture, judged on held-out cases
    own: Settings  # the recipe's own values of all that can be searched
    paths: dict[str, str]  # where the arm has these
    draws: tuple[Draw, ...]

    def settings(self, number: int, drawn: Mapping[str, float]) -> Settings:
        """Those of a trial, to three digits; the first trial's are the recipe's own."""
        if number == 0:
            return {self.paths[draw.decides]: self.own[draw.decides] for draw in self.draws}
        found: Settings = {}
        for draw in self.draws:
            if draw.name == "layers":
                sizes, times = self.own["net.hidden"], 2.0 ** drawn["units"]
                each = (sizes[min(layer, len(sizes) - 1)] for layer in range(int(drawn["layers"])))
                found["net.hidden"] = tuple(max(1, round(units * times)) for units in each)
            elif draw.name != "units":
                found[self.paths[draw.decides]] = float(f"{drawn[draw.name]:.3g}")
        limit = self.paths["optim.limit"]
        return found | ({limit: math.inf} if found.get(limit, 0) > LARGEST_LIMIT else {})

    def drawn(self) -> dict[str, float]:
        """What would draw the recipe's own settings, or come nearest to that."""
        values = self.own | {"layers": len(self.own["net.hidden"]), "units": 0}
        return {draw.name: min(max(values[draw.name], draw.low), draw.high) for draw in self.draws}

    def trial(self, settings: Settings) -> Experiment:
        return config.override(self.experiment, as_set(settings))

    def name(self) -> str:
        """Of the study: the same for all who search the same, and for no others."""
        facts = json.dumps([self.experiment.digest(), self.draws])
        return f"{self.experiment.recipe}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def planned(experiment: Experiment, given: Collection[str], arm_name: str | None = None) -> Plan:
    """How to search around an arm of an experiment; paths that were `given` a value are left alone."""
    for part, what in (("conv", "image nets"), ("patches", "image nets"), ("pretrain", "pretraining")):
        if getattr(experiment, part) is not None:
            raise ValueError(f"a sweep is for dense nets without pretraining; {experiment.recipe} has {what}")
    if experiment.data.held_out:
        raise ValueError("data.held_out must be false: a sweep holds cases out itself, to choose by")
    arm, sizes = swept_arm(experiment, arm_name), experiment.net.hidden[0]
    if "net.hidden" in given and len(experiment.net.hidden) > 1:
        raise ValueError(f"net.hidden must be one architecture in a sweep, not {text_of(experiment.net.hidden)}")
    visible, *hidden = experiment.rates(arm, len(sizes))
    if len(set(hidden)) > 1:
        each = text_of(arm.hidden_rates)
        raise ValueError(f"arms.{arm.name}.hidden_rates must be one rate in a sweep, not {each}; --arm names another")
    rates = {"dropout.hidden": hidden[0], "dropout.visible": visible}
    own = {"net.hidden": sizes, **rates, "optim.lr": experiment.lr(arm), "optim.limit": experiment.limit(arm)}
    paths = paths_in(arm)
    for general, path in paths.items():
        if general in given and path != general:
            raise ValueError(f"{arm.name} has a value of its own for {general}; --set {path}=… instead")
    fixed = {general for general, path in paths.items() if path in given}
    fixed |= {f"dropout.{kind}" for kind in ("hidden", "visible") if not getattr(arm, kind)}
    least = max(1, *(len(other.hidden_rates) for other in experiment.arms))  # all arms are to run with what is found
    draws = tuple(draw for draw in table(own, least) if draw.decides not in fixed)
    if not draws:
        raise ValueError("nothing is left to search; drop one of the --set")
    base = replace(
        experiment,
        data=replace(experiment.data, held_out=True),
        net=replace(experiment.net, hidden=(sizes,)),
        arms=(arm,),
        seeds=experiment.seeds if "seeds" in given else experiment.seeds[:2],
        claims=(),
        samples=0,
        sources=(),
        next="",
    )
    return Plan(experiment=base, own=own, paths=paths, draws=draws)


def swept_arm(experiment: Experiment, name: str | None = None) -> Arm:
    """The arm of that name; else the headline claim's, or the last that omits units where a recipe has no claim."""
    arms = {arm.name: arm for arm in experiment.arms}
    if name is not None and name not in arms:
        raise ValueError(f"no arm {name!r} in {experiment.recipe}; {config.nearest(name, arms)}")
    omitting = [arm for arm in arms if arm in experiment.omitting()] or list(arms)
    claimed = experiment.claims[0].arm if experiment.claims else None
    return arms[name or (claimed if claimed in arms else omitting[-1])]


def paths_in(arm: Arm) -> dict[str, str]:
    """Where `--set` finds each setting that is searched: in the arm, where that has a value of its own."""
    own = {path: f"arms.{arm.name}.{name}" for path, name in IN_ARM.items() if getattr(arm, name) not in (None, ())}
    return {path: own.get(path, path) for path in ("net.hidden", *IN_ARM)}


def as_set(settings: Settings) -> list[str]:
    """path=value, as `--set` takes them and with every digit."""
    exact = {path: text_of(value) for path, value in settings.items()}
    exact |= {path: repr(v) for path, v in settings.items() if isinstance(v, float) and float(exact[path]) != v}
    return [f"{path}={text}" for path, text in exact.items()]


def run_command(options: argparse.Namespace, settings: Settings, arm: Arm) -> str:
    """What judges these settings on the test set, with all seeds of the recipe; only the net is also other arms'."""
    found = {f"arms.{arm.name}.{IN_ARM[path]}" if path in IN_ARM else path: v for path, v in settings.items()}
    others = [given for given in options.settings if given.partition("=")[0] not in settings]
    where = [] if options.device == "auto" else ["--device", options.device]
    words = ["meannet", "run", options.recipe, *["--quick"][: options.quick], *where]
    return shlex.join([*words, *(word for one in [*others, *as_set(found)] for word in ("--set", one))])
