"""Runs on pictures in shards (H), by one process or by all that torchrun starts: data, net, loop, record and result.

A state is saved within epochs too, with the place in the epoch and what its updates added up to so far; going on from
there repeats and skips nothing.
"""

import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meannet import checkpoint, device, examples, fast, imagefleets, outcome, patches, tenviews
from meannet.checkpoint import check_unchanged
from meannet.config import Experiment
from meannet.cores import cores
from meannet.data import shards
from meannet.data.stream import Stream
from meannet.evaluate import sample_counts
from meannet.fleets import of_finished
from meannet.options import Interrupted, Options
from meannet.passes import Loop, search_rate, train
from meannet.patches import Prepared
from meannet.ranks import Ranks, joined, named
from meannet.report.written import several
from meannet.runlog import RunFolder, check_free


def start(experiment: Experiment | None, path: Path, options: Options) -> dict[str, Any]:
    """A run on pictures in shards, by all ranks; without an experiment one is resumed, as it is after a restart."""
    where, one, wanted = device.choose(options.device), named(), _of(experiment, path)
    # Before ranks wait for each other: what is refused here every one of them refuses, and none is left alone.
    prepared = patches.open_prepared(held_out=wanted.data.held_out)
    if experiment is not None and not one.restarts:
        check_free(path)
    if wanted.optim.batch % one.world:
        raise ValueError(f"optim.batch must be a multiple of the {one.world} ranks, not {wanted.optim.batch}")
    with joined(where) as all_ranks:
        where, folder, made = all_ranks.device, RunFolder(path), False
        # After this all ranks are here and have looked at the folder: to join, NCCL waits for nobody.
        (finished,) = all_ranks.any(folder.result.exists())
        if all_ranks.first and experiment is not None:
            if all_ranks.restarts and (path / "experiment.json").exists():
                _check_same(experiment, folder)
            else:
                folder, made = RunFolder.create(path, experiment), True
        if finished:  # only after a restart
            return folder.found() if all_ranks.first else {}
        try:
            with folder.locked() if all_ranks.first else nullcontext():
                return run(wanted, folder, prepared, where, options, all_ranks)
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


