"""From trained fleets to what result.json says: errors per arm and seed, comparisons, curves, sampled networks."""

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from meannet import device, evaluate, recognition
from meannet.config import PHONES, Experiment, to_json
from meannet.data import Dataset
from meannet.nn.dense import Fleet
from meannet.runlog import RunFolder
from meannet.train import Epoch, Fault, Rows

Record = dict[str, Any]
CURVE_POINTS = 100
PER_CENT = 100


def net_name(experiment: Experiment, hidden: Sequence[int], dataset: Dataset) -> str:
    """784-800-800-10, say, from the cases as the data set has them; 3x32x32-c64-c64-c64-l16-10 for images."""
    extra = hidden[-1] if experiment.pretrain and experiment.pretrain.model == "dbm" else 0
    below = [str(dataset.train.inputs.shape[1] + extra)]
    if experiment.conv is not None:
        below = ["x".join(map(str, image_shape(dataset)))]
        below += [f"c{banks}" for banks in experiment.conv.banks] + [f"l{banks}" for banks in experiment.conv.local]
    return "-".join([*below, *map(str, hidden), str(len(dataset.classes))])


def image_shape(dataset: Dataset) -> tuple[int, int, int]:
    """Channels, rows and columns of the pictures."""
    if dataset.image is None:
        raise ValueError(f"{dataset.name} holds no pictures, and convolutional nets take nothing else")
    inputs = dataset.train.inputs
    return (inputs.shape[1] if len(inputs.shape) == 4 else 1, *dataset.image)


