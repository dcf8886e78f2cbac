"""The one place that wires data, nets, loop, evaluation and record together: run(Experiment) -> result."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from meannet import checkpoint, data, device, examples, fast, outcome, patches, pretraining, ranks, streamed
from meannet.config import Conv, Experiment, to_json
from meannet.data import Dataset
from meannet.lots import Lot, lots
from meannet.nn.convfleet import conv_fleet, pixel_mean
from meannet.nn.convnets import ConvNet, Rates, image_net, working_spreads
from meannet.nn.dense import Fleet, initial_fleet
from meannet.outcome import net_name
from meannet.pretrain.stack import Done, Stack
from meannet.pretrain.unrolled import install_, seen
from meannet.pretraining import check_settings, check_unchanged, chosen
from meannet.runlog import RunFolder, check_free
from meannet.train import Engine, Epoch, Fault, train

CASES_TO_TRY = 128  # when initial variances are tried


class Interrupted(Exception):
    """The run was asked to stop and has saved; it can be resumed."""


@dataclass(frozen=True)
class Progress:
    """Told to the caller after every epoch."""

    net: str  # and, while it is pretrained, which stage of that
    epoch: Epoch | Done
    epochs: int
    test_error: dict[str, float]  # mean over seeds, by arm; empty where not recorded
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run, as far as it does not decide the numbers of the plain path."""

    device: str = "auto"
    path: str = "auto"
    pretrain_path: str = ""  # by which pretraining's precision is decided, where a run goes on; empty: `path`
    save_minutes: float = 1.0
    save_epochs: int | None = None
    workers: int | None = None  # processes that decode pictures in shards; as many as there are cores
    command: str = ""
    say: Callable[[str], None] = lambda line: None
    progress: Callable[[Progress], None] = lambda progress: None
    stop: Callable[[], bool] = lambda: False


def run(experiment: Experiment, folder: str | Path, options: Options = Options()) -> dict[str, Any]:  # noqa: B008, frozen
    """Train every architecture, arm and seed of a new experiment into `folder`; returns what result.json holds."""
    if experiment.patches is not None:
        return _run_streamed(experiment, Path(folder), options)
    _refuse_ranks(experiment)
    check_free(Path(folder))  # before data is fetched, which may take minutes
    where = device.choose(options.device)
    dataset = load_cases(experiment, where, options.say)
    made = RunFolder.create(Path(folder), experiment)
    try:
        return _run(experiment, made, dataset, where, options)
    except (ValueError, RuntimeError):
        made.discard_untrained()
        raise


def resume(folder: str | Path, options: Options = Options()) -> dict[str, Any]:  # noqa: B008, frozen
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
    if experiment.patches is not None:
        return _run_streamed(None, Path(folder), options)
    _refuse_ranks(experiment)
    where = device.choose(options.device)
    return _run(experiment, opened, load_cases(experiment, where, options.say), where, options)


def load_cases(experiment: Experiment, where: torch.device, say: Callable[[str], None]) -> Dataset:
    """All cases of an experiment; states of frames from another run's nets where it asks for that."""
    dataset = data.load(experiment.data, say=say)
    if experiment.data.speech is None or not experiment.data.speech.aligned_by:
        return dataset
    from meannet.realignment import realigned

    return realigned(experiment, dataset, where, say)


def _run_streamed(experiment: Experiment | None, path: Path, options: Options) -> dict[str, Any]:
    """A run on pictures in shards, by all ranks; without an experiment one is resumed, as it is after a restart."""
    where = device.choose(options.device)
    with ranks.joined(where) as all_ranks:
        where, folder, made = all_ranks.device, RunFolder(path), False
        prepared = patches.open_prepared(held_out=_of(experiment, path).data.held_out)
        if all_ranks.first and experiment is not None:
            if all_ranks.restarts and (path / "experiment.json").exists():
                _check_same(experiment, RunFolder.open(path))
            else:
                folder, made = RunFolder.create(path, experiment), True
        try:
            with folder.locked() if all_ranks.first else nullcontext():
                return streamed.run(_of(experiment, path), folder, prepared, where, options, all_ranks)
        except (ValueError, RuntimeError):
            if made:
                folder.discard_untrained()
            raise


