"""What else speed is about: a busy neighbour, what a run costs beside its updates, and how fast the mean network is."""

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meannet import config, fast, recipes
from meannet.bench import work
from meannet.bench.comparison import Row, spread
from meannet.bench.images import timed
from meannet.bench.participants import taking_part
from meannet.bench.work import Settings
from meannet.train import Engine, Tally

REPEATS = 15
CORES = 2
FLEET = 4  # nets that a run trains side by side: seeds and arms
EPOCHS = 60  # about a minute on two cores, so that a state is saved in between


def neighbour(
    say: Callable[[str], None], plans: dict[str, Sequence[Settings]] | None = None, repeats: int = REPEATS
) -> dict[str, Any]:
    """Updates a second on two cores, alone and with one busy process on the same two, in turns."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < CORES:
        raise ValueError("--neighbour needs two cores, and a system that lets processes choose them")
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    usual = Settings(updates=50)
    skipping = replace(usual, path="fast")
    ours = [replace(skipping, updates=200), replace(skipping, nets=FLEET), replace(usual, path="plain")]
    plans = plans or {"meannet": ours, "torch-eager": [usual], "jax-scan": [usual]}
    every = [row for rows in plans.values() for row in rows]
    learn, _ = work.cases(max(row.updates * row.batch for row in every))
    with tempfile.TemporaryDirectory() as folder:
        work.write(Path(folder), learn, {every[0].units: work.begun(replace(every[0], path="auto"), learn)})
        with taking_part(plans, Path(folder), cores) as everyone:
            rows = [[Row(who, number), Row(who, number)] for who in everyone for number in range(len(who.rows))]
            for turn in range(repeats):
                say(f"repeat {turn + 1} of {repeats}")
                for alone, _ in rows:
                    alone.measure()
                with _busy(cores):
                    for _, beside in rows:
                        beside.measure()
    left_out = [{"who": alone.name, "why": alone.failed} for alone, _ in rows if alone.failed]
    for one in left_out:
        say(f"left out: {one['who']}: {one['why']}")
    return {
        "neighbour": [_loss(alone, beside) for alone, beside in rows if not alone.failed],
        "left_out": left_out,
    }


def _loss(alone: Row, beside: Row) -> dict[str, Any]:
    by_itself, with_it = statistics.median(alone.speeds), statistics.median(beside.speeds)
    return {
        "who": alone.who.who,
        "path": alone.settings.path if alone.who.who == "meannet" else "",
        "nets": alone.settings.nets,
        "alone": round(by_itself, 1),
        "alone_spread": round(spread(alone.speeds), 1),
        "beside": round(with_it, 1),
        "beside_spread": round(spread(beside.speeds), 1),
        "times_slower": round(by_itself / with_it, 2),
        "repeats": len(beside.speeds),
    }


@contextlib.contextmanager
def _busy(cores: Sequence[int]) -> Iterator[None]:
    lines = ("import os", f"os.sched_setaffinity(0, {set(cores)})", f"while os.getppid() == {os.getpid()}:")
    program = "\n".join((*lines, "    for _ in range(10**6): pass"))  # until whoever started it is gone
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        time.sleep(0.3)
        yield
    finally:
        process.kill()
        process.wait()


class _Clocked:
    """An engine that notes when each of its epochs began and ended."""

    def __init__(self, engine: Engine):
        self.engine, self.name, self.precision = engine, engine.name, engine.precision
        self.times: list[tuple[float, float]] = []

    def epoch(self, epoch: int, step: Sequence[float], momentum: float, stop: Callable[[], bool]) -> Tally | None:
        began = time.perf_counter()
        tally = self.engine.epoch(epoch, step, momentum, stop)
        if tally is not None and torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append((began, time.perf_counter()))
        return tally


def overhead(where: str, experiment: config.Experiment | None = None) -> dict[str, Any]:
    """What `meannet run` takes beside updates and tests: before, between and after epochs; states a minute apart."""
    from meannet import cli, outcome

    full = recipes.get("mnist.a1_relu")
    experiment = experiment or replace(
        full,
        net=replace(full.net, hidden=((1200, 1200),)),
        optim=replace(full.optim, epochs=EPOCHS),
        arms=full.arms[-1:],
        seeds=(0,),
        samples=0,
    )
    clocked: list[_Clocked] = []
    tests: list[tuple[float, float]] = []
    chosen, judged = fast.engine, outcome.judged

    def engine(*arguments: Any, **named: Any) -> _Clocked:
        clocked.append(_Clocked(chosen(*arguments, **named)))
        return clocked[-1]

    def test(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = judged(*arguments, **named)
        tests.append((began, time.perf_counter()))
        return found

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "experiment.json"
        path.write_text(json.dumps(config.to_json(experiment)))
        began = time.perf_counter()
        fast.engine, outcome.judged = engine, test  # the one place that decides is the one place to look on
        try:
            code = cli.main(["run", str(path), "--device", where, "--out", str(Path(folder) / "run")])
        finally:
            fast.engine, outcome.judged = chosen, judged
        ended = time.perf_counter()
    if code:
        raise RuntimeError(f"the run to be measured ended with {code}")
    times = clocked[0].times
    updating = sum(end - start for start, end in times)
    testing = sum(end - start for start, end in tests if end < times[-1][0])
    between = times[-1][1] - times[0][0] - updating - testing
    return {
        "epochs": len(times),
        "updates_s": round(updating, 2),
        "tests_s": round(testing, 3),
        "between_s": round(between, 3),
        "between_percent": round(100 * between / updating, 2),
        "before_s": round(times[0][0] - began + _starting(), 2),
        "after_s": round(ended - times[-1][1], 2),
    }


def _starting() -> float:
    """Seconds that a new process takes until the command can begin."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import meannet.console, meannet.data.mnist"], check=True)
    return time.perf_counter() - began


