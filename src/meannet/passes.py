"""Epochs on pictures in shards (F.6, F.7, H): updates, records, and states that are saved within epochs too."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meannet import checkpoint, outcome, patches, tenviews
from meannet.checkpoint import check_unchanged, decided_by
from meannet.config import Experiment
from meannet.core import schedule
from meannet.core.sgd import step_size
from meannet.data.stream import Stream
from meannet.fast.patches import Fast, pinned
from meannet.nn.convfleet import ConvFleet
from meannet.nn.convnets import NoRateError, largest_rate
from meannet.options import Options, Progress
from meannet.patches import Prepared
from meannet.ranks import Ranks
from meannet.runlog import RunFolder
from meannet.train import Epoch, Fault, Tally, find_faults

TOLD_AFTER = 100  # updates, of how fast they are
ASK_EVERY = 10  # updates after which ranks agree on whether to save or to stop
SAVING_SHARE = 50  # saving takes no more than one of so many seconds
JUDGED_FOR_A_RATE = 1024  # training cases on which an objective must fall for a learning rate to do


@dataclass
class Loop:
    """A run under way: its parts, and how far it is."""

    experiment: Experiment
    folder: RunFolder
    data: Prepared
    fleet: ConvFleet
    engine: patches.Plain | Fast
    ranks: Ranks
    options: Options
    name: str
    workers: int
    seconds: Callable[[], float]
    lr: float | None = None
    epoch: int = 0
    update: int = 0  # of the epoch
    tally: Tally | None = None  # of its updates so far, where it was taken up again
    fault: Fault | None = None
    saved: tuple[int, int] = (0, 0)
    saved_at: float = 0.0
    saving: float = 0.0  # seconds that it took last

    @property
    def updates(self) -> int:
        """In an epoch."""
        return -(-self.data.cases // self.experiment.optim.batch)

    def save(self) -> None:
        if self.saved == (self.epoch, self.update):
            return
        begun = time.perf_counter()
        tally = patches.tally_facts(self.engine.tally()) if self.update else None
        facts = {
            "epoch": self.epoch,
            "update": self.update,
            "tally": tally,
            "lr": self.lr,
            "faults": [vars(self.fault)] if self.fault else [],
            **decided_by(self.experiment, self.experiment.digest(), self.data),
        }
        if self.ranks.first:
            # A net is of no use without the mean of its pictures.
            checkpoint.save(self.path, self.fleet.state() | {"mean": torch.as_tensor(self.fleet.mean)}, facts)
        self.saved, self.saved_at = (self.epoch, self.update), time.perf_counter()
        self.saving = self.saved_at - begun

    @property
    def path(self) -> Path:
        return self.folder.state(self.experiment.net.hidden[0], 1)

    def restore(self) -> None:
        """Take up what was saved; the first rank reads it for all."""
        facts, tensors = None, {}
        if self.ranks.first and checkpoint.exists(self.path):
            tensors, facts = checkpoint.load(self.path)
            check_unchanged(facts, self.experiment, self.experiment.digest(), self.path, self.data)
            for name, tensor in self.fleet.state().items():
                tensor.copy_(tensors[name])
        facts = self.ranks.share(facts)
        if facts is None:
            return
        self.ranks.spread_(list(self.fleet.state().values()))
        self.epoch, self.update, self.lr = facts["epoch"], facts["update"], facts["lr"]
        self.saved = self.epoch, self.update
        self.fault = Fault(**facts["faults"][0]) if facts["faults"] else None
        if facts["tally"] and self.ranks.first:
            self.tally = patches.tally_from(facts["tally"], self.fleet.device)
        place = f", update {self.update:,}" if self.update else ""
        self.options.say(f"{self.name} goes on from epoch {self.epoch} of {self.experiment.optim.epochs}{place}")

    def due(self) -> bool:
        """Whether it is time to save; not so often that saving takes a notable share of the time.

        The first rank decides: it saves, and knows how long that takes.
        """
        wait = max(60 * self.options.save_minutes, SAVING_SHARE * self.saving)
        return self.ranks.first and time.perf_counter() - self.saved_at >= wait


def train(loop: Loop) -> dict[str, Any] | None:
    """All epochs that are left; what the last one's test found, nothing where none was trained, None when stopped."""
    experiment, data, ranks, optim = loop.experiment, loop.data, loop.ranks, loop.experiment.optim
    judged: dict[str, Any] = {}
    if loop.fault:
        return judged
    own = optim.batch // ranks.world
    start = {"epoch": loop.epoch, "update": loop.update}
    with (
        Stream(data.folder, "train", own, loop.workers) as stream,
        pinned(stream.slots, loop.fleet.device),
    ):
        plan = patches.plan(experiment.seeds[0], data.cases, optim.batch, optim.epochs, ranks, **start)
        found = patches.batches(stream, plan)
        while loop.epoch < optim.epochs:
            momentum, rate = _begin(loop)
            begun, first = time.perf_counter(), loop.update
            for update in range(loop.update, loop.updates):
                pixels, targets = next(found)
                loop.engine.take(pixels, targets, _in_batch(loop, update))
                loop.engine.update_()
                loop.update = update + 1
                if loop.update == first + TOLD_AFTER and start == {"epoch": loop.epoch, "update": first}:
                    _tell_pace(loop, TOLD_AFTER * optim.batch / (time.perf_counter() - begun))
                if loop.update % ASK_EVERY == 0 and loop.update < loop.updates and _asked(loop, rate):
                    return None
                if loop.fault:
                    return {}
            tally = loop.engine.tally()
            rounds = (loop.updates - first) * optim.batch / (time.perf_counter() - begun)
            if _failed(loop, tally, rate):
                return {}
            loop.epoch, loop.update, loop.tally = loop.epoch + 1, 0, None
            judged = _record(loop, tally, rate, momentum, rounds) or judged
            if _asked(loop, rate, epoch_ended=True):
                return None
    return judged


