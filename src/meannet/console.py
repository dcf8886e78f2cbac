"""What a person sees of a run: progress, the closing table, and what to do when it was interrupted."""

import argparse
import json
import math
import shlex
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table

from meannet import experiment as experiments
from meannet import outcome, ranks, screen
from meannet.config import Experiment
from meannet.device import choose
from meannet.experiment import Interrupted, Options, Progress
from meannet.pretrain.stack import Done
from meannet.pretrain.stages import Diverged
from meannet.report.tables import unit_of
from meannet.report.written import duration, spread
from meannet.runlog import RunFolder
from meannet.speech import scoring
from meannet.typed import as_typed, resume_command

EXIT_STOPPED_NETS = 3
SAME_WISH = 1.0  # seconds
LONG = 600.0  # seconds, which are worth a word at the start
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def run_and_tell(experiment: Experiment | None, out: Path, options: argparse.Namespace) -> int:
    """Run, or with no experiment resume, and print how it went; returns the exit code."""
    console = screen.lasting(stderr=options.json)
    first = ranks.named().first
    console.quiet = not first  # of several ranks one speaks
    finished = experiment is None and (out / "result.json").exists()
    stop = StopRequest()
    try:
        with stop.catching(), following(console) as progress:
            settings = Options(
                device=options.device,
                path=options.path,
                precision=options.precision,
                save_minutes=options.save_minutes or 0.0,
                save_epochs=options.save_epochs,
                workers=options.workers,
                command=options.command,
                say=console.print,
                progress=progress,
                stop=stop,
            )
            result = experiments.run(experiment, out, settings) if experiment else experiments.resume(out, settings)
    except Interrupted:
        tell_interrupted(console, out, stop.at_once)
        return 128 + stop.received
    except Diverged as error:
        print(f"meannet: {error}", file=sys.stderr)
        return EXIT_STOPPED_NETS
    except OSError as error:
        if not error.filename or not (out / "experiment.json").exists():
            raise
        remedy = f"with that put right, go on with: {resume_command(out)}"
        raise OSError(f"{error.strerror}: {error.filename}; {remedy}") from None
    if not first:
        return 0
    if options.json:
        print(json.dumps(result))
    else:
        if finished:
            console.print(f"{out} had already finished; nothing was run")
        try:
            tell_result(console, result)
        except (KeyError, TypeError, AttributeError) as error:
            if not finished:
                raise
            remedy = "remove it, and resuming writes it anew"
            raise ValueError(f"{out / 'result.json'} is broken ({error!r}); {remedy}") from None
    if finished and (out / "report.html").exists():
        return 0
    write_report(console, out)  # of a finished run too, where it was killed, or the disk was full, before it had one
    if finished:
        return 0
    following_command = RunFolder.open(out).experiment().next.replace("RUN", shlex.quote(str(out)))
    if following_command:
        console.print(f"next, try: {as_typed(following_command)}")
    return EXIT_STOPPED_NETS if any(arm["stopped"] for arm in result["arms"]) else 0


