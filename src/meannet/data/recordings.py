"""Recordings of one's own: any folder of .wav files with .phn files beside them, in TIMIT's 61 symbols."""

from pathlib import Path

from meannet.config import Speech
from meannet.data import Checked, Dataset, Status, corpus
from meannet.data.spoken import Say, by_turns, dataset

NAME = "recordings"
FILES = ()
SPEECH = Speech(folds=4)
SOURCE = "your own; data.speech.folder names the folder"
LICENCE = "your own"


def load(*, held_out: bool, say: Say, speech: Speech = SPEECH) -> Dataset:
    if not speech.folder:
        raise ValueError("data.speech.folder must name the folder that holds your .wav and .phn files")
    folder = Path(speech.folder).expanduser()
    found = corpus.find(folder)
    for line in corpus.left_out(folder, found, sa=speech.sa):
        say(line)
    sets = by_turns(found, speech, held_out=held_out)
    return dataset(NAME, sets, speech, say, decode=not held_out)


def check() -> list[Checked]:
    """`meannet data check recordings FOLDER` is what checks some."""
    return [Checked(Path(), True, f"{SOURCE}; name it, and it is checked")]


def status() -> Status:
    return Status(NAME, Path(), False, 0, SOURCE, LICENCE)
