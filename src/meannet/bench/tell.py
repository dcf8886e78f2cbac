"""What a person sees of `meannet bench`: who was how fast, beside PyTorch as most people write it."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from meannet import device, screen
from meannet.atomic import write_atomically
from meannet.bench import beside, comparison, growth, pretraining, speeds, work
from meannet.bench.comparison import LESS, describe
from meannet.bench.speeds import microseconds


def bench_and_tell(options: argparse.Namespace) -> int:
    """Measure what was asked for and print it; returns the exit code."""
    kinds = {
        "scaling": tell_scaling,
        "neighbour": tell_neighbour,
        "overhead": tell_overhead,
        "tables": tell_tables,
        "choose": tell_choice,
        "pretrain": tell_pretraining,
        "images": tell_images,
        "imagenet": tell_imagenet,
        "loader": tell_loader,
        "ranks": tell_ranks,
        "speech": tell_speech,
    }
    asked = [kind for kind in kinds if getattr(options, kind)]
    if len(asked) > 1:
        raise ValueError(f"one at a time: --{' or --'.join(asked)}")
    if options.out and asked != ["scaling"]:
        raise ValueError("-o is where --scaling draws its curves; ask for --scaling too")
    if options.out and not options.out.endswith(".svg"):
        raise ValueError(f"-o takes the name of an .svg file, not {options.out!r}")
    if options.out and not Path(options.out).parent.is_dir():
        raise ValueError(f"there is no folder {Path(options.out).parent} to write the curves into; make it first")
    where = device.choose(options.device)
    console = screen.console(stderr=options.json)
    began = time.perf_counter()
    document = kinds[asked[0]](console, where, options) if asked else tell_comparison(console, where)
    if options.json:
        made = {"date": time.strftime("%Y-%m-%d"), "commit": device.commit(), "versions": device.versions()}
        print(json.dumps(made | document | {"seconds": round(time.perf_counter() - began, 1)}, indent=1))
    return 0


def tell_comparison(console: Console, where: Any) -> dict[str, Any]:
    document = comparison.compare(where, console.print)
    console.print(comparison_table(document["rows"]))
    console.print("medians ± interquartile range; ratios are to torch-eager with the same units")
    return document


def comparison_table(rows: list[dict[str, Any]]) -> Table:
    table = screen.table("who", "units", numbers=("updates/s", "µs", "ratio", "threads", "repeats"))
    for row in rows:
        who = speeds.participant(row) + (f" ({LESS[row['who']]})" if row["who"] in LESS else "")
        speed = row["updates_per_s"]
        table.add_row(
            who,
            row["units"],
            f"{speed:.1f} ± {row['spread']:.1f}",
            microseconds(speed),
            "–" if row["ratio"] is None else f"{row['ratio']:.2f}",
            str(row["threads"]),
            str(row["repeats"]),
        )
    return table


def tell_scaling(console: Console, where: Any, options: argparse.Namespace) -> dict[str, Any]:
    machine = describe(where)
    console.print(machine)
    if options.out:
        import_picture()
    found = growth.measure(where, console.print)
    table = screen.table(
        "varied", numbers=("value", "ms an update", "ms a net", "MiB at most", "of parts", "at the start")
    )
    for point in found:
        nets = point.value if point.varied == "nets" else 1
        table.add_row(
            point.varied,
            str(point.value),
            f"{point.milliseconds:.2f}",
            f"{point.milliseconds / nets:.2f}",
            f"{point.peak:,.0f}",
            f"{point.parts:,.0f}",
            f"{point.peak_start:,.0f}",
        )
    console.print(table)
    most = max((point.grown for point in found), default=0.0)
    console.print(f"from the second repeat to the last, memory grew by {most:.1f} MiB at most")
    if options.out:
        write_atomically(Path(options.out), growth.picture(found, machine).encode())
        console.print(f"wrote {options.out}")
    return {"device": machine, "data": data_name(), "scaling": growth.to_json(found)}


def import_picture() -> None:
    """Refuse before minutes of work where nothing can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError("-o needs matplotlib: pip install 'meannet[report]'") from None