def prediction(
    where: torch.device,
    sizes: Sequence[int] = work.SIZES,
    batches: Sequence[int] = (1, 100, 10_000),
    seconds: float = 1.0,
) -> list[dict[str, Any]]:
    """Milliseconds for the mean network's outputs, beside the same net in plain PyTorch, in turns.

    And for `DropoutClassifier.predict_proba` of a net of that size, from a NumPy array in float32 to another.
    """
    from meannet.nn import dense

    fleet = work.fresh(Settings(sizes=tuple(sizes), device=where.type))
    plain, classifier = _plain(fleet), _classifier(sizes, where)
    found = []
    for batch in batches:
        inputs = torch.rand(batch, sizes[0], device=where)
        table = inputs.cpu().numpy()
        every: dict[str, Callable[[], Any]] = {
            "meannet": lambda inputs=inputs: dense.mean_network(fleet, inputs[None]),
            "estimator": lambda table=table: classifier.predict_proba(table),
            "torch": lambda inputs=inputs: plain(inputs),
        }
        times: dict[str, list[float]] = {who: [] for who in every}
        with torch.inference_mode():
            torch.testing.assert_close(every["meannet"]()[0], every["torch"](), rtol=1e-4, atol=1e-5)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until or len(times["torch"]) < 5:
                for who, predict in every.items():
                    times[who].append(1000 * timed(predict, where))
        row = {who: {"ms": round(statistics.median(t), 4), "spread": round(spread(t), 4)} for who, t in times.items()}
        found.append({"batch": batch, **row, "times_faster": round(row["torch"]["ms"] / row["meannet"]["ms"], 2)})
    return found


def _classifier(sizes: Sequence[int], where: torch.device) -> Any:
    from meannet import DropoutClassifier

    cases = 2 * sizes[-1]
    inputs, labels = np.random.default_rng(0).random((cases, sizes[0])), np.arange(cases) % sizes[-1]
    return DropoutClassifier(tuple(sizes[1:-1]), epochs=1, random_state=0, device=where.type).fit(inputs, labels)


def _plain(fleet: Any) -> torch.nn.Sequential:
    """The mean network of a fleet's only net as people would write it, its weights scaled once."""
    layers: list[torch.nn.Module] = []
    for weight, bias, rate in zip(fleet.weights, fleet.biases, fleet.rates, strict=True):
        linear = torch.nn.Linear(weight.shape[2], weight.shape[1], device=weight.device)
        linear.weight.data.copy_(weight[0] * (1 - rate[0].to(weight.dtype) if rate is not None else 1))
        linear.bias.data.copy_(bias[0])
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).eval()
