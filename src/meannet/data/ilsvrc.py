"""ILSVRC2010 and ILSVRC2012 as they are published or unpacked (E): which pictures there are, and what each shows.

Training pictures are in a folder or a tar file for each class, and those in a folder or in one large tar file.
Validation and test pictures are in folders for each class, or in no order with the numbers of their classes in the
development kit. Nothing is unpacked: a picture is a place in a file.
"""

import gzip
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from meannet.data import DataError

CLASS = re.compile(r"n\d{8}")
PICTURE = (".jpeg", ".jpg", ".png")
ROOTS = (".", "Data/CLS-LOC", "ILSVRC/Data/CLS-LOC")
TARS = {part: (f"ILSVRC20??_img_{part}*.tar", f"ILSVRC20??_images_{part}*.tar") for part in ("train", "val", "test")}
TRUTHS = {"val": "validation_ground_truth.txt", "test": "test_ground_truth.txt"}
MOST_OF_A_KIT = 1 << 28  # bytes of a member of the development kit
KIT = "the development kit (such as ILSVRC2012_devkit_t12.tar.gz)"


class Item(NamedTuple):
    """A picture: where its bytes lie, its name, and its class."""

    file: str
    offset: int
    size: int
    name: str
    label: int


@dataclass(frozen=True)
class Source:
    classes: list[str]  # WordNet ids, sorted
    words: dict[str, str]  # what they mean, where that is known
    parts: dict[str, list[Item]]  # train, val and, where their classes are known, test


def find(where: Path, say: Callable[[str], None]) -> Source:
    """Every picture under `where`, in a fixed order."""
    if not where.is_dir():
        raise ValueError(f"{where} is no folder; name the one that holds ILSVRC's folders or tar files")
    say(f"looking for pictures in {where}")
    train = list(_training(where))
    _refuse_twice(train)
    classes = sorted({wnid for wnid, _ in train})
    label = {wnid: number for number, wnid in enumerate(classes)}
    kit = _kit(where)
    parts = {"train": [item._replace(label=label[wnid]) for wnid, item in train]}
    for part in ("val", "test"):
        found = list(_judged(where, part, kit, label))
        if found:
            parts[part] = found
    if "val" not in parts:
        raise DataError(f"{where} has no validation pictures: neither a folder val nor {TARS['val'][0]}")
    return Source(classes, {w: text for w, text in kit.words.items() if w in label}, parts)


def _training(where: Path) -> Iterator[tuple[str, Item]]:
    """Pictures with the id of their class, class by class."""
    for root in ROOTS:
        folder = where / root / "train"
        if folder.is_dir():
            yield from _by_class(folder)
            return
    for path in _tars(where, "train"):
        found = False
        with path.open("rb") as stream:
            for inner, first, size in sorted(_members(path, stream)):
                wnid = Path(inner).stem
                if CLASS.fullmatch(wnid) and inner.endswith(".tar"):
                    found = True
                    yield from ((wnid, item) for item in _pictures_in(path, stream, first, size))
        if not found:
            raise DataError(f"{path} holds no tar file for each class, such as n01440764.tar")
        return
    there = ", ".join(sorted(path.name for path in where.iterdir())[:6]) or "nothing"
    raise DataError(f"{where} has neither train/ with a folder for each class nor {TARS['train'][0]}; it has {there}")


def _refuse_twice(found: list[tuple[str, Item]]) -> None:
    """Such as a class that was unpacked beside its tar file: everything in it would count twice."""
    for wnid, same in groupby(found, key=itemgetter(0)):
        seen: dict[str, str] = {}
        for _, item in same:
            if item.name in seen:
                places = " and ".join(dict.fromkeys((seen[item.name], item.file)))
                raise DataError(f"class {wnid} has two pictures named {item.name}, in {places}; remove one of them")
            seen[item.name] = item.file


