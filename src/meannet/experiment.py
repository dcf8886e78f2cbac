"""The one place that wires data, nets, loop, evaluation and record together: run(Experiment) -> result."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from meannet import checkpoint, data, device, examples, fast, outcome, pretraining, ranks, streamed
from meannet.adapting import Adapting, apart
from meannet.config import Experiment
from meannet.data import Cases, Dataset
from meannet.fleets import load_fleet, make_fleet, restore
from meannet.lots import Lot, lots
from meannet.nn.convfleet import ConvFleet
from meannet.nn.dense import Fleet
from meannet.options import Interrupted, Options, Progress
from meannet.outcome import net_name
from meannet.pretrain.stack import Stack
from meannet.pretrain.unrolled import install_, seen
from meannet.runlog import RunFolder, check_free
from meannet.train import Engine, Fault, Unjudged, train

SAVE_MINUTES = 1.0


def run(experiment: Experiment, folder: str | Path, options: Options = Options()) -> dict[str, Any]:
    """Train every architecture, arm and seed of a new experiment into `folder`; returns what result.json holds."""
    options = replace(options, save_minutes=options.save_minutes or SAVE_MINUTES)
    if experiment.patches is not None:
        return streamed.start(experiment, Path(folder), options)
    ranks.refuse_several(experiment.recipe)
    check_free(Path(folder))  # before data is fetched, which may take minutes
    where = device.choose(options.device)
    fast.check_path(options.path, options.precision, where)
    dataset = load_cases(experiment, where, options.say)
    made = RunFolder.create(Path(folder), experiment)
    try:
        return _run(experiment, made, dataset, where, options)
    except (ValueError, RuntimeError):
        made.discard_untrained()
        raise


def resume(folder: str | Path, options: Options = Options()) -> dict[str, Any]:
    """Go on where a run stopped, bit-identically on the CPU; a finished run is left alone."""
    opened = RunFolder.open(Path(folder))
    if opened.result.exists():
        return opened.found()
    experiment = opened.experiment()
    if options.device == "auto":  # devices differ in rounding, and so do paths
        options = replace(options, device=opened.began_with("device", "auto"))
    if options.path == "auto":
        path = opened.began_with("path", "auto")
        options = replace(options, path=path, pretrain_path=opened.began_with("asked_path", path))
    options = replace(
        options,
        save_minutes=options.save_minutes or _above_0(opened.began_with("save_minutes")) or SAVE_MINUTES,
        save_epochs=options.save_epochs or _above_0(opened.began_with("save_epochs")),
    )
    if experiment.patches is not None:
        return streamed.start(None, Path(folder), options)
    ranks.refuse_several(experiment.recipe)
    where, before = device.choose(options.device), opened.began_with("asked_precision", "auto")
    if options.precision == "auto" and fast.has_precision(where, options.path, before):
        options = replace(options, precision=before)
    fast.check_path(options.path, options.precision, where)
    return _run(experiment, opened, load_cases(experiment, where, options.say), where, options)


def evaluate(folder: RunFolder, samples: int, where: torch.device, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The mean network of each net of a run beside means of sampled networks; nets that were stopped have no row."""
    folder.read("result.json")  # says what to do where the run has not finished
    experiment = folder.experiment()
    if experiment.patches is not None:
        return streamed.evaluate(experiment, folder, samples, where)
    dataset, rows = load_cases(experiment, where, say), []
    for lot in lots(experiment, folder):
        part, cases = lot.experiment, lot.cases(dataset)
        name = net_name(part, lot.hidden, cases)
        with device.naming_memory(where, _size(name, part)):
            fleet, faults, cases = load_fleet(part, lot.folder, lot.hidden, cases, where)
            rows += outcome.sampled_rows(part, fleet, name, cases, samples, faults) or ()
    return rows


def evaluation(experiment: Experiment, samples: int, rows: list[dict[str, Any]], where: torch.device) -> dict[str, Any]:
    """What eval.json holds."""
    return {
        "recipe": experiment.recipe,
        "epochs": experiment.optim.epochs,
        "digest": experiment.digest(),
        "samples": samples,
        "rows": rows,
        "device": device.describe(where),
        "commit": device.commit(),
        "versions": device.versions(),
    }


def _size(name: str, experiment: Experiment) -> str:
    return f"{name}, {len(experiment.arms)} arms x {len(experiment.seeds)} seeds"


def _above_0(found: Any) -> Any:
    """What environment.json says, where that is a number to save by; the file only informs, and may say anything."""
    return found if isinstance(found, int | float) and found > 0 else None


