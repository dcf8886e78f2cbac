"""Recordings with hand-labelled phones, as TIMIT has them (B): which there are, who speaks, and what is said when.

A recording is an audio file and a file of its name that ends in .phn, a line a phone: first sample, sample after the
last, symbol. Case does not matter. Layouts: TRAIN/DR1/FCJF0/SA1.WAV as on the LDC's disc, also with SA1.WAV.wav beside
it; dr1-fvmh0/sa1.wav as in NLTK's sample; and any folder, in which folders are speakers, whatever folders these have,
or what stands before the first underscore of a file's name is one. Links to folders are followed.
"""

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meannet.data import Checked, DataError
from meannet.speech import audio, phones

SLACK = 0.05  # seconds by which neighbouring labels may miss each other
UNLABELLED = 1.0  # seconds after the last label
LONGEST = 80  # characters of a line of labels
DIVISIONS = re.compile(r"train|test|dr\d")  # folders of TIMIT above those of speakers
NLTK_FOLDER = re.compile(r"dr\d-(\w+)")


class Utterance(NamedTuple):
    """One recording, not read yet."""

    name: str  # below the corpus's folder, in lower case
    speaker: str
    sentence: str
    part: str  # train, test, or nothing where the corpus is not divided
    audio: Path
    labels: Path

    @property
    def shared(self) -> bool:
        """Whether every speaker of TIMIT says this sentence: it tells sets of speakers nothing apart."""
        return self.sentence in ("sa1", "sa2")


@dataclass(frozen=True)
class Recording:
    """An utterance as read."""

    utterance: Utterance
    samples: np.ndarray  # int16
    rate: int
    phones: list[int]
    begins: list[int]  # the sample at which each phone begins


def find(folder: Path) -> list[Utterance]:
    """All recordings below a folder that have labels, in order of names."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}" + ("" if folder.is_absolute() else f" in {Path.cwd()}"))
    files = files_below(folder)
    sounds = _sounds(files)
    found: dict[str, Utterance] = {}
    for path in sorted(path for path in files if path.suffix.lower() == ".phn"):
        stem = path.stem.lower()
        if (path.parent, stem) not in sounds:
            raise DataError(f"{path}: there is no {path.stem}.wav beside it; put it there, or remove the labels")
        below = [part.lower() for part in path.relative_to(folder).parts[:-1]]
        part = next((part for part in below if part in ("train", "test")), "")
        name = "/".join([*below, stem])
        if name in found:
            raise DataError(f"{found[name].labels} and {path} have one name, since case does not matter; rename one")
        found[name] = Utterance(name, _speaker(below, stem), stem, part, sounds[path.parent, stem], path)
    if not found:
        raise DataError(
            f"{folder} holds no .phn file: labels are to stand beside recordings, as sa1.phn beside sa1.wav"
        )
    return list(found.values())


def left_out(folder: Path, found: Sequence[Utterance], *, sa: bool) -> list[str]:
    """What is below a folder and not used, in lines for its owner."""
    unlabelled, shared = len(_sounds(files_below(folder))) - len(found), sum(one.shared for one in found)
    lines = []
    if unlabelled:
        lines.append(f"{unlabelled:,} recordings have no .phn file beside them and are left out")
    if shared and not sa:
        lines.append(
            f"{shared:,} recordings named sa1 or sa2 are left out, as every speaker of TIMIT says these sentences; "
            "data.speech.sa=true takes them"
        )
    return lines


def _sounds(files: Iterable[Path]) -> dict[tuple[Path, str], Path]:
    """Audio by folder and name in lower case; of SA1.WAV and SA1.WAV.wav the one that was converted."""
    return {
        (path.parent, path.stem.lower().removesuffix(".wav")): path
        for path in sorted(files)
        if path.suffix.lower() == ".wav"
    }


def files_below(folder: Path) -> list[Path]:
    """All files below a folder; links to folders are followed, and a folder that is there twice is taken once.

    Hidden files are none of the recordings: macOS leaves ._sa1.wav beside sa1.wav on disks of other systems.
    """
    found: list[Path] = []
    seen = set()
    for where, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        real = os.path.realpath(where)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        found += [Path(where, name) for name in names if not name.startswith(".")]
    return found


def _speaker(folders: Sequence[str], stem: str) -> str:
    """Who speaks, by the folders of a file: the first one below those that divide TIMIT, or the first that is none."""
    last = max((k for k, one in enumerate(folders) if DIVISIONS.fullmatch(one)), default=-1)
    own = folders[last + 1 :] or [one for one in folders if not DIVISIONS.fullmatch(one)]
    if not own:
        return stem.partition("_")[0]
    nltk = NLTK_FOLDER.fullmatch(own[0])
    return nltk[1] if nltk else own[0]


def read(utterances: Sequence[Utterance]) -> list[Recording]:
    """Audio and labels, checked against each other; all of one sampling rate."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read_one, utterances))
    for one in found:
        if wrong := _of_two_rates(one, found[0]):
            raise DataError(wrong)
    return found