def epoch_records(
    experiment: Experiment,
    name: str,
    epoch: Epoch,
    errors: Sequence[float],
    gone: set[int],
    seconds: float,
    more: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> list[Record]:
    """The lines of metrics.jsonl for one epoch; `more` has other figures by name, one a net."""
    return [
        {
            "epoch": epoch.epoch,
            "net": name,
            "arm": arm.name,
            "seed": seed,
            "train_loss": round(epoch.train_loss[net], 6),
            "train_error": round(epoch.train_error[net], 6),
            "test_error": errors[net],
            **{figure: round(values[net], 6) for figure, values in more.items()},
            "lr": epoch.lr[net],
            "momentum": epoch.momentum,
            "seconds": round(seconds, 2),
        }
        for net, (arm, seed) in enumerate(experiment.pairs())
        if net not in gone
    ]


def arm_means(experiment: Experiment, errors: Sequence[float], gone: set[int]) -> dict[str, float]:
    """Mean over seeds, by arm, of nets that were not stopped."""
    found: dict[str, list[float]] = {}
    for net, (arm, _) in enumerate(experiment.pairs()):
        if net not in gone:
            found.setdefault(arm.name, []).append(errors[net])
    return {arm: statistics.fmean(values) for arm, values in found.items()}


def judged(fleet: Fleet, inputs: Rows, targets: Tensor, dataset: Dataset) -> tuple[list[float], dict[str, list[float]]]:
    """Shares of test cases that each net gets wrong, and of recordings other figures, by name, for the record."""
    if dataset.spoken is not None:
        found = recognition.frame_figures(fleet, inputs, targets)
        return found.errors, {"test_loss": found.cross_entropy, "test_state_error": found.state_errors}
    wrong, _ = evaluate.mean_network_figures(fleet, inputs, targets)
    return [count / len(inputs) for count in wrong], {}


def arm_results(
    experiment: Experiment,
    fleet: Fleet,
    name: str,
    dataset: Dataset,
    faults: Sequence[Fault],
    records: list[Record],
    folder: RunFolder,
) -> list[dict[str, Any]]:
    """What result.json says of each arm of one architecture; nets that were stopped are named, not averaged.

    Of recordings errors are per cent.
    """
    gone = {fault.net: fault for fault in faults}
    wrong, metrics, n_test = _figures(experiment, fleet, name, dataset, gone, folder)
    arms = []
    for arm in experiment.arms:
        nets = {net: seed for net, (own, seed) in enumerate(experiment.pairs()) if own == arm}
        good = [net for net in nets if net not in gone]
        errors = [wrong[net] for net in good]
        chosen = [r for r in records if r["net"] == name and r["arm"] == arm.name and r["seed"] in experiment.seeds]
        arms.append(
            {
                "name": arm.name,
                "net": name,
                "seeds": [nets[net] for net in good],
                "errors": errors,
                **spread(errors),
                "n_test": n_test,
                "curve": curve(chosen, n_test, percent=dataset.spoken is not None),
                "metrics": {figure: [values[net] for net in good] for figure, values in metrics.items()},
                "stopped": [stopped(nets[net], fault) for net, fault in gone.items() if net in nets],
            }
        )
    return arms


def _figures(
    experiment: Experiment, fleet: Fleet, name: str, dataset: Dataset, gone: Collection[int], folder: RunFolder
) -> tuple[Sequence[float], dict[str, list[Any]], int]:
    """Errors of each net, other figures by name, and what the errors are out of."""
    if dataset.spoken is not None:
        metrics = recognition.judge(experiment, fleet, name, dataset, gone, folder)
        claims = experiment.claims
        of_phones = bool(claims) and claims[0].unit == PHONES and "phone_error_rate" in metrics
        return metrics["phone_error_rate" if of_phones else "frame_error"], metrics, PER_CENT
    inputs, targets = dataset.test.inputs.to(fleet.device), dataset.test.targets.to(fleet.device)
    wrong, log_probability = evaluate.mean_network_figures(fleet, inputs, targets)
    return wrong, {"log_probability": list(map(finite, log_probability))}, len(inputs)


def document(
    experiment: Experiment,
    arms: list[dict[str, Any]],
    data: dict[str, Any],
    precision: str,
    path: str,
    where: torch.device,
    seconds: float,
    **more: Any,
) -> dict[str, Any]:
    """What result.json says of any run, with `more` that only some have."""
    claims = to_json([claim.counted(data["n_test"]) for claim in experiment.claims])
    return {
        "recipe": experiment.recipe,
        "paper": experiment.paper,
        "claim": claims[0] if claims else None,
        "claims": claims,
        "arms": arms,
        "comparisons": compare(arms),
        "data": data,
        "epochs": experiment.optim.epochs,
        **more,
        "device": device.describe(where),
        "precision": precision,
        "path": path,
        "seconds": round(seconds, 1),
        "peak_mib": device.peak_memory(where),
        "commit": device.commit(),
        "versions": device.versions(),
    }


def paced(records: Sequence[Record]) -> dict[str, dict[str, list[float]]]:
    """The first and the last recorded epoch of each net, and its seconds: what lies between had warmed up."""
    found: dict[str, list[list[float]]] = {}
    for record in records:
        found.setdefault(record["net"], []).append([record["epoch"], record["seconds"]])
    return {net: {"first": min(when), "last": max(when)} for net, when in found.items()}


def together(rows: Sequence[dict[str, Any]], records: Sequence[Record], *, percent: bool) -> list[dict[str, Any]]:
    """One row for each net and arm, where seeds were trained in several lots."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["net"], row["name"]
        known = found.get(key)
        if known is None:
            found[key] = row
            continue
        lists = {part: known[part] + row[part] for part in ("seeds", "errors", "stopped")}
        metrics = {figure: known["metrics"][figure] + values for figure, values in row["metrics"].items()}
        same = [record for record in records if (record["net"], record["arm"]) == key]
        found[key] = known | lists | spread(lists["errors"]) | {"metrics": metrics}
        found[key]["curve"] = curve(same, row["n_test"], percent=percent)
    return list(found.values())


def spread(errors: Sequence[float]) -> dict[str, float | None]:
    return {
        "mean": statistics.fmean(errors) if errors else None,
        "sd": statistics.stdev(errors) if len(errors) > 1 else None,
    }


def curve(records: Sequence[Record], n_test: int, *, percent: bool = False) -> dict[str, Sequence[float]]:
    """Test errors of one arm against epochs, mean, least and most over seeds, at no more than a hundred epochs.

    Errors are counts, or per cent with two decimals. `train` has the mean share of training cases that were wrong while
    the net was trained, units omitted.
    """
    by_epoch: dict[int, list[float]] = {}
    train: dict[int, list[float]] = {}
    for record in records:
        by_epoch.setdefault(record["epoch"], []).append(record["test_error"] * n_test)
        train.setdefault(record["epoch"], []).append(record["train_error"])
    every = -(-len(by_epoch) // CURVE_POINTS)
    places = 2 if percent else None
    epochs = sorted(by_epoch)[::-1][::every][::-1] if every else []
    return {
        "epochs": epochs,
        "mean": [round(statistics.fmean(by_epoch[epoch]), places or 1) for epoch in epochs],
        "least": [round(min(by_epoch[epoch]), places) for epoch in epochs],
        "most": [round(max(by_epoch[epoch]), places) for epoch in epochs],
        "train": [round(statistics.fmean(train[epoch]), 6) for epoch in epochs],
    }


def compare(arms: Sequence[dict[str, Any]], figure: str = "") -> list[dict[str, Any]]:
    """Each later arm against the first of the same net, paired over seeds that both finished; by errors or a figure.

    Beyond the spread: the mean difference is more than two standard errors from zero.
    """
    found = []
    for arm in arms:
        base = next(other for other in arms if other["net"] == arm["net"])
        values = [a["metrics"][figure] if figure else a["errors"] for a in (arm, base)]
        ours, theirs = (dict(zip(a["seeds"], v, strict=True)) for a, v in zip((arm, base), values, strict=True))
        differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        if arm is base or len(differences) < 2:
            continue
        difference = statistics.fmean(differences)
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        found.append(
            {
                "net": arm["net"],
                "arm": arm["name"],
                "over": base["name"],
                "difference": difference,
                "standard_error": error,
                "n": len(differences),
                "beyond_spread": abs(difference) > 2 * error,
            }
        )
    return found


def sampled_rows(
    experiment: Experiment,
    fleet: Fleet,
    name: str,
    dataset: Dataset,
    samples: int,
    faults: Sequence[Fault],
    stop: Callable[[], bool] = lambda: False,
) -> list[Record] | None:
    """The mean network beside means of 1 to `samples` sampled networks, for every net that was not stopped.

    None when `stop` said so before the end.
    """
    inputs, targets = dataset.test.inputs.to(fleet.device), dataset.test.targets.to(fleet.device)
    wrong, _ = evaluate.mean_network_figures(fleet, inputs, targets)
    counts = evaluate.sample_counts(samples)
    found = evaluate.sampled_errors(fleet, inputs, targets, counts, stop)
    if found is None:
        return None
    arithmetic, geometric = found
    n_test = len(inputs)
    if dataset.spoken is not None:  # of recordings: states, in per cent
        n_test = PER_CENT
        rows = [[round(PER_CENT * n / len(inputs), 3) for n in row] for row in (wrong, *arithmetic, *geometric)]
        wrong, arithmetic, geometric = rows[0], rows[1 : 1 + len(wrong)], rows[1 + len(wrong) :]
    gone = {fault.net for fault in faults}
    return [
        {
            "net": name,
            "arm": arm.name,
            "seed": seed,
            "n_test": n_test,
            "mean_network": wrong[net],
            "counts": counts,
            "arithmetic": arithmetic[net],
            "geometric": geometric[net],
        }
        for net, (arm, seed) in enumerate(experiment.pairs())
        if net not in gone
    ]


def stopped(seed: int, fault: Fault) -> dict[str, Any]:
    return {"seed": seed, "epoch": fault.epoch, "why": fault.why, "layer": fault.layer, "lr": fault.lr}


def describe_fault(experiment: Experiment, name: str, fault: Fault) -> str:
    """One line that names arm, seed, layer, epoch and learning rate."""
    arm, seed = experiment.pairs()[fault.net]
    layer = f", layer {fault.layer}" if fault.layer else ""
    where = f"{name}, arm {arm.name}, seed {seed}{layer}, epoch {fault.epoch}, learning rate {fault.lr:.4g}"
    return f"stopped: {where}: {fault.why}"


def finite(value: float) -> float | None:
    """JSON has no infinity, which an answer that a net holds impossible would give."""
    return round(value, 6) if math.isfinite(value) else None
