"""What `meannet data` tells: where each data set is, what became of fetching, checking and preparing it."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from meannet import data, screen
from meannet.data import Checked


def data_and_tell(options: argparse.Namespace) -> int:
    """`meannet data`: list where everything is, fetch, or verify."""
    if options.action == "list":
        if options.name is not None:
            raise ValueError(f"`meannet data list` lists all; `meannet data check {options.name}` is about one")
        return _list_data(options, data.status())
    if options.action == "prepare":
        return _prepare(options)
    if options.action == "check" and options.name == "recordings" and options.source and options.workers is None:
        from meannet.data import corpus

        return _tell_checked(options, [("recordings", one) for one in corpus.check(Path(options.source).expanduser())])
    if options.source is not None or options.workers is not None:
        raise ValueError(f"{'--workers' if options.source is None else options.source!r} is for `meannet data prepare`")
    names = [options.name] if options.name else list(data.NAMES)
    if options.action == "fetch":
        from meannet.data.fetch import fetch

        if not options.name:
            raise ValueError(f"name the data set to fetch; there is {', '.join(data.NAMES)}")
        fetch(options.name, force=options.force, say=screen.console(stderr=True).print)
    return _tell_checked(options, [(name, one) for name in names for one in data.check(name)])


def _tell_checked(options: argparse.Namespace, checked: Sequence[tuple[str, Checked]]) -> int:
    if options.json:
        files = [{"name": n, "path": str(one.path), "ok": one.ok, "message": one.message} for n, one in checked]
        print(json.dumps({"files": files}))
    else:
        for name, one in checked:
            print(f"{'ok ' if one.ok else 'BAD'} {name}: {one.path}: {one.message}")
    return 0 if all(one.ok for _, one in checked) else 1


def _prepare(options: argparse.Namespace) -> int:
    """`meannet data prepare imagenet SRC`: a line for every twentieth of the shards, or a bar on a terminal."""
    from meannet.data import imagenet

    if options.name != imagenet.NAME:
        what = f", not {options.name!r}" if options.name else ""
        raise ValueError(f"only {imagenet.NAME} is prepared{what}: meannet data prepare imagenet SRC")
    if options.source is None:
        raise ValueError("name the folder with the raw pictures: meannet data prepare imagenet SRC")
    if options.force:
        raise ValueError("--force is for `meannet data fetch`; remove shards that are to be prepared anew")
    console = screen.console(stderr=True)
    last = 0

    def show(progress: imagenet.Progress) -> None:
        nonlocal last
        if progress.done - last >= progress.shards / 20 or progress.done == progress.shards:
            last = progress.done
            left = f", {progress.left / 60:.0f} min left" if progress.pictures < progress.of else ""
            console.print(f"{progress.pictures:,} of {progress.of:,} pictures, {progress.rate:,.0f} a second{left}")

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]:,.0f}/s"), TimeRemainingColumn())
    bar = Bar(*columns, console=console, speed_estimate_period=600, disable=not console.is_terminal)
    task = bar.add_task("", total=None, rate=0.0)

    def move(one: imagenet.Progress) -> None:
        bar.update(task, total=one.of, completed=one.pictures, rate=one.rate)

    following = move if console.is_terminal else show
    try:
        with bar:
            document = imagenet.prepare(
                Path(options.source), workers=options.workers, say=console.print, progress=following
            )
    except KeyboardInterrupt:
        console.print("stopped; whole shards stay. Go on with the same command")
        raise
    if options.json:
        print(json.dumps(document))
        return 0
    print(f"{imagenet.where()}: {len(document['classes']):,} classes")
    for part, about in document["parts"].items():
        counts = ", ".join(f"{count:,} {kind}" for kind, count in about["counts"].items() if kind != "pictures")
        print(f"{part}: {about['cases']:,} cases in {len(about['shards']):,} shards ({counts})")
        for line in about["corrupt"]:
            print(f"left out of {part}: {line}")
    return 0


def _list_data(options: argparse.Namespace, rows: list[Any]) -> int:
    if options.json:
        print(json.dumps({"data": [row._asdict() | {"where": str(row.where)} for row in rows]}))
        return 0
    table = screen.table("name", "there", "size", "where", "from")
    for row in rows:
        there = "yes" if row.present else "no"
        table.add_row(row.name, there, f"{row.size / 1e6:.1f} MB" if row.present else "", str(row.where), row.source)
    screen.console().print(table)
    return 0