def _of_two_rates(one: Recording, first: Recording) -> str:
    """What is wrong with recordings of different rates; empty where they have one."""
    if one.rate == first.rate:
        return ""
    return (
        f"{one.utterance.audio} has {one.rate} samples a second and {first.utterance.audio} {first.rate}; convert them "
        "to one rate"
    )


def read_one(utterance: Utterance) -> Recording:
    from meannet.speech import fbank  # which needs torch

    try:
        sound = audio.read(utterance.audio)
    except audio.AudioError as error:
        raise DataError(str(error)) from None
    frames = fbank.frame_count(len(sound.samples), sound.rate)
    if frames < phones.FEWEST_FRAMES:
        raise DataError(
            f"{utterance.audio} has {frames} frames of 25 ms, and a phone has {phones.FEWEST_FRAMES} or more; leave it "
            "out"
        )
    numbers, begins = labels(utterance.labels, len(sound.samples), sound.rate)
    return Recording(utterance, sound.samples, sound.rate, numbers, begins)


def labels(path: Path, samples: int, rate: int) -> tuple[list[int], list[int]]:
    """Phones and the samples at which they begin, of a recording of so many samples; each lasts until the next."""

    def wrong(line: int, what: str) -> DataError:
        return DataError(f"{path}, line {line}: {what}; correct the line, or leave the recording out")

    numbers, begins, end = [], [], 0
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        raise DataError(f"{path}, line {line}: not plain ASCII; save it so, without a byte order mark") from None
    for count, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields:
            continue
        if (
            len(fields) != 3
            or len(line) > LONGEST
            or not all(field.isdigit() and len(field) < 12 for field in fields[:2])
        ):
            raise wrong(count, f"{_shown(line)} is not a first sample, a last sample and a phone")
        begin, stop = int(fields[0]), int(fields[1])
        if begin >= stop:
            raise wrong(count, f"the phone begins at {begin} and ends at {stop}")
        if not begins and begin > SLACK * rate:
            raise wrong(count, f"the first phone begins at {begin}, not at 0; silence before it is labelled h#")
        if abs(begin - end) > SLACK * rate or (begins and begin <= begins[-1]):
            raise wrong(count, f"the phone begins at {begin}, where {end} would follow the one before")
        if stop > samples + SLACK * rate:
            raise wrong(count, f"the phone ends at {stop}, and the recording has {samples} samples")
        try:
            numbers += phones.numbers(fields[2:])
        except ValueError as error:
            raise wrong(count, str(error)) from None
        begins.append(begin)
        end = stop
    if not numbers:
        raise DataError(f"{path} holds no phones; label the recording, or leave it out")
    if samples - end > UNLABELLED * rate:
        raise DataError(
            f"{path} ends at sample {end}, and the recording has {samples}; labels are missing or not in samples, or "
            "the two do not belong together"
        )
    return numbers, begins


def _shown(line: str) -> str:
    """A line within a message; what is no file of labels may have lines of megabytes."""
    return repr(line.strip() if len(line) <= LONGEST else f"{line.strip()[:LONGEST]}…")


def speakers(utterances: Iterable[Utterance]) -> list[str]:
    return list(dict.fromkeys(one.speaker for one in utterances))


def check(folder: Path, complete: str = "") -> list[Checked]:
    """Every recording read once; `complete` says what is missing of a known corpus."""
    try:
        found = find(folder)
    except DataError as error:
        return [Checked(folder, False, str(error))]
    bad: list[Checked] = []
    seconds, first = 0.0, None
    for one in found:
        try:
            recording = read_one(one)
        except DataError as error:
            bad.append(Checked(one.audio, False, str(error)))
            continue
        seconds += len(recording.samples) / recording.rate
        first = first or recording
        if wrong := _of_two_rates(recording, first):
            bad.append(Checked(one.audio, False, wrong))
    if bad:
        return bad
    said = f"{len(found):,} recordings of {len(speakers(found))} speakers, {seconds / 60:.1f} minutes"
    return [Checked(folder, not complete, f"{said}; {complete}" if complete else said)]