def run(
    experiment: Experiment, folder: RunFolder, data: Prepared, where: torch.device, options: Options, ranks: Ranks
) -> dict[str, Any]:
    """Train, or go on training, to the last epoch; the first rank writes what the run leaves."""
    before = 0.0
    name = net_name(experiment, data)
    path = folder.state(experiment.net.hidden[0], 1)
    if ranks.first and checkpoint.exists(path):
        saved = {(name, experiment.seeds[0]): checkpoint.recover(path, options.say)["epoch"]}
        before = folder.forget_after(saved, experiment.record_every, options.say)
    clock = time.perf_counter()
    with device.naming_memory(where, name):
        fleet = patches.make_fleet(experiment, data, where)
        (arm,) = experiment.arms
        engine = fast.patch_engine(
            fleet, experiment.optim.batch, experiment.limit(arm), ranks, options.path, options.precision
        )
        workers = max(1, cores() // _on_this_machine(ranks)) if options.workers is None else options.workers
        loop = Loop(
            experiment=experiment,
            folder=folder,
            data=data,
            fleet=fleet,
            engine=engine,
            ranks=ranks,
            options=options,
            name=name,
            workers=workers,
            seconds=lambda: before + time.perf_counter() - clock,
            saved_at=clock,
        )
        loop.restore()
        if ranks.first:
            command = folder.began_with("command", options.command)
            facts = device.environment(where, engine.precision, engine.name, command)
            decoding = f"{several(ranks.world, 'rank')} with {several(workers, 'worker')} to decode pictures"
            options.say(f"{device.told(facts)}; {decoding}")
            saving = {"save_minutes": options.save_minutes, "save_epochs": options.save_epochs}
            folder.write("environment.json", facts | saving | {"ranks": ranks.world, "workers": workers})
        if loop.lr is None:
            assert experiment.patches is not None
            loop.lr = search_rate(loop) if experiment.patches.search else experiment.lr(arm)
        judged = train(loop)
        if judged is None:
            raise Interrupted
        if judged == {} and loop.fault is None:
            judged = tenviews.judge(fleet, data, data.judged, np.arange(data.n_test), ranks, workers)
        if not ranks.first:
            return {}
        if loop.fault is None:
            folder.write("examples.json", _examples(loop))
        result = _result(loop, judged, where)
        folder.write("result.json", result)
        return result


def evaluate(
    experiment: Experiment, folder: RunFolder, samples: int, where: torch.device, workers: int | None = None
) -> list[dict[str, Any]]:
    """The mean network beside means of sampled networks, on ten views of each picture; nothing where it was stopped."""
    result, data, counts = (
        folder.found(),
        patches.open_prepared(held_out=experiment.data.held_out),
        sample_counts(samples),
    )
    (arm,), (seed,), path = experiment.arms, experiment.seeds, folder.state(experiment.net.hidden[0], 1)
    if result["arms"][0]["stopped"]:
        return []
    with of_finished(folder):
        tensors, facts = checkpoint.read_state(path)
    check_unchanged(facts, experiment, experiment.digest(), path, data)
    name = net_name(experiment, data)
    with device.naming_memory(where, name):
        fleet = imagefleets.restored(experiment, experiment.net.hidden[0], tensors | {"mean": data.mean}, where)
        cases = np.arange(data.n_test)
        found = tenviews.sampled(fleet, data, data.judged, cases, cores() if workers is None else workers, counts)
    about = {"net": name, "arm": arm.name, "seed": seed, "n_test": data.n_test, "views": 10, "counts": counts}
    return [about | found]


def net_name(experiment: Experiment, data: Prepared) -> str:
    """3x224x224-c64-c256-c512-c512-c512-4096-4096-1000, say."""
    given, (hidden,) = experiment.patches, experiment.net.hidden
    assert given is not None
    below = [f"3x{given.size}x{given.size}", *(f"c{banks}" for banks in given.banks)]
    return "-".join([*below, *map(str, hidden), str(len(data.classes))])


def _result(loop: Loop, judged: dict[str, Any], where: torch.device) -> dict[str, Any]:
    experiment, data, (arm,), (seed,) = loop.experiment, loop.data, loop.experiment.arms, loop.experiment.seeds
    fault, good = loop.fault, loop.fault is None
    found = {
        "name": arm.name,
        "net": loop.name,
        "seeds": [seed] if good else [],
        "errors": [judged["errors"]] if good else [],
        "mean": float(judged["errors"]) if good else None,
        "sd": None,
        "n_test": data.n_test,
        "curve": outcome.curve(loop.folder.records(), data.n_test),
        "metrics": {
            "log_probability": [outcome.finite(judged["log_probability"])] if good else [],
            "top5_errors": [judged["top5_errors"]] if good else [],
        },
        "stopped": [outcome.stopped(seed, fault)] if fault else [],
    }
    facts = {
        "name": data.name,
        "held_out": experiment.data.held_out,
        "judged_on": {"val": "validation", "test": "test"}[data.judged],
        "n_train": data.cases,
        "n_test": data.n_test,
        "image": [data.size, data.size],
        "classes": data.classes,
        "digest": data.digest,
    }
    also = {"lr": loop.lr, "ranks": loop.ranks.world, "pace": outcome.paced(loop.folder.records())}
    engine = loop.engine
    return outcome.document(experiment, [found], facts, engine.precision, engine.name, where, loop.seconds(), **also)


def _examples(loop: Loop) -> dict[str, Any]:
    data, fleet = loop.data, loop.fleet

    @torch.no_grad()
    def look(cases: np.ndarray) -> tuple[list[dict[str, Any]], np.ndarray]:
        with Stream(data.folder, data.judged, len(cases), 0) as stream:
            (pixels,) = (torch.from_numpy(found.copy()) for found in stream.batches([cases]))
            shown = [examples.jpeg(stream.reader.jpeg(int(case))) for case in cases]
        found = tenviews.averaged(fleet.nets[0].eval(), fleet, pixels.permute(0, 3, 1, 2))
        return shown, found.exp().cpu().numpy()

    (arm,), (seed,) = loop.experiment.arms, loop.experiment.seeds
    labels = np.array(shards.Reader(data.folder, data.judged).index[:, 3])
    facts = {"net": loop.name, "arm": arm.name, "seed": seed, "views": 10}
    return facts | examples.gather(labels, data.classes, look)


def _on_this_machine(ranks: Ranks) -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
