"""What pages say of `meannet bench`, and of its flags on speed, whose --json is kept under results/."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from meannet import recipes
from meannet.bench.scale import NONE_YET
from meannet.kept import files, link, markdown_table

BENCH, EAGER = "bench", "torch-eager"
PRETRAIN, SPEECH, IMAGES, NEIGHBOUR, OVERHEAD = "pretrain", "speech", "images", "neighbour", "overhead"
FOLDERS = BENCH, PRETRAIN, SPEECH, IMAGES, NEIGHBOUR, OVERHEAD  # of results/
RECIPES = {"G without dropout": "cifar10.g_conv", "G with dropout": "cifar10.g_local_dropout"}
PREDICTORS = {
    "meannet": "mean network, ms",
    "torch": "plain PyTorch, ms",
    "estimator": "predict_proba of DropoutClassifier, ms",
}
FASTER = "mean network, times as fast as PyTorch"
TRAINED_ON = 50_000  # images of CIFAR-10, in each epoch


def blocks(folder: Path, base: Path) -> dict[str, Callable[[], str]]:
    """What stands between a page's markers, by their names; links start from the folder `base`."""
    return {
        "speed": lambda: speed_table(folder, base),
        "neighbour": lambda: neighbour_table(folder, base),
        "overhead": lambda: overhead_table(folder, base),
        "pretrain-speed": lambda: pretrain_table(folder, base),
        "speech-speed": lambda: speech_table(folder, base),
        "images-speed": lambda: images_table(folder, base),
    }


def ratios(rows: Sequence[dict[str, Any]]) -> list[float | None]:
    """How many times as fast each is as PyTorch as most people write it, with the same units."""
    eager = {row["units"]: row["updates_per_s"] for row in rows if row["who"] == EAGER}
    return [row["updates_per_s"] / eager[row["units"]] if row["units"] in eager else None for row in rows]


def speed_table(folder: Path, base: Path) -> str:
    """What `meannet bench --json` found, each file of results/bench a table; PyTorch as most people write it is 1."""
    parts = []
    for path in files(BENCH, folder):
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            (
                participant(row),
                row["units"],
                f"{row['updates_per_s']:,.1f} ± {row['spread']:,.1f}",
                microseconds(row["updates_per_s"]),
                "" if ratio is None else f"{ratio:.2f}",
            )
            for row, ratio in zip(document["rows"], ratios(document["rows"]), strict=True)
        ]
        one = document["rows"][0]
        said = (
            f"[{path.stem}]({link(path, base)}): {one['net']}, mini-batches of {one['batch']}, "
            f"on {document['device']}, {document['date']}. "
            f"Medians ± interquartile range of {one['repeats']} repeats, everyone in turn."
        )
        heads = ("who", "units", "updates/s", "µs each", "times torch-eager")
        parts += [markdown_table(heads, rows, right=(2, 3, 4)), said]
    return "\n\n".join(parts) or NONE_YET


def microseconds(updates_per_s: float) -> str:
    """Of an update, to a tenth where it takes less than a hundred."""
    return f"{1e6 / updates_per_s:,.{1 if updates_per_s > 1e4 else 0}f}"


def participant(row: dict[str, Any]) -> str:
    """A participant, how it went about it, and how many nets it trained side by side, all of whose updates count."""
    nets = f", {row['nets']} nets at once" if row["nets"] > 1 else ""
    note = f" ({row['note']})" if row.get("note") else ""
    return " ".join(filter(None, (row["who"], row["path"]))) + nets + note


def neighbour_table(folder: Path, base: Path) -> str:
    """What `meannet bench --neighbour --json` found, each file of results/neighbour a table."""
    parts = []
    for path in files(NEIGHBOUR, folder):
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            (
                participant(row),
                f"{row['alone']:,.1f} ± {row['alone_spread']:,.1f}",
                f"{row['beside']:,.1f} ± {row['beside_spread']:,.1f}",
                f"{row['times_slower']:.2f}",
            )
            for row in found["neighbour"]
        ]
        said = (
            f"[{path.stem}]({link(path, base)}): {found['device']}, {found['date']}, rectified units; medians ± "
            f"interquartile range of {found['neighbour'][0]['repeats']} repeats, in turns."
        )
        heads = ("who", "updates/s alone", "updates/s beside a busy process", "times slower")
        parts += [markdown_table(heads, rows, right=(1, 2, 3)), said]
    return "\n\n".join(parts) or NONE_YET