def load_cases(experiment: Experiment, where: torch.device, say: Callable[[str], None]) -> Dataset:
    """All cases of an experiment; states of frames from another run's nets where it asks for that."""
    dataset = data.load(experiment.data, say=say)
    if experiment.data.speech is None or not experiment.data.speech.aligned_by:
        return dataset
    from meannet.realignment import realigned

    return realigned(experiment, dataset, where, say)


def _run(
    experiment: Experiment, folder: RunFolder, dataset: Dataset, where: torch.device, options: Options
) -> dict[str, Any]:
    with folder.locked():
        every = lots(experiment, folder)
        before = folder.forget_after(_saved_epochs(every, dataset, options.say), experiment.record_every, options.say)
        before = max(before, pretraining.recover(every, folder, dataset, options.say))
        clock = time.perf_counter()

        def seconds() -> float:
            return before + time.perf_counter() - clock

        arms, rows, engine = [], [], None
        for lot in every:
            part, hidden, cases = lot.experiment, lot.hidden, lot.cases(dataset)
            name = net_name(part, hidden, cases)
            with device.naming_memory(where, _size(name, part)):
                stack = _pretrain_one(part, lot.folder, hidden, cases, where, options, seconds)
                cases = seen(stack, cases, len(part.arms)) if stack else cases
                fleet, faults, engine = _train_one(
                    part, lot.folder, hidden, cases, stack, name, where, options, seconds
                )
                arms += outcome.arm_results(part, fleet, name, cases, faults, folder.records(), lot.folder)
                shown = examples.of_fleet(part, fleet, name, cases, faults)
                if shown:
                    folder.write("examples.json", shown)
                if part.samples:
                    options.say(f"{name}: combining {part.samples} sampled networks of each net")
                    drawn = outcome.sampled_rows(part, fleet, name, cases, part.samples, faults, options.stop)
                    if drawn is None:
                        raise Interrupted
                    rows += drawn
        if rows:
            folder.write("eval.json", evaluation(experiment, experiment.samples, rows, where))
        assert engine is not None
        arms = outcome.together(arms, folder.records(), percent=dataset.spoken is not None)
        facts = {
            "name": dataset.name,
            "held_out": experiment.data.held_out,
            "n_train": len(dataset.train.inputs) - (experiment.adapt.cases if experiment.adapt else 0),
            "n_test": sum(len(lot.cases(dataset).test.inputs) for lot in every if lot.hidden == every[0].hidden),
            "image": dataset.image,
            "classes": dataset.classes,
            "digest": dataset.digest,
            **dataset.facts,
        }
        pace = outcome.paced(folder.records())
        result = outcome.document(experiment, arms, facts, engine.precision, engine.name, where, seconds(), pace=pace)
        if all("phone_error_rate" in arm["metrics"] for arm in arms):
            result["phone_comparisons"] = outcome.compare(arms, "phone_error_rate")
        if experiment.pretrain:
            result["pretraining"] = pretraining.summary(folder)
        folder.write("result.json", result)
        return result


def _pretrain_one(
    experiment: Experiment,
    folder: RunFolder,
    hidden: Sequence[int],
    dataset: Dataset,
    where: torch.device,
    options: Options,
    seconds: Callable[[], float],
) -> Stack | None:
    """The pretrained stack of one architecture, trained to its end; None where the experiment has no pretraining."""
    if experiment.pretrain is None:
        return None
    name = net_name(experiment, hidden, dataset)
    # Written before the first update: a run that is stopped while it pretrains must go on with the same path.
    path = options.pretrain_path or options.path
    products = "tf32" if where.type == "cuda" else str(fast.products(where, path)).removeprefix("torch.")
    _write_environment(folder, where, f"{products} products", options.path, options)
    saving = checkpoint.Saving(options.save_minutes, options.save_epochs)
    stack = pretraining.prepare(experiment, hidden, dataset, where)
    for done in pretraining.run(
        stack, experiment, folder, dataset, saving, seconds, options.say, path=path, stop=options.stop
    ):
        options.progress(Progress(f"{_shown(name, folder)}, {done.stage.name}", done, done.stage.epochs, {}, seconds()))
    if not stack.finished or options.stop():
        raise Interrupted
    return stack


