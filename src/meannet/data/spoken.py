"""From recordings to cases (B): filter banks with differences, mean 0 and variance 1, windows, and a state a frame.

A phone has the frames whose middle sample lies in it, and its states have equal parts of these. What a data set is
divided into are sets of recordings: to learn from, to tune the decoder on, to be judged on. Means and variances are of
those that are learned from.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from meannet.config import Speech
from meannet.data import Cases, DataError, Dataset, corpus, digest_of
from meannet.data.corpus import Recording, Utterance
from meannet.speech import phones

if TYPE_CHECKING:
    from torch import Tensor

    from meannet.nn.windows import Windows
    from meannet.speech.hmm import Segment

Say = Callable[[str], None]


class Sets(NamedTuple):
    """Recordings to learn from, to tune the decoder on, and to be judged on."""

    train: Sequence[Utterance]
    dev: Sequence[Utterance]
    test: Sequence[Utterance]


class Labelled(NamedTuple):
    """An utterance of a set: its frames are cases of the set, one after another."""

    name: str
    phones: list[int]  # as labelled, also those too short for a frame
    bounds: "list[Segment]"  # phones that have frames, which are counted from the utterance's first


@dataclass(frozen=True)
class Spoken:
    """What recognition needs of a data set beside its cases."""

    speech: Speech
    rate: int  # samples a second
    mean: "Tensor"  # (features,)
    sd: "Tensor"
    train: list[Labelled]
    test: list[Labelled]
    dev: list[Labelled]
    dev_inputs: "Windows"
    left_out: int  # frames of q among the test cases, which have no class


def by_turns(found: Sequence[Utterance], speech: Speech, *, held_out: bool) -> list[Sets]:
    """Every speaker, or recording, judged on in one of the turns; the next ones in order tune the decoder there.

    Held-out cases are those: where choices are made nobody is judged on in their own turn.
    """
    used = [one for one in found if speech.sa or not one.shared]
    units = list(dict.fromkeys(_unit(one, speech) for one in used))
    if speech.folds < 2:
        raise ValueError("data.speech.folds must be 2 or more: this corpus is not divided, so all take turns")
    if speech.dev == 0 and (held_out or speech.decode):
        raise ValueError("data.speech.dev must be 1 or more to hold cases out or to tune a decoder")
    if len(units) < speech.folds + speech.dev:
        raise DataError(
            f"{len(units)} {speech.apart} are too few for {speech.folds} turns with {speech.dev} more held out; lower "
            "data.speech.folds or data.speech.dev"
            + (", or set data.speech.apart=recordings" if speech.apart == "speakers" else "")
        )
    turns = []
    for fold in range(speech.folds):
        first, stop = (len(units) * k // speech.folds for k in (fold, fold + 1))
        judged, dev = set(units[first:stop]), {units[(stop + k) % len(units)] for k in range(speech.dev)}
        test, tune = ([one for one in used if _unit(one, speech) in some] for some in (judged, dev))
        train = [one for one in used if _unit(one, speech) not in judged | dev]
        if not train:
            raise DataError(f"{len(units)} {speech.apart} leave none to learn from; lower data.speech.dev")
        turns.append(Sets(train, [], tune) if held_out else Sets(train, tune, test))
    return turns


def _unit(one: Utterance, speech: Speech) -> str:
    return one.speaker if speech.apart == "speakers" else one.name


def dataset(name: str, sets: Sequence[Sets], speech: Speech, say: Say, *, decode: bool) -> Dataset:
    """One data set, or one with a fold for each of several sets; every recording is read once."""
    used = list(dict.fromkeys(one for each in sets for part in each for one in part))
    return divided(name, sets, framed(corpus.read(used), speech), replace(speech, decode=speech.decode and decode), say)


def divided(name: str, sets: Sequence[Sets], every: "Framed", speech: Speech, say: Say) -> Dataset:
    """The same of frames that are there already."""
    folds = tuple(_fold(name, each, every, speech) for each in sets)
    facts = _facts(every, sets, folds)
    for line in _described(name, facts):
        say(line)
    if len(folds) == 1:
        return replace(folds[0], facts=facts)
    return replace(folds[0], folds=folds, digest=digest_of(folds), facts=facts)


class Framed(NamedTuple):
    """Every utterance by its name, before anything is divided."""

    rate: int
    features: "dict[str, Tensor]"  # (frames, features)
    labelled: dict[str, Labelled]
    digests: dict[str, str]  # of what was read, not of features, which processors and numbers of threads round each way


def framed(recordings: Sequence[Recording], speech: Speech) -> Framed:
    """Filter banks with differences."""
    import torch

    from meannet.speech import fbank

    rate = recordings[0].rate
    banks, counts = fbank.filter_banks([torch.from_numpy(one.samples) for one in recordings], rate, speech.bins)
    every = fbank.with_deltas(banks, counts, speech.deltas).split(counts)
    names = [one.utterance.name for one in recordings]
    rows = [labelled(one, count) for one, count in zip(recordings, counts, strict=True)]
    digests = {one.utterance.name: _digest(one) for one in recordings}
    return Framed(rate, dict(zip(names, every, strict=True)), dict(zip(names, rows, strict=True)), digests)


def _digest(recording: Recording) -> str:
    name, rate = recording.utterance.name, recording.rate
    state = hashlib.sha256(json.dumps([name, rate, recording.phones, recording.begins]).encode())
    state.update(recording.samples.astype("<i2").tobytes())
    return state.hexdigest()


def labelled(recording: Recording, frames: int) -> Labelled:
    """Which frames each phone has: those whose middle sample is in it."""
    from meannet.speech import fbank
    from meannet.speech.hmm import Segment

    length, shift = fbank.sizes(recording.rate)
    starts = [min(frames, max(0, -(-(begin - length // 2) // shift))) for begin in recording.begins]
    starts[0] = 0
    stops = [*starts[1:], frames]
    parts = zip(recording.phones, starts, stops, strict=True)
    bounds = [Segment(phone, start, stop) for phone, start, stop in parts if start < stop]
    return Labelled(recording.utterance.name, recording.phones, bounds)


def _fold(name: str, sets: Sets, every: Framed, speech: Speech) -> Dataset:
    import torch

    from meannet.speech.hmm import equally

    mean, sd = moments([every.features[one.name] for one in sets.train])

    def rows(part: Sequence[Utterance]) -> list[Labelled]:
        return [every.labelled[one.name] for one in part]

    def windows(part: Sequence[Utterance]) -> "Windows":
        return cut([every.features[one.name] for one in part], mean, sd, speech.frames)

    def cases(part: Sequence[Utterance]) -> Cases:
        states = [equally(one.phone, one.stop - one.start) for row in rows(part) for one in row.bounds]
        return Cases(windows(part), torch.cat(states))

    train, test = cases(sets.train), cases(sets.test)
    without = torch.tensor(phones.CLASS_OF_STATE)[test.targets] == phones.NO_CLASS
    if without.all():
        raise DataError(
            f"{sets.test[0].labels}: those to be judged on say q alone, which is not scored; leave them out"
        )
    spoken = Spoken(
        speech=speech,
        rate=every.rate,
        mean=mean,
        sd=sd,
        train=rows(sets.train),
        test=rows(sets.test),
        dev=rows(sets.dev),
        dev_inputs=windows(sets.dev) if speech.decode else train.inputs.first(0),
        left_out=int(without.sum()),
    )
    states = tuple(f"{phones.PHONES[p]}.{s - phones.FIRST[p]}" for s, p in enumerate(phones.PHONE_OF_STATE))
    digest = hashlib.sha256(json.dumps([[every.digests[one.name] for one in part] for part in sets]).encode())
    return Dataset(name, train, test, states, None, digest.hexdigest(), {}, spoken=spoken)


def moments(parts: "Sequence[Tensor]") -> "tuple[Tensor, Tensor]":
    """Mean and standard deviation of every feature over all frames; one that never varies is left as it is."""
    count = sum(map(len, parts))
    mean: Any = sum(part.double().sum(0) for part in parts) / count
    square: Any = sum((part - mean).square().sum(0) for part in parts) / count
    sd = square.sqrt().float()
    return mean.float(), sd.where(sd > 1e-6, 1.0)


def cut(features: "Sequence[Tensor]", mean: "Tensor", sd: "Tensor", width: int) -> "Windows":
    """Windows around every frame of some recordings, normalised."""
    import torch

    from meannet.nn.windows import Windows, padded

    table, starts = padded(torch.cat(list(features)).sub_(mean).div_(sd), list(map(len, features)), width)
    return Windows(table, starts, width)


def _facts(every: Framed, sets: Sequence[Sets], folds: Sequence[Dataset]) -> dict[str, Any]:
    """For the run's result: sizes of everything, by fold where there are several."""
    spoken = [fold.spoken for fold in folds]
    return {
        "speakers": len(corpus.speakers(one for each in sets for part in each for one in part)),
        "recordings": len(every.features),
        "frames": sum(map(len, every.features.values())),
        "rate": every.rate,
        "read": digest_of(folds),  # before another run's nets change states
        "percent": True,  # errors are per cent, since folds differ in size
        "folds": [
            {
                "train": len(fold.train.targets),
                "dev": len(one.dev_inputs),
                "test": len(fold.test.targets),
                "left_out": one.left_out,
            }
            for fold, one in zip(folds, spoken, strict=True)
            if one is not None
        ],
    }


def _described(name: str, facts: dict[str, Any]) -> list[str]:
    sizes = facts["folds"]
    judged, left_out = (sum(one[key] for one in sizes) for key in ("test", "left_out"))
    several = f", in {len(sizes)} turns" if len(sizes) > 1 else ""
    return [
        f"{name}: {facts['recordings']:,} recordings of {facts['speakers']} speakers, {facts['frames']:,} frames; "
        f"{sum(one['train'] for one in sizes) // len(sizes):,} to learn from, {judged:,} to be judged on{several}",
        f"frame errors are of 39 classes, silence included; {left_out:,} frames of q have no class and are left out",
    ]
