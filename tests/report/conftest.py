"""Run folders made up for the report: curves, features and sampled nets as a real run would leave them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from meannet import config
from meannet.config import Arm, Claim, Data, Experiment, Net, Optim, Source

FINAL = {"backprop": (158.0, 0.0), "dropout": (127.0, 0.021), "dropout+input": (101.0, 0.043)}
EXPERIMENT = Experiment(
    recipe="mnist.made_up",
    paper="A.1, Fig. 1",
    about="Dropout of hidden and of visible units against backpropagation, on all of MNIST.",
    data=Data(name="mnist"),
    net=Net(hidden=((800, 800),)),
    optim=Optim(epochs=300, lr=10.0),
    arms=(
        Arm(name="backprop", lr=1.0),
        Arm(name="dropout", hidden=True),
        Arm(name="dropout+input", hidden=True, visible=True),
    ),
    seeds=(0, 1, 2),
    claims=(Claim(arm="dropout+input", value=110), Claim(arm="dropout", value=130), Claim(arm="backprop", value=160)),
    show_features=True,
    sources=(
        Source(path="net.hidden", section="A.1", paper="800,800;1200,1200;2000,2000;1200,1200,1200"),
        Source(
            path="net.units",
            section="Not stated. Learning rate 10 works with logistic units and not with rectified ones.",
        ),
        Source(path="net.initial_sd", section="A.1", paper="0.01"),
        Source(path="dropout.hidden", section="body, A.1", paper="0.5"),
        Source(path="dropout.visible", section="body, A.1", paper="0.2"),
        Source(path="optim.epochs", section="A.1", paper="3000"),
        Source(path="optim.batch", section="A.1", paper="100"),
        Source(path="optim.lr", section="A.1", paper="10"),
        Source(path="optim.limit", section="A.1, a squared length", paper="15"),
        Source(
            path="arms.backprop.lr",
            section="Chosen on 10,000 held-out training cases, with the same care as for dropout.",
        ),
    ),
)


@pytest.fixture(scope="session")
def experiment() -> Experiment:
    return EXPERIMENT


@pytest.fixture(scope="session")
def fabricate() -> Callable[..., Path]:
    return make


def make(folder: Path, experiment: Experiment = EXPERIMENT, *, until: int | None = None, stopped: bool = False) -> Path:
    """A run folder of this experiment; cut off in the middle of a line after epoch `until`; with one net stopped."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    _write(folder / "experiment.json", config.to_json(experiment))
    _write(folder / "environment.json", _environment())
    errors: dict[tuple[str, str, int], int] = {}
    lines = []
    for hidden in experiment.net.hidden:
        net = "-".join(map(str, (784, *hidden, 10)))
        for arm in experiment.arms:
            for seed in experiment.seeds:
                curve = _curve(rng, arm.name, hidden[0], experiment.optim.epochs)
                ends = 12 if stopped and (arm.name, seed) == ("backprop", 1) else experiment.optim.epochs
                errors[net, arm.name, seed] = round(1e4 * curve[ends - 1][1])
                for epoch in range(experiment.record_every, ends + 1, experiment.record_every):
                    train, test = curve[epoch - 1]
                    place = {"epoch": epoch, "net": net, "arm": arm.name, "seed": seed, "train_loss": 3 * train}
                    rates = {"train_error": train, "test_error": test, "lr": 10.0, "momentum": 0.5}
                    lines.append(place | rates | {"seconds": 0.9 * epoch})
        _features(rng, folder, experiment, hidden)
    lines = [line for line in lines if until is None or line["epoch"] <= until]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text if until is None else text + '{"epoch": 3, "ne')
    if until is None:
        _write(folder / "result.json", _result(experiment, errors, {("backprop", 1)} if stopped else set()))
        _write(folder / "eval.json", _sampled(rng, experiment, errors))
    return folder


def _write(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document))


def _environment() -> dict[str, Any]:
    return {
        "command": "meannet run mnist.made_up --seeds 3 --set optim.epochs=300 --out runs/made-up",
        "device": "cuda", "device_name": "NVIDIA H200", "threads": 8, "precision": "bfloat16", "path": "graphs",
        "python": "3.11.7", "platform": "Linux-6.1-x86_64", "commit": "abc1234",
        "versions": {"meannet": "0.1.0", "torch": "2.13.0", "numpy": "2.3.1"},
    }  # fmt: skip