def _tell_pace(loop: Loop, rate: float) -> None:
    """Once, since the first epoch may take long: pictures a second, and how long the epochs that are left will take."""
    cases, optim = loop.data.cases, loop.experiment.optim
    left = cases * (optim.epochs - loop.epoch) - loop.update * optim.batch
    each, hours = f"{cases / rate / 60:.1f} min", f"{left / rate / 3600:.1f} h"
    loop.options.say(f"{rate:,.0f} pictures a second: an epoch takes {each}, all that are left {hours}, without tests")


def _failed(loop: Loop, tally: Tally, rate: float, *, collapsed: bool = True) -> bool:
    """Whether the net diverged or collapsed; the last state that was saved, if there is one, is from before that."""
    faults = find_faults(loop.fleet, tally, loop.epoch + 1, [rate], collapsed=collapsed)
    if faults:
        loop.fault = faults[0]
        loop.options.say(outcome.describe_fault(loop.experiment, loop.name, faults[0]))
    return bool(faults)


def _begin(loop: Loop) -> tuple[float, float]:
    optim, lr = loop.experiment.optim, loop.lr
    assert lr is not None
    momentum = schedule.momentum(
        loop.epoch, start=optim.momentum_start, end=optim.momentum_end, ramp=optim.momentum_epochs
    )
    rate = schedule.learning_rate(loop.epoch, start=lr, decay=optim.decay, cuts=optim.cuts)
    first = loop.epoch * loop.updates + loop.update
    loop.engine.begin(first, step_size(optim.rule, rate, momentum), momentum, loop.tally)
    return momentum, rate


def _asked(loop: Loop, rate: float, *, epoch_ended: bool = False) -> bool:
    """Save where it is time to, or where some rank was told to stop; whether the run is to stop."""
    every, ended = loop.options.save_epochs, loop.epoch == loop.experiment.optim.epochs
    due = loop.due() or (epoch_ended and (loop.epoch == 1 or ended))
    due |= epoch_ended and every is not None and loop.epoch - loop.saved[0] >= every
    stop, save = loop.ranks.any(loop.options.stop() and not ended, due)
    if not (stop or save):
        return False
    if not epoch_ended and _failed(loop, loop.engine.tally(), rate, collapsed=False):
        return False  # nothing that is not finite is saved
    loop.save()
    return stop


