"""Made-up frames of the size of TIMIT's standard sets, 1.1 million to learn from: for time and memory only.

No result on them says anything about speech. Frames are noise around a mean of their own for each state.
"""

from pathlib import Path

import numpy as np

from meannet.config import Speech
from meannet.data import Checked, Dataset, Status, timit
from meannet.data.corpus import Utterance
from meannet.data.spoken import Framed, Labelled, Say, Sets, divided
from meannet.speech import phones

NAME = "timit-size"
FILES = ()
SPEECH = Speech(frames=21, decode=False)
SOURCE = "made up, for time and memory only"
LICENCE = "none"
SPEAKERS = {"train": timit.TRAINING, "dev": len(timit.DEVELOPMENT), "test": len(timit.CORE)}
FRAMES, A_PHONE = 304, 8  # of an utterance and of a phone; TIMIT's have about as many on average


def load(*, held_out: bool, say: Say, speech: Speech = SPEECH) -> Dataset:
    random = np.random.Generator(np.random.Philox(2012))
    parts = {part: [_utterance(part, k) for k in range(timit.SENTENCES * n)] for part, n in SPEAKERS.items()}
    made = Framed(16_000, {}, {}, {})
    means = random.standard_normal((len(phones.PHONES), speech.bins * (1 + speech.deltas)), dtype=np.float32)
    for one in (one for part in parts.values() for one in part):
        _made_up(one.name, means, random, made)
    say(f"{NAME}: frames are made up, for time and memory; their errors say nothing about speech")
    whole = divided(NAME, [Sets(parts["train"], parts["dev"], parts["test"])], made, speech, say)
    whole.facts["made_up"] = True
    return whole


def _made_up(name: str, means: np.ndarray, random: np.random.Generator, made: Framed) -> None:
    import torch

    from meannet.speech.hmm import Segment

    said = random.integers(len(phones.PHONES), size=FRAMES // A_PHONE)
    noise = random.standard_normal((FRAMES, means.shape[1]), dtype=np.float32)
    made.features[name] = torch.from_numpy(noise + means[said.repeat(A_PHONE)])
    bounds = [Segment(phone, A_PHONE * k, A_PHONE * (k + 1)) for k, phone in enumerate(said.tolist())]
    made.labelled[name] = Labelled(name, said.tolist(), bounds)
    made.digests[name] = name  # always the same frames


def _utterance(part: str, number: int) -> Utterance:
    return Utterance(f"{part}/{number}", f"{part}{number // timit.SENTENCES}", str(number), part, Path(), Path())


def check() -> list[Checked]:
    return [Checked(Path(), True, SOURCE)]


def status() -> Status:
    return Status(NAME, Path(), True, 0, SOURCE, LICENCE)


def fetch(*, force: bool, say: Say) -> None:
    say(f"{NAME} needs no fetching: {SOURCE}")