def _curve(rng: np.random.Generator, arm: str, width: int, epochs: int) -> np.ndarray:
    """Training and test error per epoch, (epochs, 2): slow start at 90 %, a fall, then a long tail with noise."""
    errors, training = FINAL.get(arm, (140.0, 0.03))
    at = np.arange(1, epochs + 1) / epochs
    end = errors / 1e4 * (1 + 0.02 * rng.standard_normal()) * (1 - 0.05 * (width > 1000))
    fall = 0.9 / (1 + np.exp(300 * (at - 0.02 - 0.004 * rng.random()))) + 0.012 * np.exp(-at / 0.12)
    test = end + fall + end * 0.05 * (1.1 - at) * rng.standard_normal(epochs)
    train = training + fall * (1.5 if training else 1.0) + training * 0.01 * rng.standard_normal(epochs)
    return np.clip(np.stack((train, test), axis=1), 0, 0.9).round(4)


def _features(rng: np.random.Generator, folder: Path, experiment: Experiment, hidden: tuple[int, ...]) -> None:
    """First-layer weights: noise for backprop, strokes for arms that omit units; only 120 units, to be quick."""
    y, x = np.mgrid[-1:1:28j, -1:1:28j]
    nets = []
    for arm in experiment.arms:
        for _ in experiment.seeds:
            angle, shift, along = (rng.uniform(-1, 1, (120, 1, 1)) * size for size in (3.14, 0.5, 0.5))
            u, v = x * np.cos(angle) + y * np.sin(angle) - shift, y * np.cos(angle) - x * np.sin(angle) - along
            stroke = (1 - 30 * u**2) * np.exp(-18 * u**2 - 4 * v**2)
            noise = rng.standard_normal((120, 28, 28))
            nets.append((stroke + 0.1 * noise if arm.hidden else 0.35 * stroke + noise).reshape(120, 784))
    name = "state" if len(experiment.net.hidden) == 1 else f"state.{'-'.join(map(str, hidden))}"
    save_file({"weights.0": np.array(nets, np.float32)}, folder / f"{name}.safetensors")


def _result(
    experiment: Experiment, errors: dict[tuple[str, str, int], int], stopped: set[tuple[str, int]]
) -> dict[str, Any]:
    arms, comparisons = [], []
    seeds = experiment.seeds
    for net in dict.fromkeys(net for net, _, _ in errors):
        for arm in experiment.arms:
            good = [seed for seed in seeds if (arm.name, seed) not in stopped]
            kept = [errors[net, arm.name, seed] for seed in good]
            stops = [
                {"seed": seed, "epoch": 12, "why": "the loss is not finite", "layer": 1, "lr": 1.0}
                for seed in seeds
                if (arm.name, seed) in stopped
            ]
            sd = float(np.std(kept, ddof=1)) if len(kept) > 1 else None
            arms.append(
                {"name": arm.name, "net": net, "seeds": good, "errors": kept, "mean": float(np.mean(kept)), "sd": sd,
                 "n_test": 10_000, "metrics": {}, "stopped": stops}
            )  # fmt: skip
        for arm in experiment.arms[1:]:
            over = experiment.arms[0].name
            paired = [s for s in seeds if not {(arm.name, s), (over, s)} & stopped]
            differences = np.array([errors[net, arm.name, s] - errors[net, over, s] for s in paired])
            if len(paired) < 2:
                continue
            mean, error = float(differences.mean()), float(differences.std(ddof=1) / len(paired) ** 0.5)
            comparisons.append(
                {"net": net, "arm": arm.name, "over": over, "difference": mean, "standard_error": error,
                 "n": len(paired), "beyond_spread": abs(mean) > 2 * error}
            )  # fmt: skip
    claims = [config.to_json(claim) for claim in experiment.claims]
    data = {
        "name": "mnist",
        "n_train": 60_000,
        "n_test": 10_000,
        "image": [28, 28],
        "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    }
    return {
        "recipe": experiment.recipe, "paper": experiment.paper, "claim": claims[0] if claims else None,
        "claims": claims, "arms": arms, "comparisons": comparisons, "data": data, "epochs": experiment.optim.epochs,
        "device": "cuda", "precision": "bfloat16", "path": "graphs", "seconds": 271.4, "commit": "abc1234",
        "versions": {"torch": "2.13.0"},
    }  # fmt: skip


def _sampled(
    rng: np.random.Generator, experiment: Experiment, errors: dict[tuple[str, str, int], int]
) -> dict[str, Any]:
    counts = [1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50]
    rows = []
    for (net, arm, seed), right in errors.items():
        more = 0 if arm == "backprop" else 1.4 * right / np.array(counts)
        arithmetic = np.rint(right + 1 + more + rng.standard_normal(len(counts)))
        geometric = np.rint(right - 1 + 0.9 * more + rng.standard_normal(len(counts)))
        row = {"net": net, "arm": arm, "seed": seed, "n_test": 10_000, "mean_network": right, "counts": counts}
        rows.append(row | {"arithmetic": arithmetic.tolist(), "geometric": geometric.tolist()})
    return {"samples": 50, "rows": rows}
