"""`meannet speech decode`: the phones of a recording with their times, from the nets of a finished run."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from meannet import device, recognition, screen
from meannet.atomic import write_atomically
from meannet.config import Speech
from meannet.data.spoken import cut
from meannet.export import check_target
from meannet.fleets import of_finished
from meannet.nn.dense import Fleet
from meannet.recognition import Recogniser
from meannet.runlog import RunFolder
from meannet.speech import audio, fbank, phones
from meannet.speech.audio import Audio
from meannet.speech.decoding import recognise
from meannet.speech.textgrid import Timed, textgrid, timed
from meannet.trained import Choice, pick_nets

SUFFIX = ".TextGrid"


@dataclass(frozen=True)
class Transcript:
    """What was recognised, and by which net."""

    phones: list[Timed]
    seconds: float
    net: str  # and how it was chosen


def decode(
    run: Path, file: Path, choice: Choice = Choice(), where: torch.device | str = "cpu"  # noqa: B008, frozen
) -> Transcript:  # fmt: skip
    """The phones of a recording by one net of a run."""
    folder = RunFolder.open(run)
    experiment = folder.experiment()
    speech = experiment.data.speech
    if speech is None:
        raise ValueError(f"{run} is a run on {experiment.data.name}, not on speech; `meannet predict` takes such runs")
    if choice.seed == "all":
        raise ValueError("--seed all: each net has a decoder of its own; name one seed")
    if not speech.decode or experiment.data.held_out:
        raise ValueError(
            f"no phones were recognised in {run}; take a run that was judged on test speakers, with "
            "data.speech.decode=true"
        )
    picked = pick_nets(folder, choice, where)
    path = picked.folder.recogniser(picked.fleet.sizes[1:-1], len(experiment.net.hidden))
    with of_finished(folder):
        features = speech.bins * (1 + speech.deltas)
        recogniser = recognition.load(path, picked.row["name"], picked.seeds[0], features)
    sound = audio.read(file)
    _check(file, sound, recogniser)
    found = phones_of(sound, picked.fleet, recogniser, speech)
    return Transcript(found, len(sound.samples) / sound.rate, picked.chosen)


def phones_of(sound: Audio, fleet: Fleet, recogniser: Recogniser, speech: Speech) -> list[Timed]:
    """From samples to phones, by a fleet of one and on its device."""
    where = fleet.device
    banks, counts = fbank.filter_banks([torch.from_numpy(sound.samples).to(where)], sound.rate, speech.bins)
    features = fbank.with_deltas(banks, counts, speech.deltas)
    windows = cut([features], recogniser.mean.to(where), recogniser.sd.to(where), speech.frames)
    heard = recognition.log_probabilities(fleet, windows)
    (found,) = recognise(recogniser.hmm.to(where), heard, counts)
    return timed(found, len(sound.samples), sound.rate)


def _check(file: Path, sound: Audio, recogniser: Recogniser) -> None:
    if sound.rate != recogniser.rate:
        raise ValueError(
            f"{file} has {sound.rate:,} samples a second, and the run learned from {recogniser.rate:,}; convert it, "
            f"for example with `sox {file.name} -r {recogniser.rate} OUT.wav`"
        )
    frames, least = fbank.frame_count(len(sound.samples), sound.rate), phones.FEWEST_FRAMES
    if frames < least:
        raise ValueError(
            f"{file} lasts {len(sound.samples) / sound.rate:.3f} seconds, which is {frames} frames, and a phone has "
            f"{least} or more; give a longer recording"
        )


def decode_and_tell(options: argparse.Namespace) -> int:
    """A table or JSON on stdout, a TextGrid where asked; which net gave it is said on stderr."""
    out = Path(options.out) if options.out else None
    if out:
        if out.suffix.lower() != SUFFIX.lower():
            raise ValueError(f"{out} must end in {SUFFIX}")
        check_target(out, force=options.force)
    choice = Choice(net=options.net, arm=options.arm, seed=options.seed)
    found = decode(Path(options.run), Path(options.file), choice, device.choose(options.device))
    print(f"mean network of {found.net}", file=sys.stderr)
    if options.json:
        print(json.dumps(_json(options.file, found), indent=1))
    else:
        table = screen.table("phone", numbers=("from, s", "to, s"))
        for one in found.phones:
            table.add_row(one.phone, f"{one.start:.3f}", f"{one.stop:.3f}")
        screen.console().print(table)
    if out:
        write_atomically(out, textgrid(found.phones, found.seconds).encode())
        print(f"wrote {out}: {len(found.phones)} phones, {found.seconds:.2f} s", file=sys.stderr)
    return 0


def _json(file: str, found: Transcript) -> dict[str, Any]:
    rows = [{"phone": one.phone, "start": one.start, "stop": one.stop} for one in found.phones]
    return {"file": file, "seconds": found.seconds, "net": found.net, "phones": rows}
