"""The report's tables as plain data: claims beside results, comparisons, settings beside the paper, environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meannet import config
from meannet.report.runs import Run

ERRORS, FRAME_ERRORS = "test errors", "% frame errors"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm of one net: the paper's figure, if it gives one, and ours over the `n` seeds that were not stopped."""

    net: str
    arm: str
    paper: float | None
    unit: str
    mean: float | None
    sd: float | None
    n: int
    n_test: int
    stopped: int
    seconds: float  # of the whole run, whose arms and seeds train side by side


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The paired difference of two arms over seeds; negative means that `arm` makes fewer errors than `over`."""

    net: str
    arm: str
    over: str
    difference: float
    standard_error: float
    n: int
    beyond_spread: bool

    @property
    def judgement(self) -> str:
        if not self.beyond_spread:
            return "within the spread"
        return f"{'better' if self.difference < 0 else 'worse'} beyond the spread"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One arm of an unfinished run: its last recorded epoch and the error rate there, in per cent."""

    net: str
    arm: str
    epoch: int
    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting, the paper's value as `--set` takes it, and the section it is from or the reason it was chosen."""

    path: str
    value: str
    paper: str = ""
    section: str = ""

    @property
    def differs(self) -> bool:
        return bool(self.paper) and self.value != self.paper

    @property
    def left_open(self) -> bool:
        return bool(self.section) and not self.paper


def claim_rows(result: Mapping[str, Any]) -> list[Row]:
    """A row for each net and arm of a `result.json`."""
    claims = {claim["arm"]: claim for claim in claims_of(result)}
    return [
        Row(
            net=arm["net"],
            arm=arm["name"],
            paper=claims[arm["name"]]["value"] if arm["name"] in claims else None,
            unit=unit_of(result),
            mean=arm["mean"],
            sd=arm["sd"],
            n=len(arm["errors"]),
            n_test=arm["n_test"],
            stopped=len(arm.get("stopped", ())),
            seconds=result.get("seconds", 0.0),
        )
        for arm in result["arms"]
    ]


def claims_of(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The paper's figures that a result is held against, the headline first; none where no test set was touched."""
    if result["data"].get("held_out"):
        return []
    claim = result.get("claim")
    return list(result.get("claims") or ([claim] if claim else []))


def unit_of(result: Mapping[str, Any]) -> str:
    claims = claims_of(result)
    otherwise = FRAME_ERRORS if result["data"].get("percent") else ERRORS
    return claims[0].get("unit", ERRORS) if claims else otherwise


def comparisons(result: Mapping[str, Any]) -> list[Comparison]:
    names = Comparison.__dataclass_fields__
    complete = [entry for entry in result["comparisons"] if None not in (entry["difference"], entry["standard_error"])]
    return [Comparison(**{name: entry[name] for name in names}) for entry in complete]


def standing(run: Run) -> list[Standing]:
    """How far an unfinished run has come."""
    found = []
    for net in run.nets:
        for arm in run.arms:
            curves = list(run.curves(net, arm, "test_error").values())
            last = np.array([100 * values[-1] for _, values in curves])
            if curves:
                sd = float(last.std(ddof=1)) if len(last) > 1 else None
                epoch = int(max(epochs[-1] for epochs, _ in curves))
                found.append(Standing(net=net, arm=arm, epoch=epoch, mean=float(last.mean()), sd=sd, n=len(last)))
    return found


def settings(experiment: config.Experiment) -> list[Setting]:
    """Every setting beside the paper's, then what the recipe says about matters that are no setting."""
    values = {path: config.text_of(value) for path, value in config.settings(experiment).items()}
    sources = {source.path: source for source in experiment.sources}
    found = []
    for path in [*values, *(path for path in sources if path not in values)]:
        source = sources.get(path)
        about = {"paper": source.paper, "section": source.section} if source else {}
        # A source for what is no setting has no value of ours that could differ.
        found.append(Setting(path=path, value=values.get(path, about.get("paper", "")), **about))
    return found


def environment(run: Run) -> list[tuple[str, str]]:
    """Where the run was made, as names and texts; what was not recorded is left out."""
    seen = dict(run.environment)
    versions = seen.pop("versions", None) or {}
    order = ("device_name", "device", "threads", "precision", "path", "python", "platform", "commit")
    found = [(_ENVIRONMENT.get(name, name), str(seen[name])) for name in order if seen.get(name) not in (None, "")]
    return found + [(name, str(version)) for name, version in versions.items()]


_ENVIRONMENT = {"device_name": "machine", "path": "code path", "python": "Python"}