def _record(loop: Loop, tally: Tally, rate: float, momentum: float, rounds: float) -> dict[str, Any] | None:
    """Test the net where its record is due, and tell how far it is."""
    experiment, data = loop.experiment, loop.data
    epoch = Epoch(
        epoch=loop.epoch,
        train_loss=(tally.loss / data.cases).tolist(),
        train_error=(tally.errors.double() / data.cases).tolist(),
        lr=[rate],
        momentum=momentum,
    )
    judged, means = None, {}
    if loop.epoch == experiment.optim.epochs or loop.epoch % experiment.record_every == 0:
        judged = tenviews.judge(loop.fleet, data, data.judged, np.arange(data.n_test), loop.ranks, loop.workers)
        errors = [judged["errors"] / data.n_test]
        means = outcome.arm_means(experiment, errors, set())
        if loop.ranks.first:
            (line,) = outcome.epoch_records(experiment, loop.name, epoch, errors, set(), loop.seconds())
            line |= {"top5_error": judged["top5_errors"] / data.n_test, "images_per_s": round(rounds, 1)}
            loop.folder.append([line])
    if loop.ranks.first:
        loop.options.progress(Progress(loop.name, epoch, experiment.optim.epochs, means, loop.seconds()))
    return judged


def search_rate(loop: Loop) -> float:
    """The largest power of ten with which some updates reduce the objective on training cases (F.7), below chance.

    A rate that kills a net reduces its objective too where the start was worse than chance. So every layer must be
    active in the last of these updates, and the objective below chance; where no rate takes it there, it is the one
    that reduces it most.
    """
    experiment, data = loop.experiment, loop.data
    given, (seed,), optim = experiment.patches, experiment.seeds, experiment.optim
    assert given is not None
    state = list(loop.fleet.state().values())
    first = [tensor.clone() for tensor in state]
    few = patches.order(seed, 0, data.cases)[:JUDGED_FOR_A_RATE]
    updates = min(given.search, loop.updates)

    def objective() -> float:
        found = tenviews.judge(loop.fleet, data, "train", few, loop.ranks, loop.workers, views=1)
        return -found["log_probability"]

    before, chance = objective(), math.log(len(data.classes))
    fallen: dict[float, float] = {}  # objectives after rates that reduce it

    def learns(rate: float) -> bool:
        step, own = step_size(optim.rule, rate, optim.momentum_start), optim.batch // loop.ranks.world
        loop.engine.begin(0, step, optim.momentum_start)
        with Stream(data.folder, "train", own, loop.workers) as stream:
            plan = patches.plan(seed, data.cases, optim.batch, 1, loop.ranks)
            for update, (pixels, targets) in enumerate(patches.batches(stream, plan)):
                if update == updates:
                    break
                if update == updates - 1:
                    loop.engine.begin(update, step, optim.momentum_start)  # tallied by itself
                loop.engine.take(pixels, targets, _in_batch(loop, update))
                loop.engine.update_()
        after = objective()
        faults = find_faults(loop.fleet, loop.engine.tally(), 1, [rate])
        torch._foreach_copy_(state, first)
        plural, why = "" if updates == 1 else "s", f"; {faults[0].why}" if faults else ""
        found = f"objective {before:.6g} becomes {after:.6g} in {updates} update{plural}{why}"
        loop.options.say(f"learning rate {rate:g}: {found}")
        if after < before and not faults:  # not where it is no number
            fallen[rate] = after
        return rate in fallen and after < chance

    try:
        return largest_rate(learns)
    except NoRateError:
        if fallen:
            return min(fallen, key=lambda rate: fallen[rate])
        raise


def _in_batch(loop: Loop, update: int) -> int:
    """Cases of all ranks in this mini-batch."""
    batch = loop.experiment.optim.batch
    return min(batch, loop.data.cases - update * batch)