def _by_class(folder: Path) -> Iterator[tuple[str, Item]]:
    entries = sorted(path for path in folder.iterdir() if _is_class(path))
    for path in entries:
        wnid = path.name.removesuffix(".tar")
        if path.is_dir():
            yield from ((wnid, item) for item in _pictures_under(path))
        elif path.suffix == ".tar":
            with path.open("rb") as stream:
                yield from ((wnid, item) for item in _pictures_in(path, stream, 0, path.stat().st_size))
    if not entries:
        raise DataError(f"{folder} has no folder or tar file for a class, named like n01440764")


def _is_class(path: Path) -> bool:
    """By its name; a copy such as n01440764.old is none."""
    return CLASS.fullmatch(path.name.removesuffix(".tar")) is not None


def _judged(where: Path, part: str, kit: "_Kit", label: dict[str, int]) -> Iterator[Item]:
    for root in ROOTS:
        folder = where / root / part
        if folder.is_dir() and any(map(_is_class, folder.iterdir())):
            found = list(_by_class(folder))
            _refuse_twice(found)
            for wnid, item in found:
                yield item._replace(label=_known(wnid, label, folder))
            return
        if folder.is_dir():
            yield from _numbered(list(_pictures_under(folder)), folder, part, kit, label)
            return
    for path in _tars(where, part):
        with path.open("rb") as stream:
            found = list(_pictures_in(path, stream, 0, path.stat().st_size))
        yield from _numbered(found, path, part, kit, label)
        return


def _numbered(found: list[Item], path: Path, part: str, kit: "_Kit", label: dict[str, int]) -> Iterator[Item]:
    """Pictures in the order of their names, each of the class whose number is in that line of the kit's list."""
    truth = kit.truths.get(part)
    if truth is None and part == "test":
        return  # published without classes
    if truth is None or not kit.numbers:
        raise DataError(f"{path} has pictures of unknown classes; put {KIT} beside it, or a folder for each class")
    if len(truth) != len(found):
        raise DataError(f"{path} has {len(found):,} pictures and its list of classes {len(truth):,} lines")
    for item, number in zip(sorted(found, key=lambda item: Path(item.name).name), truth, strict=True):
        if number not in kit.numbers:
            raise DataError(f"the list of classes of {path} has a number {number}, which meta.mat lacks")
        yield item._replace(label=_known(kit.numbers[number], label, path))


def _known(wnid: str, label: dict[str, int], path: Path) -> int:
    if wnid not in label:
        raise DataError(f"{path} has pictures of {wnid}, of which there are none to learn from")
    return label[wnid]


def _pictures_under(folder: Path) -> Iterator[Item]:
    # Not rglob, which passes over folders that may not be read.
    every = (Path(inner) / name for inner, _, names in os.walk(folder, onerror=_raise) for name in names)
    for path in sorted(every):
        if _is_picture(path.name) and stat.S_ISREG((found := path.stat()).st_mode):
            yield Item(str(path), 0, found.st_size, _shown(path.name), -1)


def _raise(error: OSError) -> None:
    raise error


def _pictures_in(path: Path, stream: BinaryIO, first: int, size: int) -> Iterator[Item]:
    """Pictures of a tar file that begins at byte `first` of another."""
    for name, offset, length in _members(path, _Part(stream, first, size)):
        if _is_picture(Path(name).name):
            yield Item(str(path), first + offset, length, _shown(Path(name).name), -1)


def _is_picture(name: str) -> bool:
    """By its name, which for what macOS keeps beside a file begins with a dot."""
    return Path(name).suffix.lower() in PICTURE and not name.startswith(".")