def _train_one(
    experiment: Experiment,
    folder: RunFolder,
    hidden: Sequence[int],
    dataset: Dataset,
    stack: Stack | None,
    name: str,
    where: torch.device,
    options: Options,
    seconds: Callable[[], float],
) -> tuple[Fleet, list[Fault], Engine]:
    """Train, or go on training, one architecture to its last epoch."""
    fleet = make_fleet(experiment, hidden, dataset, where)
    if stack and experiment.pretrain:
        install_(fleet, stack, scale_up=experiment.pretrain.scale_up)
    each = [arm for arm, _ in experiment.pairs()]
    facts = restore(fleet, experiment, folder, hidden, dataset)
    faults = [Fault(**fault) for fault in facts["faults"]]
    unjudged = Unjudged(**facts["unjudged"]) if "unjudged" in facts else None
    if facts["epoch"]:
        options.say(f"{name} goes on from epoch {facts['epoch']} of {experiment.optim.epochs}")
    cases, held = apart(dataset.train, experiment.adapt) if experiment.adapt else (dataset.train, None)
    inputs, targets = cases.inputs.to(where), cases.targets.to(where)
    test_inputs, test_targets = dataset.test.inputs.to(where), dataset.test.targets.to(where)
    limits = [experiment.limit(arm) for arm in each]
    engine = fast.engine(
        fleet,
        inputs,
        targets,
        experiment.optim.batch,
        limits,
        options.path,
        precision=options.precision,
        momentum=max(experiment.optim.momentum_start, experiment.optim.momentum_end),
    )
    if experiment.adapt and held:
        to_judge_by = Cases(held.inputs.to(where), held.targets.to(where))
        engine = Adapting(engine, fleet, to_judge_by, experiment.adapt, [arm.adapt for arm in each])
    _write_environment(folder, where, engine.precision, engine.name, options)
    done = facts["epoch"]
    saving = checkpoint.Saving(options.save_minutes, options.save_epochs, first=not done)

    def save() -> None:
        facts = {
            "epoch": done,
            "faults": [vars(fault) for fault in faults],
            **checkpoint.decided_by(experiment, experiment.digest(), dataset),
        }
        if unjudged:
            facts["unjudged"] = vars(unjudged)
        tensors = fleet.state()
        if isinstance(fleet, ConvFleet):  # a net is of no use without it
            tensors["mean"] = torch.as_tensor(fleet.mean)
        checkpoint.save(folder.state(hidden, len(experiment.net.hidden)), tensors, facts)
        saving.saved()

    for epoch in train(
        fleet,
        engine,
        len(inputs),
        experiment.optim,
        [experiment.lr(arm) for arm in each],
        start=done,
        stopped=[fault.net for fault in faults],
        unjudged=unjudged,
        stop=options.stop,
    ):
        done, unjudged = epoch.epoch, epoch.unjudged
        faults += epoch.faults
        for fault in epoch.faults:
            options.say(outcome.describe_fault(experiment, name, fault))
        last = done == experiment.optim.epochs
        means: dict[str, float] = {}
        if last or done % experiment.record_every == 0:
            errors, more = outcome.judged(fleet, test_inputs, test_targets, dataset)
            gone = {fault.net for fault in faults}
            folder.append(outcome.epoch_records(experiment, name, epoch, errors, gone, seconds(), more))
            means = outcome.arm_means(experiment, errors, gone)
        if saving.due() or last:
            save()
        options.progress(Progress(_shown(name, folder), epoch, experiment.optim.epochs, means, seconds()))
    if saving.since:
        save()
    if options.stop():
        raise Interrupted
    return fleet, faults, engine


def _write_environment(folder: RunFolder, where: torch.device, precision: str, path: str, options: Options) -> None:
    """With what a resumed run goes on by where it is not told otherwise."""
    facts = device.environment(where, precision, path, folder.began_with("command", options.command))
    facts["asked_path"] = options.pretrain_path or options.path
    asked = folder.began_with("asked_precision", "auto")  # which some path may not have had
    facts["asked_precision"] = asked if options.precision == "auto" else options.precision
    if any(folder.began_with(name) != facts[name] for name in ("device_name", "path", "threads", "precision")):
        options.say(device.told(facts))
    folder.write("environment.json", facts | {"save_minutes": options.save_minutes, "save_epochs": options.save_epochs})


def _shown(name: str, folder: RunFolder) -> str:
    return name if folder.fold is None else f"{name}, turn {folder.fold + 1}"


def _saved_epochs(every: Sequence[Lot], dataset: Dataset, say: Callable[[str], None]) -> dict[tuple[str, int], int]:
    """The last epoch in each state, by name and seed of its nets."""
    found: dict[tuple[str, int], int] = {}
    for lot in every:
        path = lot.folder.state(lot.hidden, len(lot.experiment.net.hidden))
        if checkpoint.exists(path):
            found |= dict.fromkeys(lot.nets(dataset), checkpoint.recover(path, say)["epoch"])
    return found
