"""What a run of speech recognised: phone errors and their parts, confusions, one utterance (body; B)."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from safetensors import SafetensorError, safe_open

from meannet.report import svg
from meannet.report.runs import Array, Run
from meannet.report.svg import INK, RULE, SOFT, arm_colour, drawing, finish, style
from meannet.report.written import spread

GROUPS = {
    "vowels": "iy ih eh ey ae aa ah er uw uh ow oy aw ay",
    "glides": "l r w y hh",
    "nasals": "m n ng",
    "flap": "dx",
    "fricatives": "f th v dh s z sh",
    "affricates": "ch jh",
    "stops": "p t k b d g",
    "silence": "sil",
}
DELETED = "deleted"
TRACKS = 3  # the most arms beside what was said
GREY = (112, 122, 134)
DARKEST = 0.3  # the share of a phone's errors that has the full colour
PARTS = ("phone_error_rate", "substitutions", "deletions", "insertions", "phones", "frame_error")


@dataclass(frozen=True)
class Row:
    """An arm's figures, mean ± sd over seeds."""

    net: str
    arm: str
    figures: list[str]  # of PARTS


@dataclass(frozen=True)
class Figure:
    """A finding, what the figure shows, and its picture for wide and for narrow pages."""

    finding: str
    says: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class Heard:
    """All that the page shows of it."""

    scored: str
    rows: list[Row]
    confusions: Figure
    utterance: Figure


def gather(run: Run, mark: str) -> Heard | None:
    """None where the run recognised no phones. Figures are of the arm of the paper's claim, or of the last one."""
    found = _read(run)
    if not found or run.result is None:
        return None
    arms = [net["arm"] for facts, _ in found for net in facts["nets"]]
    claimed = [claim.arm for claim in run.experiment.claims]
    arm = next((name for name in claimed if name in arms), next(name for name in reversed(run.arms) if name in arms))
    return Heard(
        found[0][0]["scored"], _rows(run.result), _confusions(run, arm, found, mark), _utterance(run, arm, found, mark)
    )