class StopRequest:
    """A signal, taken as the wish to save and stop; a second one, or one with nothing to save yet, stops at once.

    One that follows within a second is the same wish: `timeout` sends its signal twice, to the process and to its
    group, and torchrun passes on what a terminal has sent to all.
    """

    def __init__(self) -> None:
        self.received = 0
        self.training = False
        self.at_once = False  # before a state could be saved for the first one
        self.at = 0.0

    def __call__(self) -> bool:
        """What the training loop asks before each update."""
        self.training = True
        return bool(self.received)

    def note(self, number: int, _: types.FrameType | None) -> None:
        again, now = self.received, time.monotonic()
        if again and now - self.at < SAME_WISH:
            return
        self.received, self.at = again or number, now
        if again or not self.training:
            self.at_once = self.training
            raise Interrupted

    @contextmanager
    def catching(self) -> Iterator["StopRequest"]:
        """Note signals from here on, but for those that were ignored before, as SIGHUP is under nohup."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]
        for number in heeded:
            signal.signal(number, self.note)
        try:
            yield self
        finally:
            for number in heeded:
                signal.signal(number, before[number])


def tell_interrupted(console: Console, out: Path, at_once: bool = False) -> None:
    if at_once and RunFolder(out).began():
        lost = "stopped at once: epochs since the last saved state may be lost"
        console.print(f"{lost}. Go on with: {resume_command(out)}")
    elif RunFolder(out).began():
        console.print(f"stopped; saved. Go on with: {resume_command(out)}")
    elif (out / "experiment.json").exists():
        console.print(f"stopped before the first epoch ended. Begin it again with: {resume_command(out)}")
    else:
        console.print("stopped before training began; nothing was written")


def tell_result(console: Console, result: dict[str, Any]) -> None:
    """Paper beside ours, which arms differ from the first one beyond the spread, and which nets were stopped."""
    held_out = result["data"]["held_out"]
    percent = result["data"].get("percent", False)
    unit = "errors on held-out cases" if held_out and not percent else unit_of(result)
    unit = unit.replace("test", result["data"].get("judged_on", "test"))
    frames = " frames of held-out speakers" if percent and held_out else " test frames" if percent else ""
    judged = f"{unit} {'on' if percent else 'of'} {result['data']['n_test']:,}{frames}"
    console.print(f"{result['recipe']}: {judged} ({result['seconds']:.0f} s)")
    console.print(result_table(result))
    if "phone_comparisons" in result:
        console.print(f"phone errors are of {scoring.SAID}")
    if result["data"].get("made_up"):
        console.print(f"the data is made up: only time and memory count, {result['peak_mib']:,} MiB at most")
    for found in result["comparisons"]:
        kind = f" ({unit})" if percent else ""
        console.print(_compared(found, kind))
    for found in result.get("phone_comparisons", ()):
        console.print(_compared(found, " (% phone errors)"))
    for arm in result["arms"]:
        for beyond in arm["metrics"].get("top5_errors", ()):
            console.print(
                f"{arm['net']}: {arm['name']} has the right label not among its best five for {beyond:,} of them"
            )
        for net in arm["stopped"]:
            layer = f", layer {net['layer']}" if net["layer"] else ""
            console.print(
                f"{arm['net']}: {arm['name']}, seed {net['seed']}{layer}, stopped at epoch {net['epoch']} "
                f"with learning rate {net['lr']:.4g}: {net['why']}"
            )


def _compared(found: dict[str, Any], kind: str) -> str:
    verb = "fewer" if found["difference"] < 0 else "more"
    than = (
        f"{abs(found['difference']):.1f} {verb} errors{kind} than"
        if found["difference"]
        else f"as many errors{kind} as"
    )
    beyond = "beyond the spread" if found["beyond_spread"] else "within the spread"
    return (
        f"{found['net']}: {found['arm']} makes {than} {found['over']}, "
        f"{beyond} (standard error {found['standard_error']:.1f}, {found['n']} seeds)"
    )


def result_table(result: dict[str, Any]) -> Table:
    """An arm a row."""
    claims = {claim["arm"]: claim["value"] for claim in result["claims"]}
    phones = "phone_comparisons" in result
    heads = (*["paper"][: len(claims)], "ours, mean ± sd", *["phone errors, %"][:phones], "n")
    table = screen.table("net", "arm", numbers=heads)
    for arm in result["arms"]:
        ours = "–" if arm["mean"] is None else f"{arm['mean']:.1f}"
        ours += f" ± {arm['sd']:.1f}" if arm["sd"] is not None else ""
        paper = [f"{claims[arm['name']]:g}" if arm["name"] in claims else ""] if claims else []
        stopped = f" ({len(arm['stopped'])} stopped)" if arm["stopped"] else ""
        heard = [spread(*outcome.spread(arm["metrics"]["phone_error_rate"]).values())] if phones else []
        table.add_row(arm["net"], arm["name"], *paper, ours, *heard, str(len(arm["seeds"])) + stopped)
    return table


def write_report(console: Console, out: Path) -> None:
    from meannet import report

    try:
        with RunFolder(out).locked():
            report.write([out], out / "report.html")
    except ValueError as error:
        console.print(f"no report: {error}")
    except OSError as error:
        if not error.filename:
            raise
        remedy = f"the run is done; with that put right, its page is written by: {resume_command(out)}"
        raise OSError(f"{error.strerror}: {error.filename}; {remedy}") from None
    else:
        console.print(f"report: {out / 'report.html'}")


@contextmanager
def following(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Show epochs as they come: some twenty lines an architecture and, on a terminal, a bar with the time left."""
    lines = _Lines(console)
    if not console.is_terminal:
        yield lines.show
        return
    whole = Column(no_wrap=True)
    columns = (BarColumn(table_column=whole), MofNCompleteColumn(table_column=whole), TimeRemainingColumn())
    bar = Bar(TextColumn("{task.description}", markup=False), *columns, console=console)
    tasks: dict[str, Any] = {}

    def show(progress: Progress) -> None:
        lines.show(progress)
        if progress.net not in tasks:
            tasks[progress.net] = bar.add_task(progress.net, total=progress.epochs)
        bar.update(tasks[progress.net], completed=progress.epoch.epoch)

    bar.start()
    try:
        yield show
    finally:
        bar.stop()


