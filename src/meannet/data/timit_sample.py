"""The part of TIMIT that NLTK gives away: 16 speakers, a woman and a man of each dialect region, 160 utterances."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from meannet.config import Speech
from meannet.data import Checked, DataError, Dataset, Status, corpus, folder
from meannet.data.spoken import Say, by_turns, dataset
from meannet.data.timit import listed

NAME = "timit-sample"
FILES = ()
SPEECH = Speech(folds=8)
URL = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/timit.zip"
SOURCE = "nltk.download('timit'); its folder timit as timit-sample"
LICENCE = "CC BY-NC-SA; by the Linguistic Data Consortium"
ARCHIVE = "timit.zip"
KINDS = (".wav", ".phn")
MOST_BYTES = 1 << 26  # of the archive, unpacked
# Of the names and contents of all recordings and labels.
SHA256 = "7d4db39b1dba309797c6a785d9b62501fec01e90be3a090955611965da8946a6"


def load(*, held_out: bool, say: Say, speech: Speech = SPEECH) -> Dataset:
    """The speakers in turns: each is judged on by nets that have not heard them."""
    if not where().is_dir():
        fetch(force=False, say=say)
    if known := unknown(where()):
        raise DataError(f"{where()}: {known}")
    sets = by_turns(corpus.find(where()), speech, held_out=held_out)
    return dataset(NAME, sets, speech, say, decode=not held_out)


def unknown(path: Path) -> str:
    """What is wrong with a folder that is not the sample; empty where it is."""
    files = [file for file in corpus.files_below(path) if file.suffix in KINDS and file.is_file()]
    held = {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}
    if digest(held) == SHA256:
        return ""
    return f"not the sample known here; `meannet data fetch {NAME} --force` gets it anew"


def digest(held: Mapping[str, bytes]) -> str:
    """A hash of all recordings and labels by name."""
    state = hashlib.sha256()
    for name in sorted(held):
        state.update(f"{name} {len(held[name])}\n".encode() + held[name])
    return state.hexdigest()


def check() -> list[Checked]:
    found = corpus.check(where())
    wrong = unknown(where()) if all(one.ok for one in found) else ""
    return [Checked(where(), False, wrong)] if wrong else found


def status() -> Status:
    return listed(NAME, where(), SOURCE, LICENCE)


def fetch(*, force: bool, say: Say) -> None:
    from meannet.data.fetch import Remote, fetch_remote

    def verify(path: Path, name: str) -> str:
        return f"{_unpack(path)} recordings unpacked"

    there = where().is_dir() and not force
    if there and (wrong := unknown(where())):
        raise DataError(f"{where()}: {wrong}")
    fetch_remote(NAME, where(), [] if there else [Remote(ARCHIVE, (URL,), limit=MOST_BYTES)], verify, say)


def _unpack(archive: Path) -> int:
    """Recordings and labels of the archive, verified, into the folder that it is in."""
    from meannet.data.fetch import store

    try:
        with zipfile.ZipFile(archive) as opened:
            members = [m for m in opened.infolist() if Path(m.filename).suffix in KINDS]
            if sum(member.file_size for member in members) > MOST_BYTES:
                raise DataError(f"{archive}: it holds more than the sample")
            held = {"/".join(Path(m.filename).parts[-2:]): opened.read(m) for m in members}
    except (zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
    if digest(held) != SHA256:
        raise DataError(f"{archive}: not the sample known here")
    for name, body in held.items():
        (archive.parent / name).parent.mkdir(exist_ok=True)
        store(archive.parent / name, body)
    return len(held) // len(KINDS)


def where() -> Path:
    return folder() / NAME
