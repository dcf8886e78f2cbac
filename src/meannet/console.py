"""What a person sees of a run: progress, the closing table, and what to do when it was interrupted."""

import argparse
import json
import shlex
import signal
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from meannet import experiment as experiments
from meannet import outcome
from meannet.config import Experiment
from meannet.device import choose
from meannet.experiment import Interrupted, Options, Progress
from meannet.runlog import RunFolder

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def run_and_tell(experiment: Experiment | None, out: Path, options: argparse.Namespace) -> int:
    """Run, or with no experiment resume, and print how it went; returns the exit code."""
    console = Console(stderr=options.json)
    finished = experiment is None and (out / "result.json").exists()
    with catching_signals() as received, following(console) as progress:
        settings = Options(
            device=options.device,
            path=options.path,
            save_minutes=options.save_minutes,
            save_epochs=options.save_epochs,
            command=shlex.join(["meannet", *sys.argv[1:]]),
            say=lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True),
            progress=progress,
            stop=lambda: bool(received),
        )
        try:
            result = (
                experiments.resume(out, settings) if experiment is None else experiments.run(experiment, out, settings)
            )
        except Interrupted:
            console.print(f"stopped; saved. Go on with: meannet run --resume {shlex.quote(str(out))}", highlight=False)
            return 128 + received[0]
    if options.json:
        print(json.dumps(result))
    else:
        if finished:
            console.print(f"{out} had already finished; nothing was run", highlight=False, soft_wrap=True)
        console.print(result_table(result))
        tell_findings(console, result)
    if not finished:
        write_report(console, out)
        following_command = RunFolder.open(out).experiment().next.replace("RUN", shlex.quote(str(out)))
        if following_command:
            console.print(f"next, try: {following_command}", highlight=False, soft_wrap=True)
    return 3 if any(arm["stopped"] for arm in result["arms"]) else 0


def result_table(result: dict[str, Any]) -> Table:
    """Paper beside ours, an arm a row."""
    claims = {claim["arm"]: claim["value"] for claim in result["claims"]}
    held_out = result["data"]["held_out"]
    unit = "errors on held-out cases" if held_out else (result["claim"] or {}).get("unit", "test errors")
    table = Table("net", "arm", box=None, padding=(0, 2, 0, 0), title_justify="left")
    table.title = f"{result['recipe']}: {unit} of {result['data']['n_test']:,} ({result['seconds']:.0f} s)"
    if claims:
        table.add_column("paper", justify="right")
    for name in ("ours, mean ± sd", "n"):
        table.add_column(name, justify="right")
    for arm in result["arms"]:
        ours = (
            "–"
            if arm["mean"] is None
            else f"{arm['mean']:.1f}" + (f" ± {arm['sd']:.1f}" if arm["sd"] is not None else "")
        )
        paper = [f"{claims[arm['name']]:g}" if arm["name"] in claims else ""] if claims else []
        stopped = f" ({len(arm['stopped'])} stopped)" if arm["stopped"] else ""
        table.add_row(arm["net"], arm["name"], *paper, ours, str(len(arm["seeds"])) + stopped)
    return table


def tell_findings(console: Console, result: dict[str, Any]) -> None:
    """Which arms differ from the first one beyond the spread."""
    for found in result["comparisons"]:
        verb = "fewer" if found["difference"] < 0 else "more"
        beyond = "beyond the spread" if found["beyond_spread"] else "within the spread"
        console.print(
            f"{found['net']}: {found['arm']} makes {abs(found['difference']):.1f} {verb} errors than {found['over']}, "
            f"{beyond} (standard error {found['standard_error']:.1f}, {found['n']} seeds)",
            highlight=False,
            soft_wrap=True,
        )
    for arm in result["arms"]:
        for net in arm["stopped"]:
            layer = f", layer {net['layer']}" if net["layer"] else ""
            console.print(
                f"{arm['net']}: {arm['name']}, seed {net['seed']}{layer}, stopped at epoch {net['epoch']} "
                f"with learning rate {net['lr']:.4g}: {net['why']}",
                highlight=False,
                soft_wrap=True,
            )


def write_report(console: Console, out: Path) -> None:
    from meannet import report

    try:
        report.write([out], out / "report.html")
    except ValueError as error:
        console.print(f"no report: {error}", highlight=False, soft_wrap=True)
    else:
        console.print(f"report: {out / 'report.html'}", highlight=False, soft_wrap=True)


