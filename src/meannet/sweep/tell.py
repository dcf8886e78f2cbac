"""`meannet sweep`: trials, each a run of its own, and what a person sees of them."""

import argparse
import json
import shlex
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
import torch
from optuna.trial import TrialState
from rich.console import Console

from meannet import data, device, runlog, screen
from meannet import experiment as experiments
from meannet.atomic import write_atomically
from meannet.config import Experiment, to_json
from meannet.console import EXIT_STOPPED_NETS, StopRequest
from meannet.experiment import Interrupted, Options, Progress
from meannet.sweep.plan import Plan, Settings, as_set, planned, run_command
from meannet.sweep.study import folder, naming_storage, opened, without_password

ENDED = TrialState.COMPLETE, TrialState.PRUNED
SHOWN = 5  # trials in the closing table


def sweep_and_tell(experiment: Experiment, out: Path, options: argparse.Namespace) -> int:
    """Try settings until the study has as many trials as are wanted, and print how it went; returns the exit code."""
    given = {setting.partition("=")[0] for setting in options.settings} | ({"seeds"} if options.seeds else set())
    plan, where = planned(experiment, given, options.arm), device.choose(options.device)
    command = without_password(options.command, options.storage)
    again = command if options.out else f"{command} --out {shlex.quote(str(out))}"
    again += " (and the password for ***)" * ("***" in command)
    console, stop, ran = screen.lasting(stderr=options.json), StopRequest(), False
    try:
        with stop.catching():
            if not (out / "sweep.json").exists():
                runlog.check_free(out)
                data.load(plan.experiment.data, say=console.print)  # what cannot be is said before anything is written
            with naming_storage(out, again), opened(plan, out, options.storage) as study, following(console) as shown:
                how = Options(device=options.device, command=command, progress=shown, stop=stop)
                if not kept(out):
                    keep(out, document(tried(study, plan), plan, options, where))
                for one in sweep(study, plan, out, options.trials, how):
                    ran = True
                    every = tried(study, plan)
                    console.print(line(one, ranked(every)))
                    keep(out, document(every, plan, options, where))
                every = tried(study, plan)
                found = document(every, plan, options, where)
                if any(found[part] != kept(out).get(part) for part in ("trials", "command")):
                    keep(out, found)  # others have ended trials since, or the same was asked for in other words
    except Interrupted:
        began = (out / "sweep.json").exists()
        console.print(f"stopped; saved. Go on with: {again}" if began else "stopped; nothing was written")
        return 128 + stop.received
    if options.json:
        print(json.dumps(kept(out)))
    else:
        if not ran:
            console.print(f"{out} had already finished; nothing was run")
        tell(console, plan, every, kept(out))
    return 0 if found["best"] else EXIT_STOPPED_NETS


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A finished trial, wherever it ran."""

    number: int
    settings: Settings
    errors: list[float | None]  # one a seed, of so many held-out cases; per cent of frames where cases are those
    mean: float | None  # None where a net was stopped
    state: Literal["done", "failed"]
    why: str  # it failed
    n_held_out: int | None
    seconds: float


def tried(study: optuna.Study, plan: Plan) -> list[Tried]:
    ended = study.get_trials(deepcopy=False, states=ENDED)
    facts = study.user_attrs  # read after: a trial's are there before it ends
    return [
        Tried(
            number=trial.number,
            settings=plan.settings(trial.number, trial.params),
            mean=trial.value,
            state="failed" if trial.value is None else "done",
            **facts[str(trial.number)],
        )
        for trial in ended
    ]


def ranked(every: Sequence[Tried]) -> list[Tried]:
    """Those that did not fail, the fewest errors first and the earlier one where they are equal."""
    return sorted((one for one in every if one.mean is not None), key=lambda one: (one.mean, one.number))


def sweep(study: optuna.Study, plan: Plan, out: Path, wanted: int, options: Options) -> Iterator[Tried]:
    """Run trials until so many have ended, yielding each: first those that were stopped in this folder.

    Processes that share a study may end more than are wanted, each the one that it has begun.
    """
    begun = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    stopped = [trial for trial in begun if folder(out, trial.number).exists()]
    while len(study.get_trials(deepcopy=False, states=ENDED)) < wanted:
        if options.stop():
            raise Interrupted
        trial = stopped.pop(0) if stopped else proposed(study, plan)
        run, settings = folder(out, trial.number), plan.settings(trial.number, trial.params)
        run.mkdir(exist_ok=True)
        end(study, trial.number, attempt(plan.trial(settings), run, options))
        yield next(one for one in tried(study, plan) if one.number == trial.number)


def proposed(study: optuna.Study, plan: Plan) -> optuna.Trial:
    trial = study.ask()
    for draw in plan.draws:
        if draw.how == "whole":
            trial.suggest_int(draw.name, int(draw.low), int(draw.high))
        else:
            trial.suggest_float(draw.name, draw.low, draw.high, log=draw.how == "log")
    return trial


def attempt(experiment: Experiment, run: Path, options: Options) -> dict[str, Any]:
    """Run a trial, or go on with one that was stopped; what a study keeps of it."""
    try:
        begun = (run / "experiment.json").exists()
        result = experiments.resume(run, options) if begun else experiments.run(experiment, run, options)
    except device.OutOfMemory as error:
        return {"errors": [None for _ in experiment.seeds], "why": str(error), "n_held_out": None, "seconds": 0.0}
    (arm,) = result["arms"]
    errors = dict(zip(arm["seeds"], arm["errors"], strict=True))
    return {
        "errors": [errors.get(seed) for seed in experiment.seeds],
        "why": "; ".join(f"seed {net['seed']}, epoch {net['epoch']}, {net['why']}" for net in arm["stopped"]),
        "n_held_out": result["data"]["n_test"],
        "seconds": result["seconds"],
    }


def end(study: optuna.Study, number: int, facts: dict[str, Any]) -> None:
    """Tell the study what came of a trial."""
    study.set_user_attr(str(number), facts)
    if facts["why"]:
        # As pruned: from what Optuna calls failed it does not learn that the settings were bad.
        study.tell(number, state=TrialState.PRUNED)
    else:
        study.tell(number, statistics.fmean(facts["errors"]))


def document(every: Sequence[Tried], plan: Plan, options: argparse.Namespace, where: torch.device) -> dict[str, Any]:
    """What sweep.json says."""
    best = next(iter(ranked(every)), None)
    return {
        "recipe": plan.experiment.recipe,
        "arm": plan.experiment.arms[0].name,
        "seeds": list(plan.experiment.seeds),
        "n_held_out": next((one.n_held_out for one in every if one.n_held_out), None),
        "trials": to_json(every),
        "best": to_json(best),
        "command": run_command(options, best.settings, plan.experiment.arms[0]) if best else None,
        "study": plan.name(),
        "device": device.describe(where),
        "seconds": round(sum(one.seconds for one in every), 1),
        "commit": device.commit(),
        "versions": device.versions() | {"optuna": optuna.__version__},
    }


def keep(out: Path, found: dict[str, Any]) -> None:
    write_atomically(out / "sweep.json", (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())


def kept(out: Path) -> dict[str, Any]:
    """sweep.json; empty where there is none that can be read, since the study has what counts."""
    try:
        found = json.loads((out / "sweep.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def following(console: Console) -> Iterator[Callable[[Progress], None]]:
    """On a terminal, how far a trial is."""
    with console.status("") as status:
        yield lambda now: status.update(f"{now.net}: epoch {now.epoch.epoch} of {now.epochs}")


def line(one: Tried, best_first: Sequence[Tried]) -> str:
    told = f"failed: {one.why}" if one.mean is None else f"{one.mean:.1f}{' (best so far)' * (one == best_first[0])}"
    return f"trial {one.number}: {' '.join(as_set(one.settings))}: {told}"


def tell(console: Console, plan: Plan, every: Sequence[Tried], found: dict[str, Any]) -> None:
    """The best trials and the recipe's own, what failed, and how to judge the best on the test set."""
    best, own = ranked(every), [one for one in every if one.number == 0]
    unit = (
        "% of held-out frames wrong"
        if plan.experiment.data.speech
        else f"errors of {found['n_held_out'] or 0:,} held out"
    )
    seeds = f"mean of {len(found['seeds'])} seed{'s' * (len(found['seeds']) > 1)}"
    console.print(f"{found['recipe']}, {found['arm']}: {unit}, {seeds} ({found['seconds']:.0f} s)")
    heads = (path.replace(".", ".\n") for path in every[0].settings)  # or they would be cut short on a terminal
    table = screen.table("trial", *heads, numbers=("errors",))
    for one in [*best[:SHOWN], *(one for one in own if one not in best[:SHOWN])]:
        texts = [text.rpartition("=")[2] for text in as_set(one.settings)]
        name = f"{one.number}, the recipe's own" if one in own else str(one.number)
        table.add_row(name, *texts, "failed" if one.mean is None else f"{one.mean:.1f}")
    console.print(table)
    if failed := [str(one.number) for one in every if one.mean is None]:
        console.print(f"failed: {', '.join(failed)}")
    if best and best[0] in own:
        console.print("nothing that was tried does better than the recipe's own settings")
    if best:
        console.print(f"to judge the best on the test set: {found['command']}")