def overhead_table(folder: Path, base: Path) -> str:
    """What `meannet bench --overhead --json` found, each file of results/overhead a table."""
    parts = []
    for path in files(OVERHEAD, folder):
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            (
                f"{row['batch']:,}",
                *(f"{row[who]['ms']:,.2f} ± {row[who]['spread']:,.2f}" if who in row else "" for who in PREDICTORS),
                f"{row['times_faster']:.2f}",
            )
            for row in found["prediction"]
        ]
        cost = found["overhead"]
        said = (
            f"[{path.stem}]({link(path, base)}): {found['device']}, {found['date']}; medians ± interquartile range. "
            f"A run of {cost['epochs']} epochs: {cost['updates_s']:.1f} s of updates, {cost['tests_s']:.2f} s testing, "
            f"{cost['between_s']:.2f} s ({cost['between_percent']:.1f} %) between epochs for records and states, "
            f"{cost['before_s']:.1f} s before the first and {cost['after_s']:.1f} s after the last."
        )
        heads = ("cases at once", *PREDICTORS.values(), FASTER)
        parts += [markdown_table(heads, rows, right=range(5)), said]
    return "\n\n".join(parts) or NONE_YET


def images_table(folder: Path, base: Path) -> str:
    """What `meannet bench --images --json` found, each file of results/images a table."""
    parts = []
    epochs = {net: recipes.get(name).optim.epochs for net, name in RECIPES.items()}
    for path in files(IMAGES, folder):
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            (
                participant(row),
                row["net"],
                f"{row['updates_per_s']:,.0f} ± {row['spread']:,.0f}",
                f"{row['images_per_s']:,.0f}",
                str(epochs[row["net"]]),
                f"{epochs[row['net']] * TRAINED_ON / row['images_per_s']:,.1f}",
            )
            for row in found["rows"]
            if row["net"] in epochs  # the kept file has nets of H too, of which `bench --imagenet` tells more
        ]
        heads = ("who", "net", "updates/s", "images/s", "epochs of the recipe", "s a net for all of them")
        parts.append(markdown_table(heads, rows, right=(2, 3, 4, 5)))
        one, where = found["rows"][0], f"[{path.stem}]({link(path, base)})"
        parts.append(
            f"{where}: mini-batches of {one['batch']}, on {found['device']}, {found['date']}; "
            f"medians ± interquartile range of {one['repeats']} repeats, everyone in turn, images on the device."
        )
    return "\n\n".join(parts) or NONE_YET


def speech_table(folder: Path, base: Path) -> str:
    """What `meannet bench --speech --json` found, each file of results/speech two tables."""
    parts = []
    for path in files(SPEECH, folder):
        found = json.loads(path.read_text(encoding="utf-8"))
        banks = [(row["who"], f"{row['frames_per_s']:,} ± {row['spread']:,}") for row in found["features"]["rows"]]
        parts.append(markdown_table(("filter banks", "frames/s"), banks, right=(1,)))
        decoding = [
            (row["what"], f"{row['real_time_factor']:.2g} ± {row['spread']:.1g}", f"{row['times_faster']:,.0f}")
            for row in found["decoding"]
        ]
        heads = ("recognition", "seconds for a second of speech", "times faster than speech")
        parts.append(markdown_table(heads, decoding, right=(1, 2)))
        parts.append(
            f"{found['device']}, {found['date']}, [{path.stem}]({link(path, base)}): medians ± interquartile range of "
            f"{found['features']['rows'][0]['repeats']} and {found['decoding'][0]['repeats']} repeats, in one run; "
            "probabilities and weights for recognition are made up."
        )
    return "\n\n".join(parts) or NONE_YET


def pretrain_table(folder: Path, base: Path) -> str:
    """What `meannet bench --pretrain --json` found: epochs a second, and what multiple of our first row's they are."""
    rows, said = [], []
    for path in files(PRETRAIN, folder):
        found = json.loads(path.read_text(encoding="utf-8"))
        ours = found["rows"][0]["epochs_per_s"]
        where = f"[{path.stem}]({link(path, base)})"
        repeats = found["rows"][0]["repeats"]
        said.append(f"{where} is {found['device']}, {found['date']}: medians of {repeats} repeats, everyone in turn.")
        for row in found["rows"]:
            nets = f", {row['nets']} machines at once" if row["nets"] > 1 else ""
            note = f" ({row['note']})" if row["note"] else ""
            speed = row["epochs_per_s"] / ours
            rows.append((where, f"{row['who']}{nets}{note}", f"{row['epochs_per_s']:.3g}", f"{speed:.2g}"))
    if not rows:
        return NONE_YET
    table = markdown_table(("where", "who", "epochs/s, of all machines", "times ours"), rows, right=(2, 3))
    return "\n\n".join((table, f"Machines of 784-500, mini-batches of 100, an epoch is 60,000 cases; {' '.join(said)}"))