def _read(run: Run) -> list[tuple[dict[str, Any], dict[str, Array]]]:
    """Facts and tensors of each recogniser of the first architecture that has one."""
    found = []
    for path in sorted(run.folder.glob("recogniser*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as file:
                facts = json.loads(file.metadata()["record"].partition(" ")[2])
                named = ("confusions", "deleted", "inserted", "frames")
                tensors = {name: file.get_tensor(name).astype(np.float64) for name in named}
            _check(facts, tensors)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read ({error}); remove it and the report goes without it") from None
        if facts["nets"]:
            found.append((facts, tensors))
    net = next((name for name in run.nets if any(facts["net"] == name for facts, _ in found)), None)
    return [one for one in found if one[0]["net"] == net]


def _check(facts: dict[str, Any], tensors: dict[str, Array]) -> None:
    """Refuse what the figures could not be drawn from; KeyError, TypeError or ValueError says what."""
    nets, classes, shown = facts["nets"], facts["classes"], facts["example"]
    if sorted(classes) != sorted(" ".join(GROUPS.values()).split()):
        raise ValueError("its classes are not the 39 that are scored")
    shape = (len(nets), len(classes))
    wanted = {"confusions": (*shape, len(classes)), "deleted": shape, "inserted": shape}
    for name, size in wanted.items():
        if tensors[name].shape != size:
            raise ValueError(f"{name} is {tensors[name].shape}, not {size}")
    tracks = [shown["said"], *shown["recognised"]]
    frames = tensors["frames"]
    if frames.ndim != 2 or 0.02 * len(frames) < shown["seconds"] or len(tracks) != 1 + len(nets) or not shown["said"]:
        raise ValueError("its utterance is not whole")
    _ = f"{facts['net']} {facts['scored']} {shown['name']}", [(net["arm"], net["seed"]) for net in nets]
    for part in (part for track in tracks for part in track):
        _ = f"{part['phone']:s} {part['start']:f} {part['stop']:f}"
    if not 0 < shown["said"][-1]["stop"] <= shown["seconds"] + 1e-3:
        raise ValueError("its utterance has no length")


def _rows(result: Mapping[str, Any]) -> list[Row]:
    rows = []
    for arm in result["arms"]:
        if "phone_error_rate" in arm.get("metrics", {}):
            every = [[value for value in arm["metrics"][part] if value is not None] for part in PARTS]
            written = [
                spread(statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else None) if v else "–" for v in every
            ]
            rows.append(Row(arm["net"], arm["name"], written))
    return rows


def _confusions(run: Run, arm: str, found: Sequence[Any], mark: str) -> Figure:
    """Over all seeds and turns of an arm."""
    classes = found[0][0]["classes"]
    chosen = [(tensors, [k for k, net in enumerate(facts["nets"]) if net["arm"] == arm]) for facts, tensors in found]
    confused, deleted = (
        np.concatenate([tensors[part][nets] for tensors, nets in chosen]).sum(0) for part in ("confusions", "deleted")
    )
    counts = np.concatenate((confused, deleted[:, None]), 1)
    order = [classes.index(name) for group in GROUPS.values() for name in group.split()]
    whole = counts[order][:, [*order, len(classes)]]
    names = [classes[k] for k in order]
    sizes = [len(group.split()) for group in GROUPS.values()]
    ends = np.cumsum([0, *sizes])
    grouped = np.add.reduceat(np.add.reduceat(whole, ends[:-1], 0), [*ends[:-1], len(order)], 1)
    colour = arm_colour(run.arms, arm)
    wide = _matrix(whole, names, colour, 900, groups=list(zip(GROUPS, ends[:-1], ends[1:], strict=True)))
    narrow = _matrix(grouped, list(GROUPS), colour, 400)
    finding, pairs = _most_confused(whole, names)
    says = (
        f"{found[0][0]['net']}, {arm}, all seeds. A row is a phone that was said, a column what was recognised. "
        f"Grey is right and colour wrong, the darker the larger the share of the row. {pairs}"
    )
    return Figure(finding, says, _marked(f"{mark}-c-wide", wide), _marked(f"{mark}-c", narrow))


def _most_confused(counts: Array, names: list[str]) -> tuple[str, str]:
    """The commonest confusion, as a title, and the next ones."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    if not wrong.any():
        return "Every phone was recognised", ""
    lost, total = wrong[:, -1].sum(), counts.sum()
    pairs = [
        (wrong[a, b], names[a], names[b], wrong[a, b] / counts[a].sum()) for a, b in np.argwhere(wrong[:, :-1] > 0)
    ]
    pairs.sort(key=lambda pair: -pair[0])
    if not pairs:
        return f"No phone is taken for another; {_share(lost / total)} are deleted", ""
    most = [f"{said} is taken for {heard} {_share(share)} of the time" for _, said, heard, share in pairs[:5]]
    finding = f"The commonest confusion: {most[0]}; {_share(lost / total)} of all phones are deleted"
    return finding, f"Next: {', '.join(most[1:])}." if most[1:] else ""


def _share(share: float) -> str:
    return f"{100 * share:.0f}\u00a0%"


def _matrix(
    counts: Array, names: list[str], colour: str, size: int, groups: Sequence[tuple[str, int, int]] = ()
) -> str:
    """Shares of rows as squares: the diagonal in grey, all else in colour; `groups` are named at the left."""
    rows, columns = counts.shape
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    left, top = (150, 40) if groups else (90, 86)
    cell = (size - left - 48) / columns
    apart = 21 if groups else 10
    height = round(top + cell * rows + 14)
    text = 11 if groups else 13
    with style():
        made, axes = drawing(size, height)
        axes.set_position((0, 0, 1, 1))
        axes.set_xlim(0, size)
        axes.set_ylim(height, 0)
        axes.axis("off")
        for a, b in np.argwhere(shares >= 0.005):
            right = a == b
            x = left + cell * b + (apart if b == columns - 1 else 0)  # what was deleted
            strength = shares[a, b] if right else min(1.0, shares[a, b] / DARKEST)
            face = {"facecolor": SOFT if right else colour, "alpha": 0.08 + 0.8 * float(strength), "linewidth": 0}
            axes.add_patch(Rectangle((x, top + cell * a), cell - 1, cell - 1, **face))
        for k, name in enumerate([*names, DELETED]):
            x = left + cell * (k + 0.5) + (apart if k == columns - 1 else 0)
            if k < rows:
                axes.text(left - 6, top + cell * (k + 0.5), name, ha="right", va="center_baseline", size=text)
            turned = {"rotation": 0 if groups else 55, "ha": "center" if groups else "left"}
            axes.text(x, top - 6, name, va="bottom", size=text, color=SOFT if k == columns - 1 else INK, **turned)
        for name, begin, end in groups:
            axes.text(8, top + cell * (begin + end) / 2, name, va="center_baseline", color=SOFT)
            if begin:
                y = top + cell * begin - 0.5
                axes.plot([8, left + cell * rows], [y, y], color=RULE, linewidth=0.8, zorder=0)
                x = left + cell * begin - 0.5
                axes.plot([x, x], [top - 18, top + cell * rows], color=RULE, linewidth=0.8, zorder=0)
        axes.text(left - 6, 14, "said ↓  recognised →", color=SOFT, ha="right" if groups else "left", va="center")
        right = float(np.trace(counts[:, :rows]) / max(counts.sum(), 1))
        return finish(
            made, f"Confusions of {rows} classes of phones; {_share(right)} of the phones said are on the diagonal."
        )


def _utterance(run: Run, arm: str, found: Sequence[Any], mark: str) -> Figure:
    """The utterance of the first turn, by the first seed of each arm."""
    facts, tensors = found[0]
    shown = facts["example"]
    rows = {}
    for name in run.arms:
        net = next((k for k, net in enumerate(facts["nets"]) if net["arm"] == name), None)
        if net is not None and len(rows) < TRACKS:
            rows[name] = shown["recognised"][net]
    wide = _tracks(run, shown, rows, tensors["frames"], 900, 34)
    narrow = _tracks(run, shown, {arm: rows[arm]} if arm in rows else rows, tensors["frames"], 400, 12)
    wrong = {name: sum(not part["right"] for part in row) for name, row in rows.items()}
    counted = ", ".join(f"{count} with {name}" for name, count in wrong.items())
    finding = f"One utterance of {len(shown['said'])} phones; recognised but not said: {counted}"
    says = (
        f"{shown['name']}, the shortest test utterance; seed {facts['nets'][0]['seed']}; only its beginning, where all "
        "of it does not fit. Above are the filter banks, low frequencies below; then the phones as labelled by hand "
        "and as recognised. Coloured ones were not said."
    )
    return Figure(finding, says, _marked(f"{mark}-u-wide", wide), _marked(f"{mark}-u", narrow))


def _tracks(
    run: Run, shown: Mapping[str, Any], rows: Mapping[str, Sequence[Any]], frames: Array, width: int, most: int
) -> str:
    """Filter banks over rows of phones, from the end of the first silence on, so many phones of what was said."""
    said = shown["said"]
    begin = max(0.0, said[0]["stop"] - 0.08) if len(said) > 2 else 0.0
    end = min(shown["seconds"], said[min(most, len(said)) - 1]["stop"])
    left, top, band, row = 118 if width > 500 else 74, 6, 130, 34
    height = top + band + row * (len(rows) + 1) + 30
    with style():
        made, axes = drawing(width, height)
        axes.set_position((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.axis("off")

        def at(seconds: float) -> float:
            return left + (min(max(seconds, begin), end) - begin) / (end - begin) * (width - left - 8)

        kept = [k for k in range(len(frames)) if begin <= 0.01 * k + 0.0125 <= end]
        axes.imshow(_shaded(frames[kept]), extent=(left, width - 8, top + band, top), aspect="auto", zorder=0)
        for number, (name, track) in enumerate({"said": said, **rows}.items()):
            y = top + band + 8 + row * number
            colour = INK if name == "said" else arm_colour(run.arms, name)
            axes.text(left - 10, y + row / 2 - 4, name, ha="right", va="center_baseline", color=colour, weight="bold")
            for part in track:
                if part["stop"] > begin and part["start"] < end:
                    _phone(axes, part, at(part["start"]), at(part["stop"]), y, row - 8, colour)
        for tick in np.arange(np.ceil(begin * 5) / 5, end, 0.2 if width > 500 else 0.4):
            axes.text(at(tick), height - 12, f"{tick:.1f} s", ha="center", va="center", color=SOFT, size=11)
        return finish(
            made, f"{shown['name']}: phones as said and as recognised by {', '.join(rows)}, over filter banks."
        )


def _phone(axes: Axes, part: Mapping[str, Any], x0: float, x1: float, y: float, height: float, colour: str) -> None:
    wrong = not part.get("right", True)
    face = {"facecolor": colour if wrong else RULE, "alpha": 0.3 if wrong else 0.6, "linewidth": 0}
    axes.add_patch(Rectangle((x0 + 0.5, y), max(x1 - x0 - 1, 0.5), height, **face))
    roomy, fits = (x1 - x0 > pixels * len(part["phone"]) for pixels in (8, 4.4))
    if fits:
        look: dict[str, Any] = {"color": colour, "weight": "bold"} if wrong else {"color": INK}
        where: dict[str, Any] = {"ha": "center", "va": "center_baseline", "size": 12 if roomy else 9}
        axes.text((x0 + x1) / 2, y + height / 2, part["phone"], **look, **where)


def _shaded(frames: Array) -> np.ndarray:
    """(bins, frames, 4): one grey that shows on light and on dark pages, the louder the more opaque."""
    low, high = np.percentile(frames, (20, 99.5))
    picture = np.empty((*frames.T.shape, 4), np.uint8)
    picture[..., :3] = GREY
    picture[..., 3] = np.rint(235 * np.clip((frames.T[::-1] - low) / max(high - low, 1e-6), 0, 1))
    return picture


def _marked(mark: str, drawn: str) -> Markup:
    return Markup(svg.within(mark, drawn))
