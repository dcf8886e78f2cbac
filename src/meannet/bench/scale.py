"""A cost model of training H's net on several GPUs, and what docs/scale.md says of it.

One update of n GPUs takes what one GPU's share of the mini-batch takes, and that part of the exchange of gradients
which does not hide behind it. Measured are updates on one GPU, the loader and, on ranks of one CPU, the model itself.
How fast GPUs exchange is assumed, and all that follows from it is a prediction.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meannet.kept import markdown_table

GPUS = (1, 2, 4, 8, 16, 32, 64)
NODE = 8  # GPUs of a machine
CORES = 16  # beside each GPU, assumed
PICTURES = 90 * 1_300_000  # of all epochs
INSIDE, ACROSS = 300e9, 40e9  # bytes/s, one way and GPU, that exchanges reach: of 450e9 (NVLink 4) and 50e9 (400 Gb/s)
BACKWARD = 2 / 3  # share of an update behind which an exchange can hide
NEAR = 0.2  # how close a prediction should be to what was measured
NET = "H with dropout"
NONE_YET = "No bench is kept yet."
ONE_SIZE = "No update with another size of mini-batch is kept, so what smaller shares would take is not known."


def around(members: int) -> float:
    """How many times all gradients each member of a ring sends until every one has their sum."""
    return 2 * (members - 1) / members


@dataclass(frozen=True)
class Cost:
    """What is known of one GPU: milliseconds of an update, fixed and for each picture; gradients; pictures a second."""

    fixed: float | None  # None where one size of mini-batch was measured; all of its time is then counted by pictures
    picture: float
    gradient_bytes: int
    core: float  # pictures a second that a core decodes; infinite where it was not measured

    @classmethod
    def measured(cls, training: dict[str, Any], loader: dict[str, Any] | None) -> "Cost":
        """From updates with two sizes of mini-batch, and from the loader with as many workers as there were cores."""
        times = sorted((row["batch"], row["ms_per_update"]) for row in training["rows"] if _ours(row))
        (small, less), (large, more) = times[0], times[-1]
        gradients = 4 * training["parameters"][NET]
        workers = max(loader["loader"], key=lambda row: row["workers"]) if loader else None
        rate = workers["images_per_s"] / workers["workers"] if workers else math.inf
        if small == large:
            return cls(None, more / large, gradients, rate)
        picture = (more - less) / (large - small)
        return cls(max(0.0, more - large * picture), picture, gradients, rate)

    @property
    def loader(self) -> float:
        """Pictures a second beside one GPU."""
        return CORES * self.core

    def compute(self, pictures: float) -> float:
        """Milliseconds of one GPU's share of an update."""
        return (self.fixed or 0.0) + self.picture * pictures

    def exchange(self, gpus: int) -> float:
        """Milliseconds: around each machine, and then each GPU's part of the sum around the machines."""
        inside, nodes = min(gpus, NODE), -(-gpus // NODE)
        within = around(inside) * self.gradient_bytes / INSIDE
        across = around(nodes) * self.gradient_bytes / inside / ACROSS
        return 1000 * (within + across)

    def speeds(self, gpus: int, pictures: float) -> tuple[float, float]:
        """Pictures a second of all GPUs with so many each: with the exchange in full, and hidden where it can be."""
        compute, exchange = self.compute(pictures), self.exchange(gpus)
        slow, fast = compute + exchange, compute + max(0.0, exchange - BACKWARD * compute)
        most = gpus * self.loader
        low, high = (min(most, 1000 * gpus * pictures / each) for each in (slow, fast))
        return low, high


@dataclass(frozen=True)
class Checked:
    """Ranks of one CPU: milliseconds of an update as measured, and as the model has it."""

    ranks: int
    measured: float
    predicted: float
    fitted: bool  # whether the model was given this one

    @property
    def off(self) -> float:
        return self.predicted / self.measured - 1


def check(document: dict[str, Any]) -> list[Checked]:
    """One rank's update, and a ring that takes as long as two ranks show."""
    measured = {row["ranks"]: row["together_ms"] for row in document["rows"]}
    alone = measured[1]
    ring = max(0.0, measured.get(2, alone) - alone) / around(2)
    return [Checked(n, took, alone + ring * around(n), n <= 2) for n, took in sorted(measured.items())]


def blocks(kept: dict[str, dict[str, Any] | None]) -> dict[str, Callable[[], str]]:
    """What stands between the markers of docs/scale.md; `kept` has training, loader and ranks."""
    training, loader, ranks = (kept.get(name) for name in ("training", "loader", "ranks"))
    cost = Cost.measured(training, loader) if training and any(map(_ours, training["rows"])) else None

    return {
        "training": lambda: _training(training) if training else NONE_YET,
        "loader": lambda: _loader(loader) if loader else NONE_YET,
        "rank-check": lambda: _check_table(ranks) if ranks else NONE_YET,
        "shared": lambda: _predictions(cost, shared=True) if cost and cost.fixed is not None else ONE_SIZE,
        "each": lambda: _predictions(cost, shared=False) if cost else NONE_YET,
        "model": lambda: _model(cost) if cost else NONE_YET,
    }


def _ours(row: dict[str, Any]) -> bool:
    return (row["who"], row["how"], row["net"]) == ("meannet", "fast", NET)


def _training(document: dict[str, Any]) -> str:
    rows = [
        (
            f"{row['who']} {row['how']}".strip(),
            row["net"],
            str(row["batch"]),
            f"{row['ms_per_update']:.2f} ± {row['spread']:.2f}",
            _whole(row["images_per_s"]),
        )
        for row in document["rows"]
    ]
    table = markdown_table(("who", "net", "mini-batch", "ms an update", "pictures/s"), rows, right=(2, 3, 4))
    size, epochs = document["picture"], document["epochs"]
    said = [
        f"{document['device']}, torch {document['versions']['torch']}, {document['date']}; random {size} x {size} "
        f"pictures that lie on the GPU. Medians ± interquartile range of {document['rows'][0]['repeats']} repeats."
    ]
    said += [
        f"{net}: {epochs} epochs of {_whole(document['cases'])} pictures at this speed take {hours:.1f} hours."
        for net, hours in document["hours"].items()
    ]
    said += [
        f"Ten views of one picture, {one['how']}: {one['median']:.2f} ± {one['spread']:.2f} ms "
        f"({one['repeats']} repeats)."
        for one in document["ten_views_ms"]
    ]
    if "bound" not in document:
        said.append("The recipes' bound on incoming weights was not measured; it is missing in all that follows, too.")
    return f"{table}\n\n{' '.join(said)}"


def _loader(document: dict[str, Any]) -> str:
    rows = [
        (str(row["workers"]), f"{_whole(row['images_per_s'])} ± {_whole(row['spread'])}") for row in document["loader"]
    ]
    one, made = document["prepare"], document["pictures"]
    said = (
        f"{document['device']}, {document['cores']} cores, {document['date']}; medians ± interquartile range "
        f"of {document['loader'][0]['repeats']} repeats. Preparing: {one['images_per_s_a_core']:.0f} ± "
        f"{one['spread']:.0f} pictures a second and core, from generated ones of {made['rows']} x {made['columns']} "
        f"and {made['mean_bytes'] / 1000:.0f} kB."
    )
    return f"{markdown_table(('workers', 'pictures/s'), rows, right=(0, 1))}\n\n{said}"


def _check_table(document: dict[str, Any]) -> str:
    found = check(document)
    by_ranks = {row["ranks"]: row for row in document["rows"]}
    rows = [
        (
            str(one.ranks),
            f"{by_ranks[one.ranks]['apart_ms']:.1f}",
            f"{by_ranks[one.ranks]['exchange_ms']:.1f}" if one.ranks > 1 else "",
            f"{one.measured:.1f} ± {by_ranks[one.ranks]['together_spread']:.1f}",
            f"{one.predicted:.1f}",
            "given" if one.fitted else f"{100 * one.off:+.0f} %".replace("-", "−"),
        )
        for one in found
    ]
    heads = ("ranks", "without exchange, ms", "exchange alone, ms", "measured, ms", "model, ms", "off by")
    predicted = [one for one in found if not one.fitted]
    verdict = "No more ranks were measured than the model was given."
    if predicted:
        worst = max(predicted, key=lambda one: abs(one.off))
        near = "within" if abs(worst.off) <= NEAR else "not within"
        verdict = f"The model is {near} {100 * NEAR:.0f} %: it is off by {100 * abs(worst.off):.0f} % at most, "
        verdict += f"with {worst.ranks} ranks."
    said = (
        f"{document['device']}, {document['cores']} cores, {document['date']}; {document['batch_a_rank']} pictures a "
        f"rank, gradients of {document['gradient_bytes'] / 1e6:.1f} MB, medians ± interquartile range of "
        f"{document['rows'][0]['repeats']} repeats. {verdict}"
    )
    return f"{markdown_table(heads, rows, right=range(len(heads)))}\n\n{said}"


def _model(cost: Cost) -> str:
    time = f"{1000 * cost.picture:.1f} µs for each picture"
    if cost.fixed is None:
        time = f"{128 * cost.picture:.2f} ms for 128 pictures (measured)"
    else:
        time = f"{cost.fixed:.2f} ms and {time} (measured, from two sizes of mini-batch)"
    loader = "The loader was not measured, and nothing here is limited by it."
    if cost.loader < math.inf:
        needed = 1000 * 128 / cost.compute(128)
        loader = (
            f"The loader gives {_whole(cost.core)} pictures a second and core (measured), and {_whole(cost.loader)} "
            f"beside each GPU, if {CORES} cores there do as much each (assumed). A GPU with 128 pictures an update "
            f"takes {_whole(needed)}, for which {math.ceil(needed / cost.core)} cores are needed."
        )
    return (
        f"One GPU's share of an update takes {time}. The gradients are {cost.gradient_bytes / 1e6:.0f} MB of float32 "
        f"(counted). {loader} GPUs of a machine, {NODE} of them, exchange {INSIDE / 1e9:.0f} GB/s one way each, and "
        f"{ACROSS / 1e9:.0f} GB/s with other machines (assumed)."
    )


def _predictions(cost: Cost, *, shared: bool) -> str:
    """The paper's mini-batch of 128 shared by all GPUs, or as many for each."""
    alone = cost.speeds(1, 128)[0]
    rows: list[Sequence[str]] = []
    for gpus in GPUS:
        pictures = 128 / gpus if shared else 128
        low, high = cost.speeds(gpus, pictures)
        limited = high >= gpus * cost.loader
        least, most = (PICTURES / speed / 3600 for speed in (high, low))
        rows.append(
            (
                str(gpus),
                f"{pictures:g}",
                f"{cost.exchange(gpus):.2f}",
                _range(low, high, _whole),
                _range(100 * low / gpus / alone, 100 * high / gpus / alone, lambda value: f"{value:.0f}") + " %",
                _range(most, least, lambda value: f"{value:.2g}" if value < 10 else f"{value:.0f}"),
                "loader" if limited else "",
            )
        )
    heads = ("GPUs", "pictures each", "exchange, ms", "pictures/s", "efficiency", "hours for 90 epochs", "limited by")
    said = (
        "All rows are predictions: GPU and loader were measured on different machines. Efficiency is relative to the "
        "first row. Of two figures, the first has the exchange in full. Several ranks do not capture their updates in "
        "a graph, as the measured one does, so theirs may take longer."
    )
    return f"{markdown_table(heads, rows, right=range(6))}\n\n{said}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _range(low: float, high: float, written: Callable[[float], str]) -> str:
    one, two = written(low), written(high)
    return one if one == two else f"{one} to {two}"