def tell_neighbour(console: Console, where: Any, options: argparse.Namespace) -> dict[str, Any]:
    if where.type != "cpu":
        raise ValueError("--neighbour is about CPUs; use --device cpu")
    console.print(describe(where))
    found = beside.neighbour(console.print)
    table = screen.table("who", numbers=("updates/s alone", "with a busy neighbour", "times slower", "repeats"))
    for row in found["neighbour"]:
        table.add_row(
            speeds.participant(row),
            f"{row['alone']:.1f} ± {row['alone_spread']:.1f}",
            f"{row['beside']:.1f} ± {row['beside_spread']:.1f}",
            f"{row['times_slower']:.2f}",
            str(row["repeats"]),
        )
    console.print(table)
    return {"device": describe(where), "data": data_name(), **found}


def tell_overhead(console: Console, where: Any, options: argparse.Namespace) -> dict[str, Any]:
    console.print(describe(where))
    rows = beside.prediction(where)
    table = screen.table("cases at once", numbers=(*speeds.PREDICTORS.values(), speeds.FASTER))
    for row in rows:
        each = (f"{row[who]['ms']:.3f} ± {row[who]['spread']:.3f}" for who in speeds.PREDICTORS)
        table.add_row(str(row["batch"]), *each, f"{row['times_faster']:.2f}")
    console.print(table)
    document: dict[str, Any] = {"device": describe(where), "data": data_name(), "prediction": rows}
    if data_name() != "mnist":
        console.print("what a run costs beside its updates is measured on MNIST, which is not in the data folder")
        return document
    found = beside.overhead(where.type)
    console.print(
        f"a run of {found['epochs']} epochs: {found['updates_s']} s of updates, {found['tests_s']} s of tests; "
        f"{found['between_s']} s ({found['between_percent']} %) between epochs for records and saved states; "
        f"{found['before_s']} s before the first epoch and {found['after_s']} s after the last"
    )
    return document | {"overhead": found}


def tell_tables(console: Console, where: Any, options: argparse.Namespace) -> dict[str, Any]:
    from meannet.bench import tables

    document = tables.compare(console.print)
    _tell_standings(console, document, [arm.name for arm in tables.ARMS])
    return document


def tell_choice(console: Console, where: Any, options: argparse.Namespace) -> dict[str, Any]:
    from meannet.bench import keel, tables

    document = tables.compare(console.print, arms=tables.CANDIDATES, tables=keel.chosen_on(), repeats=1)
    _tell_standings(console, document, [arm.name for arm in tables.CANDIDATES])
    return document


def _tell_standings(console: Console, document: dict[str, Any], names: list[str]) -> None:
    from meannet.bench import standing

    table = screen.table("who", numbers=("mean rank", "wins", "error", "log loss", "median fit, s"))
    for one in standing.standings(document, names):
        table.add_row(
            one.name, f"{one.rank:.2f}", str(one.wins), f"{one.error:.2%}", f"{one.log_loss:.3f}", f"{one.seconds:.2f}"
        )
    console.print(table)
    critical = standing.critical_difference(len(names), len(document["sets"]))
    console.print(f"ranks that differ by less than {critical:.2f} could do so by chance")


def tell_pretraining(console: Console, where: Any, options: argparse.Namespace) -> dict[str, Any]:
    document = pretraining.compare(where, console.print)
    table = screen.table("who", numbers=("updates/s", "epochs/s", "ratio", "threads", "repeats"))
    first = document["rows"][0]["updates_per_s"] if document["rows"] else 1.0
    for row in document["rows"]:
        table.add_row(
            row["who"]
            + (f", {row['nets']} nets" if row["nets"] > 1 else "")
            + (f" ({row['note']})" if row["note"] else ""),
            f"{row['updates_per_s']:.1f} ± {row['spread']:.1f}",
            f"{row['epochs_per_s']:.3f}",
            f"{first / row['updates_per_s']:.2f}",
            str(row["threads"]),
            str(row["repeats"]),
        )
    console.print(table)
    console.print(
        "medians ± interquartile range; an epoch is 60,000 cases; the ratio says how much faster the first is"
    )
    return document


def data_name() -> str:
    return work.cases(1)[1]