class _Lines:
    """A line every twentieth of the epochs, where errors were counted."""

    def __init__(self, console: Console):
        self.console = console
        self.last = ("", 0)
        self.timed: dict[str, float] = {}  # seconds at the end of the first epoch seen, by net

    def show(self, progress: Progress) -> None:
        done = progress.epoch.epoch
        self._foretell(progress, done)
        since = done - self.last[1] if self.last[0] == progress.net else done
        shown = _figures(progress)
        if not shown or (since < progress.epochs // 20 and done < progress.epochs):
            return
        self.last = (progress.net, done)
        self.console.print(f"{progress.net} epoch {done}/{progress.epochs}, {progress.seconds:.0f} s, {shown}")

    def _foretell(self, progress: Progress, done: int) -> None:
        """After the second epoch, how long all of them will take, where that is long."""
        if progress.net not in self.timed:
            self.timed[progress.net] = progress.seconds
        elif self.timed[progress.net] is not math.inf:
            left = (progress.seconds - self.timed[progress.net]) * (progress.epochs - done)
            self.timed[progress.net] = math.inf
            if left > LONG:
                self.console.print(
                    f"{progress.net}: some {duration(left)} for the other {progress.epochs - done:,} epochs"
                )


def _figures(progress: Progress) -> str:
    """Errors where they were counted, or the figure of an epoch of pretraining, averaged over seeds."""
    if isinstance(progress.epoch, Done):
        values = progress.epoch.values
        return f"{progress.epoch.figure}: {sum(values) / len(values):.4g}"
    errors = [f"{arm} {100 * error:.2f} %" for arm, error in progress.test_error.items()]
    return f"errors: {', '.join(errors[:4])}{' …' if len(errors) > 4 else ''}" if errors else ""


def evaluate_and_tell(options: argparse.Namespace) -> int:
    """`meannet eval`: the mean network beside means of sampled networks, averaged over seeds."""
    from meannet.evaluate import sample_counts

    sample_counts(options.samples)  # refuse a wrong count before any work
    where = choose(options.device)
    folder = RunFolder.open(Path(options.run))
    rows = experiments.evaluate(folder, options.samples, where, screen.console(stderr=True).print)
    if not rows:
        raise RuntimeError(f"every net of {folder.path} was stopped; there is nothing to evaluate")
    document = experiments.evaluation(folder.experiment(), options.samples, rows, where)
    if options.json:
        print(json.dumps(document))
    else:
        console = screen.console()
        console.print(
            f"errors of {rows[0]['n_test']:,}, averaged over seeds, by how many sampled networks are combined"
        )
        console.print(sample_table(rows))
    folder.write("eval.json", document)  # after it was shown: the folder may not be one's own
    return 0


def sample_table(rows: list[dict[str, Any]]) -> Table:
    """Mean errors over seeds: a column for each number of sampled networks, then the mean network."""
    counts = rows[0]["counts"]
    table = screen.table("net", "arm", "mean of", numbers=(*map(str, counts), "mean network"))
    for net, arm in dict.fromkeys((row["net"], row["arm"]) for row in rows):
        same = [row for row in rows if (row["net"], row["arm"]) == (net, arm)]
        mean_network = sum(row["mean_network"] for row in same) / len(same)
        for kind in ("arithmetic", "geometric"):
            means = [sum(row[kind][i] for row in same) / len(same) for i in range(len(counts))]
            table.add_row(net, arm, kind, *(f"{mean:.1f}" for mean in means), f"{mean_network:.1f}")
    return table