@contextmanager
def catching_signals() -> Iterator[list[int]]:
    """Turn signals into a request to save and stop; yields the list of those that came."""
    received: list[int] = []

    def note(number: int, _: types.FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def following(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Show epochs as they come: a bar with time left on a terminal, some twenty lines an architecture elsewhere."""
    if not console.is_terminal:
        yield lambda progress: _line(console, progress)
        return
    bar = Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[errors]}"), console=console)  # fmt: skip
    tasks: dict[str, Any] = {}
    with bar:

        def show(progress: Progress) -> None:
            if progress.net not in tasks:
                tasks[progress.net] = bar.add_task(progress.net, total=progress.epochs, errors="")
            fields = {"errors": _errors(progress)} if progress.test_error else {}
            bar.update(tasks[progress.net], completed=progress.epoch.epoch, **fields)

        yield show


def _line(console: Console, progress: Progress) -> None:
    every = max(1, progress.epochs // 20)
    done = progress.epoch.epoch
    if done % every and done != progress.epochs:
        return
    console.print(
        f"{progress.net} epoch {done}/{progress.epochs} {progress.seconds:.0f} s {_errors(progress)}",
        highlight=False,
        soft_wrap=True,
    )


def _errors(progress: Progress) -> str:
    shown = [f"{arm} {100 * error:.2f} %" for arm, error in progress.test_error.items()]
    return "test error: " + ", ".join(shown[:4]) + (" …" if len(shown) > 4 else "") if shown else ""


def evaluate_and_tell(options: argparse.Namespace) -> int:
    """`meannet eval`: the mean network beside means of sampled networks, averaged over seeds."""
    from meannet import data
    from meannet.evaluate import sample_counts

    sample_counts(options.samples)  # refuse a wrong count before any work
    folder = RunFolder.open(Path(options.run))
    folder.read("result.json")
    experiment = folder.experiment()
    dataset = data.load(experiment.data, say=lambda line: print(line, file=sys.stderr))
    rows = []
    for hidden in experiment.net.hidden:
        fleet = experiments.load_fleet(experiment, folder, hidden, dataset, choose(options.device))
        rows += outcome.sampled_rows(experiment, fleet, hidden, dataset, options.samples)
    document = {"samples": options.samples, "rows": rows}
    folder.write("eval.json", document)
    if options.json:
        print(json.dumps(document))
    else:
        Console().print(sample_table(rows))
    return 0


def sample_table(rows: list[dict[str, Any]]) -> Table:
    """Mean errors over seeds: a column for each number of sampled networks, then the mean network."""
    counts = rows[0]["counts"]
    table = Table("net", "arm", "mean of", box=None, padding=(0, 2, 0, 0), title_justify="left")
    table.title = f"errors of {rows[0]['n_test']:,}, averaged over seeds, by how many sampled networks are combined"
    for name in [*map(str, counts), "mean network"]:
        table.add_column(name, justify="right")
    for net, arm in dict.fromkeys((row["net"], row["arm"]) for row in rows):
        same = [row for row in rows if (row["net"], row["arm"]) == (net, arm)]
        mean_network = sum(row["mean_network"] for row in same) / len(same)
        for kind in ("arithmetic", "geometric"):
            means = [sum(row[kind][i] for row in same) / len(same) for i in range(len(counts))]
            table.add_row(net, arm, kind, *(f"{mean:.1f}" for mean in means), f"{mean_network:.1f}")
    return table


def data_and_tell(options: argparse.Namespace) -> int:
    """`meannet data`: list where everything is, fetch, or verify."""
    from meannet import data

    if options.action == "list":
        return _list_data(options, data.status())
    names = [options.name] if options.name else list(data.NAMES)
    if options.action == "fetch":
        from meannet.data.fetch import fetch

        if not options.name:
            raise ValueError(f"name the data set to fetch; there is {', '.join(data.NAMES)}")
        fetch(options.name, force=options.force, say=lambda line: print(line, file=sys.stderr))
    checked = [(name, *one) for name in names for one in data.check(name)]
    if options.json:
        print(json.dumps({"files": [{"name": n, "path": str(p), "ok": ok, "message": m} for n, p, ok, m in checked]}))
    else:
        for name, path, ok, message in checked:
            print(f"{'ok ' if ok else 'BAD'} {name}: {path}: {message}")
    return 0 if all(ok for _, _, ok, _ in checked) else 1


def _list_data(options: argparse.Namespace, rows: list[Any]) -> int:
    if options.json:
        print(json.dumps({"data": [row._asdict() | {"where": str(row.where)} for row in rows]}))
        return 0
    table = Table("name", "there", "size", "where", "from", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        there = "yes" if row.present else "no"
        table.add_row(row.name, there, f"{row.size / 1e6:.1f} MB" if row.present else "", str(row.where), row.source)
    Console().print(table)
    return 0