def _of(experiment: Experiment | None, path: Path) -> Experiment:
    return RunFolder.open(path).experiment() if experiment is None else experiment


def _check_same(experiment: Experiment, folder: RunFolder) -> None:
    """A worker that was started anew goes on with the run that it left, and with no other."""
    if folder.experiment() != experiment:
        raise ValueError(f"{folder.path} holds another run; choose another --out")


def _refuse_ranks(experiment: Experiment) -> None:
    if ranks.named().world > 1:
        raise ValueError(
            f"{experiment.recipe} trains in one process; start it without torchrun, which is for recipes imagenet.…"
        )


def make_fleet(experiment: Experiment, hidden: Sequence[int], dataset: Dataset, where: torch.device | str) -> Fleet:
    """All arms and seeds of one architecture, arm by arm: net = arm * number of seeds + seed."""
    if experiment.conv is not None:
        return _make_conv_fleet(experiment, experiment.conv, hidden, dataset, where)
    each = [arm for arm in experiment.arms for _ in experiment.seeds]
    return initial_fleet(
        (dataset.train.inputs.shape[1], *hidden, len(dataset.classes)),
        experiment.seeds * len(experiment.arms),
        _rates(experiment, hidden),
        units=experiment.net.units,
        sd=experiment.net.initial_sd,
        bias=[experiment.initial_bias(arm) for arm in each],
        device=where,
    )


def _make_conv_fleet(
    experiment: Experiment, conv: Conv, hidden: Sequence[int], dataset: Dataset, where: torch.device | str
) -> Fleet:
    pairs = [(arm, seed) for arm in experiment.arms for seed in experiment.seeds]
    shape, classes, units = outcome.image_shape(dataset), len(dataset.classes), experiment.net.units

    def net(rates: Rates, seed: int) -> ConvNet:
        return image_net(conv, hidden, classes, shape=shape, units=units, rates=rates, seed=seed)

    images = dataset.train.inputs.view(-1, *shape)
    mean = pixel_mean(images)
    spreads = conv.initial_sd
    if not spreads:
        few = (images[:CASES_TO_TRY].float() - mean) * conv.scale
        spreads = working_spreads(net(Rates(), 0), few, max(experiment.net.initial_bias, 0.5))
    rates = [Rates(conv.rate if arm.conv else 0.0, experiment.rates(arm)[1]) for arm, _ in pairs]
    return conv_fleet(
        [net(own, seed) for own, (_, seed) in zip(rates, pairs, strict=True)],
        [seed for _, seed in pairs],
        spreads,
        output_sd=experiment.net.initial_sd,
        bias=[experiment.initial_bias(arm) for arm, _ in pairs],
        units=units,
        mean=mean,
        scale=conv.scale,
        decays=[experiment.decays(arm) for arm, _ in pairs],
        device=where,
    )


def load_fleet(
    experiment: Experiment, folder: RunFolder, hidden: Sequence[int], dataset: Dataset, where: torch.device
) -> tuple[Fleet, list[Fault], Dataset]:
    """The fleet as a run last saved it, the nets that were stopped, and the cases as its nets see them.

    The run must have finished, and settings and data still be the same.
    """
    with of_finished(folder):
        if experiment.pretrain and experiment.pretrain.model == "dbm":
            stack = pretraining.prepare(experiment, hidden, dataset, where)
            pretraining.restore(stack, experiment, folder, hidden, dataset, whole=True)
            dataset = seen(stack, dataset, len(experiment.arms))
        fleet = make_fleet(experiment, hidden, dataset, where)
        facts = _restore(fleet, experiment, folder, hidden, dataset, whole=True)
    return fleet, [Fault(**fault) for fault in facts["faults"]], dataset


