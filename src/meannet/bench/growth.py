"""How cost grows: time an update against width, nets and batch; memory against its parts."""

import statistics
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from meannet import device
from meannet.bench import work
from meannet.bench.participants import taking_part
from meannet.bench.work import Settings

WIDTHS = (400, 800, 1200, 2000, 4000, 8000)
NETS = (1, 2, 4, 8, 16, 32, 64)
BATCHES = (1, 10, 100, 1000)
REPEATS = 5
SHARE = 0.5  # of the memory; what needs more is not tried
MEBI = 1 << 20
DRAWN = 1200, 350  # pixels of the picture


@dataclass(frozen=True)
class Point:
    """One measurement; times are of one update of all nets, memory is what came on top of the empty process."""

    varied: str
    value: int
    milliseconds: float
    spread: float
    repeats: int
    parts: float  # MiB that parameters, cases and workspace add up to
    peak: float  # MiB at most while training
    peak_start: float  # MiB at most until the first update was made
    grown: float  # MiB that later repeats held more than the second one


def points(where: str) -> list[tuple[str, int, Settings]]:
    """What is varied, its value, and the work; an epoch is long enough that its own cost does not count."""
    base = Settings(device=where, path="auto")
    wide = [("width", n, replace(base, sizes=(784, n, n, 10))) for n in WIDTHS]
    many = [("nets", n, replace(base, nets=n)) for n in NETS]
    long = [("batch", n, replace(base, batch=n)) for n in BATCHES]
    return [(varied, n, replace(one, updates=_updates(one))) for varied, n, one in (*wide, *many, *long)]


def _updates(one: Settings) -> int:
    usual = Settings()
    cost = one.nets * parameters(one) * max(one.batch, 20) / (parameters(usual) * usual.batch)
    return round(min(400, max(30, 400 / cost)))


def measure(
    where: torch.device, say: Callable[[str], None], wanted: Iterable[tuple[str, int, Settings]] | None = None
) -> list[Point]:
    """Each point in a process of its own, so that its memory can be told."""
    found = []
    for varied, value, settings in points(where.type) if wanted is None else wanted:
        if sum(parts(settings).values()) > SHARE * device.memory(where):
            say(f"{varied} {value}: left out, it would need more than half of the memory")
            continue
        learn, _ = work.cases(settings.updates * settings.batch)
        with tempfile.TemporaryDirectory() as folder:
            work.write(Path(folder), learn, {})
            with taking_part({"meannet": [settings]}, Path(folder)) as (one,):
                answers = [answer for _ in range(REPEATS) if (answer := one.timed())]
        if one.failed:
            say(f"{varied} {value}: left out: {one.failed[0]}")
            continue
        times = [1000 * answer["seconds"] / settings.updates for answer in answers]
        empty = 0 if where.type == "cuda" else one.empty
        found.append(
            Point(
                varied,
                value,
                round(statistics.median(times), 3),
                round(max(times) - min(times), 3),
                len(times),
                round(sum(parts(settings).values()) / MEBI, 1),
                round((max(answer["peak"] for answer in answers) - empty) / MEBI, 1),
                round((one.peak - empty) / MEBI, 1),
                round((answers[-1]["now"] - answers[min(1, len(answers) - 1)]["now"]) / MEBI, 1),
            )
        )
        say(f"{varied} {value}: {found[-1].milliseconds:.2f} ms an update")
    return found


def parts(one: Settings) -> dict[str, int]:
    """Bytes that a fleet, its cases and the CPU kernel's workspace take."""
    cases = one.updates * one.batch
    state = 2 * 4 * one.nets * parameters(one)  # weights and velocities, float32
    found = {"state": state, "cases": cases * (4 * one.sizes[0] + 8), "order": 8 * one.nets * cases}
    if one.device == "cpu" and one.path != "plain":
        from meannet.bench.ours import fast_set, kernel_threads

        # A list has 8 bytes a unit and case by case, with room for a vector more, and 8 by input; activities and
        # derivatives take 4 each.
        workspace = sum(one.batch * n * (8 * 80 / 64 + 8 + 4 + 4) for n in one.sizes)
        threads = kernel_threads()
        rounds = -(-one.nets // threads)
        side_by_side = one.nets > 1 and 8 * rounds * threads <= 9 * one.nets  # as update.cpp has it for large nets
        workspaces = min(threads, one.nets) if side_by_side else 1
        found |= {"panels": state, "workspace": round(workspace * workspaces)} if fast_set() else {}
    return found


def parameters(one: Settings) -> int:
    return sum((below + 1) * above for below, above in zip(one.sizes, one.sizes[1:], strict=False))


def to_json(found: Iterable[Point]) -> list[dict[str, Any]]:
    return [asdict(point) for point in found]


def picture(found: list[Point], machine: str) -> str:
    """Three panels, time against what is varied, and a fourth, memory against its parts; as SVG."""
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter

    from meannet.report.svg import ARMS, SOFT, drawing, finish, style

    across = {"width": "units a hidden layer", "nets": "nets side by side", "batch": "cases a mini-batch"}
    plain = FuncFormatter(lambda value, _: f"{value:,.6g}")

    def panel(number: int, above: str, below: str) -> Axes:
        axes = drawn.add_axes((0.07 + 0.25 * number, 0.22, 0.17, 0.68))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_title(above, loc="left", color=SOFT, fontsize=13)
        axes.set_xlabel(below)
        axes.xaxis.set_major_formatter(plain)
        axes.yaxis.set_major_formatter(plain)
        return axes

    with style():
        drawn, whole = drawing(*DRAWN)
        whole.remove()
        for number, (varied, name) in enumerate(across.items()):
            chosen = [point for point in found if point.varied == varied]
            axes = panel(number, "ms an update", name)
            axes.plot([p.value for p in chosen], [p.milliseconds for p in chosen], "o-", color=ARMS[1])
            axes.set_xticks([p.value for p in chosen], minor=False)
            axes.tick_params(axis="x", rotation=45)
        axes = panel(3, "MiB measured, at most", "MiB counted: weights, cases, …")
        axes.plot([p.parts for p in found], [p.peak for p in found], "o", color=ARMS[1])
        ends = [min(p.parts for p in found), max(p.parts for p in found)]
        axes.plot(ends, ends, color=SOFT, linewidth=1)
        return finish(drawn, f"How cost grows: {machine}")
