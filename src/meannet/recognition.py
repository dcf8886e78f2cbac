"""Recognition within a run of speech (body; B): from trained nets to frame and phone errors, and what is kept of it.

The decoder's numbers come from the training utterances of a net, acoustic scale and insertion penalty from its
development utterances. Test utterances are only judged on.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from meannet import checkpoint, evaluate
from meannet.config import Experiment
from meannet.core import metrics
from meannet.data import Dataset
from meannet.data.spoken import Labelled, Spoken
from meannet.nn.dense import Fleet
from meannet.nn.own import block
from meannet.runlog import RunFolder
from meannet.speech import fbank, phones, scoring
from meannet.speech.decoding import recognise
from meannet.speech.hmm import PARTS, Hmm, Segment, estimate
from meannet.speech.scoring import Score
from meannet.speech.textgrid import timed
from meannet.speech.tuning import Tuned, tune
from meannet.train import Rows


class Figures(NamedTuple):
    """Of each net."""

    errors: list[float]  # shares of the frames that have a class and are put into another of the 39
    state_errors: list[float]  # shares of all frames that are put into another of the 185 states
    cross_entropy: list[float]  # of the right states, in nats a frame


@torch.no_grad()
def frame_figures(fleet: Fleet, inputs: Rows, targets: Tensor) -> Figures:
    """What the mean networks make of frames: each is put into the state with the highest probability (body, Fig. 2)."""
    classes = torch.tensor(phones.CLASS_OF_STATE, device=targets.device)
    wrong, wrong_states = (torch.zeros(len(fleet.seeds), dtype=torch.int64, device=fleet.device) for _ in range(2))
    loss = torch.zeros(len(fleet.seeds), dtype=torch.float64, device=fleet.device)
    for part in evaluate.chunks(fleet, len(inputs)):
        outputs = fleet.mean_outputs(block(inputs, part))
        right = targets[part.start : part.stop]
        guesses = outputs.argmax(-1)
        wrong += ((classes[guesses] != classes[right]) & (classes[right] != phones.NO_CLASS)).sum(1)
        wrong_states += (guesses != right).sum(1)
        loss += metrics.losses(outputs, right.expand(len(outputs), -1), "softmax")
    counted = int((classes[targets] != phones.NO_CLASS).sum())
    return Figures((wrong / counted).tolist(), (wrong_states / len(inputs)).tolist(), (loss / len(inputs)).tolist())


@dataclass(frozen=True)
class Recognised:
    """What one net made of the test utterances."""

    arm: str
    seed: int
    tuned: Tuned
    score: Score
    found: list[list[Segment]]


def judge(
    experiment: Experiment, fleet: Fleet, name: str, dataset: Dataset, gone: Collection[int], folder: RunFolder
) -> dict[str, list[Any]]:
    """Figures for the result, by name, one a net; of nets that were stopped they mean nothing.

    Where phones are recognised, the file that `load` reads is left in the folder.
    """
    spoken = dataset.spoken
    assert spoken is not None
    figures = frame_figures(fleet, dataset.test.inputs.to(fleet.device), dataset.test.targets.to(fleet.device))
    found: dict[str, list[Any]] = {
        "frame_error": [round(100 * share, 4) for share in figures.errors],
        "state_error": [round(100 * share, 4) for share in figures.state_errors],
        "cross_entropy": [round(loss, 6) if np.isfinite(loss) else None for loss in figures.cross_entropy],
    }
    if not spoken.speech.decode:
        return found
    states = dataset.train.targets.split(_counts(spoken.train))
    hmm = estimate(states, [one.phones for one in spoken.train])
    pairs = [(arm.name, seed) for arm, seed in experiment.pairs()]
    every = [
        None if net in gone else _recognise(alone(fleet, net), dataset, hmm.to(fleet.device), *pair)
        for net, pair in enumerate(pairs)
    ]
    _save(folder.recogniser(fleet.sizes[1:-1], len(experiment.net.hidden)), name, dataset, hmm, [o for o in every if o])
    rows = [one.score.to_json() | one.tuned.numbers() if one else {} for one in every]
    named = ("phone_error_rate", "substitutions", "deletions", "insertions", "phones", "scale", "penalty")
    return found | {figure: [row.get(figure) for row in rows] for figure in named}


def alone(fleet: Fleet, net: int) -> Fleet:
    """One net of a fleet; its tensors are those of the fleet."""
    only = slice(net, net + 1)
    return replace(
        fleet,
        seeds=fleet.seeds[only],
        rates=[None if rate is None else rate[only] for rate in fleet.rates],
        weights=[weight[only] for weight in fleet.weights],
        biases=[bias[only] for bias in fleet.biases],
        weight_velocities=[],
        bias_velocities=[],
    )


@torch.no_grad()
def log_probabilities(fleet: Fleet, inputs: Rows) -> Tensor:
    """Of the states, (frames, states), by the mean network of a fleet of one."""
    parts = evaluate.chunks(fleet, len(inputs))
    return torch.cat([fleet.mean_outputs(block(inputs, part))[0].log_softmax(-1) for part in parts])


def _recognise(fleet: Fleet, dataset: Dataset, hmm: Hmm, arm: str, seed: int) -> Recognised:
    spoken = dataset.spoken
    assert spoken is not None
    heard = log_probabilities(fleet, spoken.dev_inputs.to(fleet.device))
    tuned = tune(hmm, heard, _counts(spoken.dev), [one.phones for one in spoken.dev])
    heard = log_probabilities(fleet, dataset.test.inputs.to(fleet.device))
    found = recognise(tuned.hmm, heard, _counts(spoken.test))
    score = scoring.score([one.phones for one in spoken.test], [[part.phone for part in row] for row in found])
    return Recognised(arm, seed, tuned, score, found)


def _counts(utterances: Sequence[Labelled]) -> list[int]:
    """Frames of each."""
    return [one.bounds[-1].stop for one in utterances]


def _save(path: Path, name: str, dataset: Dataset, hmm: Hmm, every: Sequence[Recognised]) -> None:
    """What recognition needs beside the nets; confusions and one utterance for the report."""
    spoken = dataset.spoken
    assert spoken is not None
    tensors = {part: getattr(hmm, part) for part in PARTS} | {"mean": spoken.mean, "sd": spoken.sd}
    shape = (len(every), len(phones.CLASSES))
    for part, extra in (("confusions", shape[1:]), ("deleted", ()), ("inserted", ())):
        counts = [getattr(one.score, part) for one in every]
        tensors[part] = torch.from_numpy(np.array(counts, np.int32).reshape(*shape, *extra))
    nets = [{"arm": one.arm, "seed": one.seed, **one.tuned.to_json()} for one in every]
    shown, tensors["frames"] = _example(dataset, spoken, every)
    facts = {
        "recogniser": 1,
        "net": name,
        "rate": spoken.rate,
        "scored": scoring.SAID,
        "classes": phones.CLASSES,
        "nets": nets,
        "example": shown,
    }
    checkpoint.save(path, tensors, facts, keep_previous=False)


def _example(dataset: Dataset, spoken: Spoken, every: Sequence[Recognised]) -> tuple[dict[str, Any], Tensor]:
    """The shortest test utterance: what was said, what each net recognised, and its filter banks, (frames, bins)."""
    counts = _counts(spoken.test)
    shortest = min(range(len(counts)), key=lambda k: counts[k])
    first, bins = sum(counts[:shortest]), spoken.speech.bins
    windows = dataset.test.inputs[torch.arange(first, first + counts[shortest])]
    middle = windows.view(counts[shortest], spoken.speech.frames, -1)[:, spoken.speech.frames // 2, :bins]
    length, shift = fbank.sizes(spoken.rate)
    samples = (counts[shortest] - 1) * shift + length
    one = spoken.test[shortest]
    said = [part.phone for part in one.bounds]
    shown = {
        "name": one.name,
        "seconds": round(samples / spoken.rate, 6),
        "said": [vars(part) for part in timed(one.bounds, samples, spoken.rate)],
        "recognised": [
            [
                vars(part) | {"right": right}
                for part, right in zip(
                    timed(row, samples, spoken.rate), scoring.marked(said, [p.phone for p in row]), strict=True
                )
            ]
            for row in (net.found[shortest] for net in every)
        ],
    }
    return shown, (middle * spoken.sd[:bins] + spoken.mean[:bins]).half()


@dataclass(frozen=True)
class Recogniser:
    """What a run keeps for recordings that it has not heard."""

    rate: int  # samples a second
    mean: Tensor  # (features,)
    sd: Tensor
    hmm: Hmm


def load(path: Path, arm: str, seed: int, features: int) -> Recogniser:
    """Of one net of a run, from the file that `judge` left; Damaged where it is missing, not whole or of other nets."""
    states, every = (phones.N_STATES,), (len(phones.PHONES),)
    shapes = {"prior": states, "stay": states, "start": every, "follow": every * 2, "end": every}
    tensors, facts = checkpoint.read(path)
    try:
        own = next(net for net in facts["nets"] if (net["arm"], net["seed"]) == (arm, seed))
        numbers: dict[str, Any] = {part: tensors[part] for part in PARTS}
        hmm = Hmm(**numbers, scale=float(own["scale"]), penalty=float(own["penalty"]))
        found = Recogniser(int(facts["rate"]), tensors["mean"], tensors["sd"], hmm)
        for name, shape in (shapes | {"mean": (features,), "sd": (features,)}).items():
            if tensors[name].shape != shape or not tensors[name].isfinite().all():
                raise ValueError(name)
        if (hmm.stay >= 0).any() or (found.sd <= 0).any() or not np.isfinite([hmm.scale, hmm.penalty]).all():
            raise ValueError("numbers")
    except (KeyError, StopIteration, TypeError, ValueError):
        raise checkpoint.Damaged(path, f"holds no recogniser of arm {arm}, seed {seed}") from None
    return found