def trained_fleet(experiment: Experiment, folder: RunFolder, hidden: Sequence[int]) -> Fleet:
    """The fleet of a finished run, for which its data is not needed; in the order of make_fleet."""
    if experiment.conv is not None:
        raise ValueError(f"{folder.path} holds image nets, and only dense nets can be taken out of a run yet")
    path = folder.state(hidden, len(experiment.net.hidden))
    with of_finished(folder):
        tensors, facts = checkpoint.read(path)
    check_settings(facts, experiment, experiment.digest(), path)

    def group(name: str) -> list[torch.Tensor]:
        return [tensors[f"{name}.{k}"] for k in range(len(hidden) + 1)]

    return Fleet(
        units=experiment.net.units,
        output="softmax",
        seeds=torch.tensor(experiment.seeds * len(experiment.arms)),
        rates=[rate if rate.any() else None for rate in _rates(experiment, hidden)],
        weights=group("weights"),
        biases=group("biases"),
        weight_velocities=group("weight_velocities"),
        bias_velocities=group("bias_velocities"),
    )


@contextmanager
def of_finished(folder: RunFolder) -> Iterator[None]:
    """Says what to do about files of a finished run that cannot be read; states before them are of other epochs."""
    try:
        yield
    except checkpoint.Damaged as error:
        remedy = f"remove {folder.result}, and `meannet run --resume {folder.path}` makes it anew"
        raise checkpoint.CheckpointError(f"{folder.path}: {error}; {remedy}") from None


def _run(
    experiment: Experiment, folder: RunFolder, dataset: Dataset, where: torch.device, options: Options
) -> dict[str, Any]:
    with folder.locked():
        every = lots(experiment, folder)
        before = folder.forget_after(_saved_epochs(every, dataset, options.say))
        before = max(before, pretraining.recover(every, folder, dataset, options.say))
        clock = time.perf_counter()

        def seconds() -> float:
            return before + time.perf_counter() - clock

        arms, rows, engine = [], [], None
        for lot in every:
            part, hidden, cases = lot.experiment, lot.hidden, lot.cases(dataset)
            name = net_name(part, hidden, cases)
            with device.naming_memory(where, f"{name}, {len(part.arms)} arms x {len(part.seeds)} seeds"):
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
                    rows += outcome.sampled_rows(part, fleet, name, cases, part.samples, faults)
        if rows:
            folder.write("eval.json", {"samples": experiment.samples, "rows": rows})
        assert engine is not None
        claims = to_json([claim.counted(len(dataset.test.inputs)) for claim in experiment.claims])
        result = {
            "recipe": experiment.recipe,
            "paper": experiment.paper,
            "claim": claims[0] if claims else None,
            "claims": claims,
            "arms": (arms := outcome.together(arms, folder.records())),
            "comparisons": outcome.compare(arms),
            "data": {
                "name": dataset.name,
                "held_out": experiment.data.held_out,
                "n_train": len(dataset.train.inputs),
                "n_test": sum(len(lot.cases(dataset).test.inputs) for lot in every if lot.hidden == every[0].hidden),
                "image": dataset.image,
                "classes": dataset.classes,
                "digest": dataset.digest,
                **dataset.facts,
            },
            "epochs": experiment.optim.epochs,
            "device": device.describe(where),
            "precision": engine.precision,
            "path": engine.name,
            "seconds": round(seconds(), 1),
            "peak_mib": device.peak_memory(where),
            "commit": device.commit(),
            "versions": device.versions(),
        }
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
    command = folder.began_with("command", options.command)
    environment = device.environment(where, f"{products} products", options.path, command)
    folder.write("environment.json", environment | {"asked_path": path})
    saving = pretraining.Saving(options.save_minutes, options.save_epochs, seconds)
    stack = pretraining.prepare(experiment, hidden, dataset, where)
    for done in pretraining.run(stack, experiment, folder, dataset, saving, options.say, path=path, stop=options.stop):
        options.progress(Progress(f"{_shown(name, folder)}, {done.stage.name}", done, done.stage.epochs, {}, seconds()))
    if not stack.finished:
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
    each = [arm for arm in experiment.arms for _ in experiment.seeds]
    facts = _restore(fleet, experiment, folder, hidden, dataset)
    faults = [Fault(**fault) for fault in facts["faults"]]
    if facts["epoch"]:
        options.say(f"{name} goes on from epoch {facts['epoch']} of {experiment.optim.epochs}")
    inputs, targets = dataset.train.inputs.to(where), dataset.train.targets.to(where)
    test_inputs, test_targets = dataset.test.inputs.to(where), dataset.test.targets.to(where)
    engine = fast.engine(
        fleet, inputs, targets, experiment.optim.batch, [experiment.limit(arm) for arm in each], options.path
    )
    command = folder.began_with("command", options.command)
    environment = device.environment(where, engine.precision, engine.name, command)
    folder.write("environment.json", environment | {"asked_path": options.pretrain_path or options.path})
    saved_epoch, saved_at = facts["epoch"], time.perf_counter()
    epoch_now = facts["epoch"]

    def save() -> None:
        nonlocal saved_epoch, saved_at
        if epoch_now == saved_epoch:
            return
        facts = {
            "epoch": epoch_now,
            "faults": [vars(fault) for fault in faults],
            "settings": experiment.digest(),
            "chosen": chosen(experiment),
            "data": dataset.digest,
        }
        checkpoint.save(folder.state(hidden, len(experiment.net.hidden)), fleet.state(), facts)
        saved_epoch, saved_at = epoch_now, time.perf_counter()

    for epoch in train(
        fleet,
        engine,
        len(inputs),
        experiment.optim,
        [experiment.lr(arm) for arm in each],
        start=facts["epoch"],
        stopped=[fault.net for fault in faults],
        stop=options.stop,
    ):
        epoch_now = epoch.epoch
        faults += epoch.faults
        for fault in epoch.faults:
            options.say(outcome.describe_fault(experiment, name, fault))
        last = epoch_now == experiment.optim.epochs
        means: dict[str, float] = {}
        if last or epoch_now % experiment.record_every == 0:
            errors, more = outcome.judged(fleet, test_inputs, test_targets, dataset)
            gone = {fault.net for fault in faults}
            folder.append(outcome.epoch_records(experiment, name, epoch, errors, gone, seconds(), more))
            means = outcome.arm_means(experiment, errors, gone)
        due = experiment.optim.epochs == epoch_now or epoch_now == 1
        due |= options.save_epochs is not None and epoch_now - saved_epoch >= options.save_epochs
        due |= time.perf_counter() - saved_at >= 60 * options.save_minutes
        if due:
            save()
        options.progress(Progress(_shown(name, folder), epoch, experiment.optim.epochs, means, seconds()))
    save()
    if options.stop():
        raise Interrupted
    return fleet, faults, engine