def tell_images(console: Console, where: Any, _: argparse.Namespace) -> dict[str, Any]:
    from meannet.bench import images

    machine = describe(where)
    console.print(machine)
    rows = images.measure(where, console.print)
    table = screen.table("who", "net", numbers=("nets", "updates/s of all", "images/s", "µs a net's update", "repeats"))
    for row in rows:
        speed = f"{row['updates_per_s']:.1f} ± {row['spread']:.1f}"
        each = f"{1e6 / row['updates_per_s']:,.0f}"
        who = f"{row['who']} {row['path']}".strip()
        table.add_row(
            who, row["net"], str(row["nets"]), speed, f"{row['images_per_s']:,.0f}", each, str(row["repeats"])
        )
    console.print(table)
    return {"device": machine, "rows": rows}


def tell_imagenet(console: Console, where: Any, _: argparse.Namespace) -> dict[str, Any]:
    from meannet.bench import imagenet

    console.print(describe(where))
    found = imagenet.measure(where, console.print)
    table = screen.table("who", "net", numbers=("batch", "ms an update", "images/s", "repeats"))
    for row in found["rows"]:
        who, each = f"{row['who']} {row['how']}".strip(), f"{row['ms_per_update']:.2f} ± {row['spread']:.2f}"
        table.add_row(who, row["net"], str(row["batch"]), each, f"{row['images_per_s']:,.0f}", str(row["repeats"]))
    console.print(table)
    for net, hours in found["hours"].items():
        console.print(f"{net}: {found['epochs']} epochs of {found['cases']:,} pictures at this speed: {hours:.1f} h")
    for one in found["ten_views_ms"]:
        console.print(f"ten views of one picture, {one['how']}: {one['median']:.2f} ± {one['spread']:.2f} ms")
    return found


def tell_loader(console: Console, where: Any, _: argparse.Namespace) -> dict[str, Any]:
    from meannet.bench import loader

    found = loader.measure(console.print)
    console.print(f"{found['device']}, {found['cores']} cores")
    one = found["prepare"]
    console.print(f"preparing: {one['images_per_s_a_core']:.0f} ± {one['spread']:.0f} pictures a second and core")
    table = screen.table("workers", numbers=("pictures/s", "repeats"))
    for row in found["loader"]:
        table.add_row(str(row["workers"]), f"{row['images_per_s']:,.0f} ± {row['spread']:,.0f}", str(row["repeats"]))
    console.print(table)
    return found


def tell_ranks(console: Console, where: Any, _: argparse.Namespace) -> dict[str, Any]:
    from meannet.bench import ranks

    found = ranks.measure(console.print)
    console.print(f"{found['device']}, {found['cores']} cores, {found['batch_a_rank']} pictures a rank")
    table = screen.table("ranks", numbers=("ms an update", "without exchange", "exchange alone", "repeats"))
    for row in found["rows"]:
        each = [f"{row[f'{way}_ms']:.1f} ± {row[f'{way}_spread']:.1f}" for way in ranks.WAYS]
        table.add_row(str(row["ranks"]), *each, str(row["repeats"]))
    console.print(table)
    return found


def tell_speech(console: Console, where: Any, _: argparse.Namespace) -> dict[str, Any]:
    from meannet.bench import decoding, features

    machine = describe(where)
    console.print(machine)
    banks = features.measure(where, console.print)
    table = screen.table("who", numbers=("frames/s", "threads", "repeats"))
    for row in banks["rows"]:
        speed = f"{row['frames_per_s']:,} ± {row['spread']:,}"
        table.add_row(row["who"], speed, str(row["threads"]), str(row["repeats"]))
    console.print(table)
    rows = decoding.measure(where, console.print)
    table = screen.table("what", numbers=("real-time factor", "times faster than speech", "repeats"))
    for row in rows:
        factor = f"{row['real_time_factor']:.2g} ± {row['spread']:.1g}"
        table.add_row(row["what"], factor, f"{row['times_faster']:,.0f}", str(row["repeats"]))
    console.print(table)
    console.print("medians ± interquartile range; probabilities and weights are made up")
    return {"device": machine, "features": banks, "decoding": rows}
