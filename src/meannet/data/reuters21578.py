"""Reuters-21578, the ApteMod parts (7,769 and 3,019 documents): C's experiment on a second collection of newswire.

Documents with exactly one topic, in the classes that have enough of them; by default divided as published, with words
counted in training documents alone, so that nothing about the test documents is used. The archive is read as a stream:
nothing of it is written anywhere, and no more is unpacked than such an archive holds.
"""

import hashlib
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meannet.config import Selection
from meannet.data import Checked, DataError, Dataset, Status, documents, folder, texts
from meannet.data.documents import Matrix, Say

NAME = "reuters21578"
FILES = ()
# Every class is kept that has two documents for training and one for testing, say, however large.
SELECTION = Selection(split="published", words_of="train", fewest=5, largest=1.0)
ARCHIVES = ("reuters.zip", "reuters21578_aptemod.tar.gz")  # what is fetched comes first
URL = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/reuters.zip"
SOURCE = "nltk.download('reuters'), whose reuters.zip is read as it is"
LICENCE = "research only; by Reuters and Carnegie Group, D. D. Lewis and C. Apte"
REMEDY = f"`meannet data fetch {NAME} --force` fetches it anew"
# Of the names and contents of all documents, of cats.txt and of stopwords.
SHA256 = "cff0e85a3a928235a6d9b21f00707f0624fed8b8d1a9f1af8c014c542d79feb3"
MEMBER = re.compile(r"[\w.-]+/((?:training|test)/\d{1,6}|cats\.txt|stopwords)")
MOST_MEMBERS, MOST_BYTES = 20_000, 1 << 26  # in an archive, unpacked


class Content(NamedTuple):
    """What is read from the archive."""

    texts: dict[str, bytes]  # by name, such as training/1234, in order of names
    topics: dict[str, list[str]]
    stop_words: list[str]


def load(*, held_out: bool, say: Say, selection: Selection = SELECTION) -> Dataset:
    """Documents with exactly one topic."""
    if not any((folder() / NAME / name).is_file() for name in ARCHIVES):
        fetch(force=False, say=say)
    content = read(where())
    names = sorted({topic for listed in content.topics.values() for topic in listed})
    place = {name: k for k, name in enumerate(names)}
    listed = list(content.texts)
    pairs = [(k, place[topic]) for k, name in enumerate(listed) for topic in content.topics[name]]
    document, label = np.array(pairs, np.int64).T
    published = np.array([name.startswith("training/") for name in listed])
    chosen = documents.choose(document, label, names, len(listed), selection, held_out=held_out, published=published)
    words, matrix = _counted(content)
    counts, kept = documents.select_words(matrix, chosen, selection)
    totals = np.asarray(counts.sum(axis=0)).ravel()
    chosen.facts["most_common"] = [words[kept[k]] for k in np.argsort(-totals, kind="stable")[:10]]
    return documents.dataset(NAME, counts, chosen, say)


def _counted(content: Content) -> tuple[list[str], Matrix]:
    """Counts of every word that is no stop word in every document."""
    words, matrix = texts.count_words(map(texts.plain, content.texts.values()))
    stop = texts.stopped(content.stop_words)
    kept = [k for k, word in enumerate(words) if word not in stop]
    return [words[k] for k in kept], matrix[:, kept]


def read(path: Path) -> Content:
    """The archive's documents and topics, verified."""
    members = dict(_members(path))
    state = hashlib.sha256()
    for name in sorted(members):
        state.update(f"{name} {len(members[name])}\n".encode() + members[name])
    if state.hexdigest() != SHA256:
        raise DataError(f"{path}: not the Reuters-21578 known here; {REMEDY}")
    topics = {}
    for line in members["cats.txt"].decode("ascii").splitlines():
        name, *listed = line.split()
        topics[name] = listed
    found = {name: members[name] for name in sorted(members) if name.startswith(("training/", "test/"))}
    return Content(found, topics, members["stopwords"].decode("ascii").split())


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names, without the folder that holds all, and contents of the files wanted."""
    left = MOST_BYTES
    try:
        for number, (name, size, content) in enumerate(_zipped(path) if path.suffix == ".zip" else _tarred(path)):
            left -= size
            if left < 0 or number > MOST_MEMBERS:
                raise DataError(f"{path}: unpacks to more than it should")
            if wanted := MEMBER.fullmatch(name):
                yield wanted[1], content()
    except FileNotFoundError:
        raise DataError(f"{path}: missing; `meannet data fetch {NAME}` gets it") from None
    # tarfile answers some damaged headers with a ValueError
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
        raise DataError(f"{path}: a damaged archive ({error}); {REMEDY}") from None


def _tarred(path: Path) -> Iterator:
    with tarfile.open(path, mode="r|gz") as archive:
        for member in archive:
            held = archive.extractfile(member) if member.isreg() else None
            yield member.name, member.size, lambda held=held, size=member.size: held.read(size) if held else b""


def _zipped(path: Path) -> Iterator:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():

            def content(member: zipfile.ZipInfo = member) -> bytes:
                with archive.open(member) as stream:
                    return stream.read(member.file_size)

            yield member.filename, member.file_size, content


def check() -> list[Checked]:
    try:
        read(where())
    except DataError as error:
        return [Checked(where(), False, str(error).removeprefix(f"{where()}: "))]
    return [Checked(where(), True, "the content known here")]


def status() -> Status:
    present = where().is_file()
    return Status(NAME, where().parent, present, where().stat().st_size if present else 0, SOURCE, LICENCE)


def fetch(*, force: bool, say: Say) -> None:
    from meannet.data.fetch import Remote, fetch_remote

    def verify(path: Path, name: str) -> str:
        read(path)
        return "the content known here"

    there = not force and where().is_file()
    if there:
        read(where())  # what is there and damaged is an error, and replaced by force only
    remote = [] if there else [Remote(ARCHIVES[0], (URL,), limit=1 << 25)]
    fetch_remote(NAME, folder() / NAME, remote, verify, say)


def where() -> Path:
    """The archive, in the first of its forms that is there."""
    candidates = [folder() / NAME / name for name in ARCHIVES]
    return next((path for path in candidates if path.is_file()), candidates[0])