def _shown(name: str, folder: RunFolder) -> str:
    return name if folder.fold is None else f"{name}, turn {folder.fold + 1}"


def _restore(
    fleet: Fleet,
    experiment: Experiment,
    folder: RunFolder,
    hidden: Sequence[int],
    dataset: Dataset,
    *,
    whole: bool = False,
) -> dict[str, Any]:
    """Put the saved state into the fleet, which must or may be there; returns what was saved beside it."""
    path = folder.state(hidden, len(experiment.net.hidden))
    if not whole and not path.exists():
        return {"epoch": 0, "faults": []}
    tensors, facts = checkpoint.read(path)
    check_unchanged(facts, experiment, experiment.digest(), path, dataset)
    for name, tensor in fleet.state().items():
        tensor.copy_(tensors[name])
    return facts


def _rates(experiment: Experiment, hidden: Sequence[int]) -> list[torch.Tensor]:
    """Of the visible units and of each hidden layer, (nets, 1)."""
    each = [experiment.rates(arm) for arm in experiment.arms for _ in experiment.seeds]
    visible_rates, hidden_rates = zip(*each, strict=True)
    layers = [visible_rates, *[hidden_rates] * len(hidden)]
    return [torch.tensor(rates, dtype=torch.float64)[:, None] for rates in layers]


def _saved_epochs(every: Sequence[Lot], dataset: Dataset, say: Callable[[str], None]) -> dict[tuple[str, int], int]:
    """The last epoch in each state, by name and seed of its nets."""
    found: dict[tuple[str, int], int] = {}
    for lot in every:
        path = lot.folder.state(lot.hidden, len(lot.experiment.net.hidden))
        if checkpoint.exists(path):
            found |= dict.fromkeys(lot.nets(dataset), checkpoint.recover(path, say)["epoch"])
    return found