def _shown(name: str) -> str:
    """A name that can be printed and kept as JSON, whatever bytes it is made of."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _members(path: Path, stream: Any) -> Iterator[tuple[str, int, int]]:
    last = ""
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                last = member.name
                if member.isfile():
                    yield member.name, member.offset_data, member.size
                archive.members = []  # pyrefly: ignore[missing-attribute], of a million none needs to stay in memory
            # Where a header is damaged, or the file cut off before one, tarfile ends as if there were no more.
            stream.seek(archive.offset)  # pyrefly: ignore[missing-attribute]
            if not _zeros(stream):
                raise tarfile.ReadError(f"damaged or cut short after {_shown(last)}")
    except tarfile.TarError as error:
        raise DataError(f"{path}: not a sound tar file ({error})") from None


def _zeros(stream: Any) -> bool:
    """Whether a tar file ends here as it should: with zeros, and nothing after them."""
    found = 0
    while piece := stream.read(1 << 20):
        if piece.count(0) < len(piece):
            return False
        found += len(piece)
    return found >= tarfile.BLOCKSIZE


class _Part(io.RawIOBase):
    """A file within a file."""

    def __init__(self, stream: BinaryIO, first: int, size: int):
        self.stream, self.first, self.size, self.place = stream, first, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = 0) -> int:
        self.place = offset + (0, self.place, self.size)[whence]
        return self.place

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.size - self.place)
        self.stream.seek(self.first + self.place)
        found = self.stream.read(left if size < 0 else min(size, left))
        self.place += len(found)
        return found


@dataclass(frozen=True)
class _Kit:
    """What the development kit says."""

    numbers: dict[int, str]  # WordNet ids by the challenge's number
    words: dict[str, str]
    truths: dict[str, list[int]]  # numbers of classes by part


def _kit(where: Path) -> _Kit:
    content: dict[str, bytes] = {}
    for path in [*where.glob("*ground_truth.txt"), *where.glob("*evkit*/data/*"), *where.glob("data/*")]:
        if path.name == "meta.mat" or path.name.endswith("ground_truth.txt"):
            content[path.name] = path.read_bytes()
    for path in sorted([*where.glob("*evkit*.tar.gz"), *where.glob("*evkit*.tgz")]):
        content |= _from_archive(path)
    truths = {}
    for part, ending in TRUTHS.items():
        for name, text in content.items():
            if name.endswith(ending):
                truths[part] = _whole_numbers(text, name)
    meta = content.get("meta.mat")
    numbers, words = _meta(meta) if meta else ({}, {})
    return _Kit(numbers, words, truths)


def _from_archive(path: Path) -> dict[str, bytes]:
    found = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name).name
                wanted = name == "meta.mat" or name.endswith("ground_truth.txt")
                if wanted and member.isfile() and member.size < MOST_OF_A_KIT:
                    stream = archive.extractfile(member)
                    assert stream is not None
                    found[name] = stream.read()
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: not a sound tar file ({error})") from None
    return found


def _meta(content: bytes) -> tuple[dict[int, str], dict[str, str]]:
    """WordNet ids by number, and words by id, of meta.mat."""
    from scipy.io import loadmat

    try:
        synsets = loadmat(io.BytesIO(content), squeeze_me=True, variable_names=["synsets"])["synsets"]
        number = next(name for name in synsets.dtype.names if name.endswith("_ID"))
        rows = [(int(row[number]), str(row["WNID"]), str(row["words"])) for row in synsets]
    except Exception as error:  # whatever a damaged file leads scipy to
        raise DataError(f"meta.mat of the development kit cannot be read ({error})") from None
    return {n: wnid for n, wnid, _ in rows}, {wnid: words for _, wnid, words in rows}


def _whole_numbers(text: bytes, name: str) -> list[int]:
    try:
        return [int(line) for line in text.split()]
    except ValueError:
        raise DataError(f"{name} must have the number of a class on each line") from None


def _tars(where: Path, part: str) -> Sequence[Path]:
    # The third task's pictures of dogs, ILSVRC2012_img_train_t3.tar, are no part of this.
    return [path for form in TARS[part] for path in sorted(where.glob(form)) if "_t3" not in path.name]
