"""TIMIT (B), LDC93S1: 462 speakers to learn from, 50 to tune the decoder on, 24 to be judged on, without SA sentences.

The corpus is sold by the Linguistic Data Consortium and cannot be fetched: put its folders TRAIN and TEST below `timit`
in the data folder, at any depth, with SPHERE files as they are or converted.
"""

from collections.abc import Sequence
from pathlib import Path

from meannet.config import Speech
from meannet.data import Checked, DataError, Dataset, Status, corpus, folder
from meannet.data.corpus import Utterance
from meannet.data.spoken import Say, Sets, dataset

NAME = "timit"
FILES = ()
SPEECH = Speech()
SOURCE = "LDC93S1, from catalog.ldc.upenn.edu; copy TRAIN and TEST there"
LICENCE = "the Linguistic Data Consortium's; not free"

# The speakers of the core test set are in the corpus's own testset.doc, those of the development set in Halberstadt's
# thesis (1998) and in Kaldi's recipe.
CORE = frozenset(
    """mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0 mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0
    mnjm0 fdhc0 mjln0 mpam0 fmld0""".split()  # noqa: SIM905, legible
)
DEVELOPMENT = frozenset(
    """faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0 mgjf0 mglb0 mrtk0
    mtaa0 mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0 fmah0 fdrw0 mrcs0 mrjm4 fcal1 mmwh0
    fjsj0 majc0 mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0 fmml0 mrws1""".split()  # noqa: SIM905, legible
)
TRAINING = 462  # speakers
SENTENCES = 8  # of a speaker, without the two that all of them say
EVERY = 10  # of the training speakers in order of names one is held out, where choices are made


def load(*, held_out: bool, say: Say, speech: Speech = SPEECH) -> Dataset:
    """Learn from the training speakers; be judged on the core test set, or as `speech.judged` says."""
    if speech.folds:
        raise ValueError("data.speech.folds must be 0: TIMIT comes divided into speakers to learn from and others")
    if speech.judged == "dev" and speech.decode and not held_out:
        raise ValueError("data.speech.decode must be false where development speakers, who tune it, are judged on")
    if not where().is_dir():
        fetch(force=False, say=say)
    found = corpus.find(where())
    missing = incomplete(found)
    if missing:
        raise DataError(f"{where()}: {missing}; copy all of TRAIN and TEST of LDC93S1 there")
    return dataset(NAME, standard(found, speech, held_out=held_out), speech, say, decode=not held_out)


def standard(found: Sequence[Utterance], speech: Speech, *, held_out: bool) -> list[Sets]:
    """The sets by speakers' names; held-out speakers are every tenth training speaker, and nobody else is read then."""
    used = [one for one in found if speech.sa or not one.shared]
    train = [one for one in used if one.part == "train"]
    development, core = ([one for one in used if one.speaker in names] for names in (DEVELOPMENT, CORE))
    if held_out:
        left = set(sorted(corpus.speakers(train))[EVERY - 1 :: EVERY])
        return [Sets([o for o in train if o.speaker not in left], [], [o for o in train if o.speaker in left])]
    return [Sets(train, development, core if speech.judged == "core" else development)]


def incomplete(found: Sequence[Utterance]) -> str:
    """What is missing of the standard sets; empty where nothing is."""
    used = [one for one in found if not one.shared]
    sets = {
        "training": [one for one in used if one.part == "train"],
        "development": [one for one in used if one.speaker in DEVELOPMENT and one.part == "test"],
        "core test": [one for one in used if one.speaker in CORE and one.part == "test"],
    }
    for (name, part), speakers in zip(sets.items(), (TRAINING, len(DEVELOPMENT), len(CORE)), strict=True):
        there = len(corpus.speakers(part))
        if there != speakers:
            return f"{there} of {speakers} {name} speakers are there"
        if len(part) != SENTENCES * speakers:
            return f"{len(part)} of {SENTENCES * speakers} {name} sentences are there"
    return ""


def check() -> list[Checked]:
    if not where().is_dir():
        return [Checked(where(), False, f"missing; {SOURCE}")]
    try:
        missing = incomplete(corpus.find(where()))
    except DataError as error:
        return [Checked(where(), False, str(error))]
    return corpus.check(where(), missing)


def status() -> Status:
    return listed(NAME, where(), SOURCE, LICENCE)


def listed(name: str, path: Path, source: str, licence: str) -> Status:
    sizes = [file.stat().st_size for file in corpus.files_below(path) if file.is_file()]
    return Status(name, path, bool(sizes), sum(sizes), source, licence)


def fetch(*, force: bool, say: Say) -> None:
    if not where().is_dir():
        raise DataError(f"TIMIT cannot be fetched: get it as LDC93S1 and copy TRAIN and TEST into {where()}")
    say(f"{NAME} is in {where()}")


def where() -> Path:
    return folder() / NAME
