"""Real-time factors of recognition: seconds of work for a second of speech, for the decoder and for everything.

Probabilities and weights are made up: the best path takes as long for these as for any. Utterances have the lengths of
TIMIT's core test set, 192 of about 3 seconds.
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from meannet import recognition, transcribe
from meannet.bench.comparison import spread
from meannet.bench.images import timed
from meannet.config import Speech
from meannet.nn.dense import initial_fleet
from meannet.speech import phones
from meannet.speech.audio import Audio
from meannet.speech.decoding import recognise
from meannet.speech.fbank import SHIFT
from meannet.speech.hmm import Hmm, equally, estimate

UTTERANCES, SECONDS, SHORTEST, LONGEST = 192, 3.1, 1.0, 7.8
SPEECH = Speech(frames=21)
HIDDEN = (4000,) * 4  # the net of the body
RATE, RECORDED = 16_000, 10.0  # samples a second, seconds
REPEATS = 7


def measure(
    where: torch.device, say: Callable[[str], None], *, repeats: int = REPEATS, hidden: tuple[int, ...] = HIDDEN
) -> list[dict[str, Any]]:
    """A row for each piece of work, all timed in turns."""
    draw = np.random.default_rng(0)
    hmm = made_up(draw).to(where)
    counts = _lengths(draw)
    heard = torch.randn(sum(counts), phones.N_STATES, device=where).mul_(3).log_softmax(-1)
    first = counts[: UTTERANCES // 16]
    net = "-".join(map(str, hidden))
    work: dict[str, tuple[float, Callable[[], Any]]] = {
        "decoder, one utterance at a time": (
            SHIFT * sum(first),
            lambda: [recognise(hmm, part, [len(part)]) for part in heard[: sum(first)].split(first)],
        ),
        f"decoder, {UTTERANCES} utterances": (SHIFT * sum(counts), lambda: recognise(hmm, heard, counts)),
        f"features, net {net}, decoder: a recording of {RECORDED:g} s": (RECORDED, _whole(where, hmm, hidden)),
    }
    for name, (_, run) in work.items():
        say(f"preparing {name}")
        run()
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, (seconds, run) in work.items():
            times[name].append(timed(run, where) / seconds)
    return [
        {
            "what": name,
            "real_time_factor": float(f"{statistics.median(found):.3g}"),
            "spread": float(f"{spread(found):.3g}"),
            "times_faster": float(f"{1 / statistics.median(found):.3g}"),
            "repeats": repeats,
        }
        for name, found in times.items()
    ]


def made_up(draw: np.random.Generator) -> Hmm:
    """A model of random labels."""
    silence = phones.NUMBER[phones.SILENCE]
    labels = [[silence, *draw.integers(0, len(phones.PHONES), 40).tolist(), silence] for _ in range(50)]
    return estimate([torch.cat([equally(phone, 8) for phone in row]) for row in labels], labels)


def _lengths(draw: np.random.Generator) -> list[int]:
    """Frames of each utterance."""
    seconds = np.clip(draw.gamma(9.0, SECONDS / 9.0, UTTERANCES), SHORTEST, LONGEST)
    return (seconds / SHIFT).astype(int).tolist()


def _whole(where: torch.device, hmm: Hmm, hidden: tuple[int, ...]) -> Callable[[], Any]:
    """From 16-bit samples to phones."""
    features = SPEECH.bins * (1 + SPEECH.deltas)
    sizes = (features * SPEECH.frames, *hidden, phones.N_STATES)
    none = [torch.zeros(1, 1, dtype=torch.float64)] * (len(hidden) + 1)
    fleet = initial_fleet(sizes, [0], none, units="logistic", device=where)
    recogniser = recognition.Recogniser(RATE, torch.zeros(features), torch.ones(features), hmm)
    samples = np.random.default_rng(1).normal(0, 1000, int(RECORDED * RATE)).astype(np.int16)
    return lambda: transcribe.phones_of(Audio(samples, RATE), fleet, recogniser, SPEECH)
