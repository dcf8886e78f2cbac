"""The IDX format in which MNIST comes (A.1's data), raw or gzip: what is read is exactly what was expected, or refused.

The caller knows the shape, so the header is held against it before anything more is read, and no more is ever read or
decompressed than that shape needs, and one byte to see that nothing follows.
"""

import hashlib
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from meannet.data import DataError

UNSIGNED_BYTE = 0x08
CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class File:
    """An IDX file of unsigned bytes as it must be."""

    name: str  # unzipped; with .gz when zipped
    shape: tuple[int, ...]
    below: int = 256  # every value is less
    content: str  # sha256 of the unzipped file
    published: str = ""  # sha256 of the .gz as published; other compressions of the same content are as good

    @property
    def header(self) -> bytes:
        return struct.pack(f">BBBB{len(self.shape)}I", 0, 0, UNSIGNED_BYTE, len(self.shape), *self.shape)

    @property
    def size(self) -> int:
        """Of the unzipped file, in bytes."""
        return len(self.header) + math.prod(self.shape)


def locate(where: Path, file: File) -> Path | None:
    """The file in a folder, zipped or not, or None."""
    candidates = where / f"{file.name}.gz", where / file.name
    return next((path for path in candidates if path.is_symlink() or path.exists()), None)


def read(path: Path, file: File) -> np.ndarray:
    """The array in the file at `path`, verified."""
    try:
        with path.open("rb") as stream:
            return parse(stream, file, named=str(path), zipped=path.suffix == ".gz")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def parse(stream: BinaryIO, file: File, *, named: str, zipped: bool) -> np.ndarray:
    """The array in `stream`, uint8 of the file's shape; anything else is a DataError that begins with `named`."""
    source = Inflated(stream) if zipped else stream
    try:
        _check_header(source.read(len(file.header)), file)
        promised = math.prod(file.shape)
        body = bytearray(source.read(promised + 1))
    except zlib.error as error:
        raise DataError(f"{named}: not a sound gzip file ({str(error).rpartition(': ')[2]})") from None
    except DataError as error:
        raise DataError(f"{named}: {error}") from None
    if len(body) < promised:
        raise DataError(f"{named}: truncated, {len(body)} of the {promised} bytes that its header promises")
    if len(body) > promised:
        raise DataError(f"{named}: oversized, more than the {promised} bytes that its header promises")
    array = np.frombuffer(body, np.uint8).reshape(file.shape)
    if array.max(initial=0) >= file.below:
        raise DataError(f"{named}: value {array.max()} where {file.below - 1} is the largest label")
    if _sha256(file.header, body) != file.content:
        raise DataError(f"{named}: checksum is wrong, some of its content has changed")
    return array


def _check_header(header: bytes, file: File) -> None:
    wanted = file.header
    if len(header) < 4:
        raise DataError("truncated, no IDX header")
    if header[:2] != wanted[:2]:
        raise DataError(f"not an IDX file, it begins with {header[:4].hex()} where {wanted[:4].hex()} should be")
    if header[2] != UNSIGNED_BYTE:
        raise DataError(f"holds values of IDX type {header[2]:#04x}, not unsigned bytes ({UNSIGNED_BYTE:#04x})")
    if header[3] != len(file.shape):
        raise DataError(f"mislabelled, has {header[3]} dimensions where {len(file.shape)} should be")
    if len(header) < len(wanted):
        raise DataError("truncated within its IDX header")
    cases, *sizes = struct.unpack(f">{len(file.shape)}I", header[4:])
    if cases != file.shape[0]:
        raise DataError(f"promises {cases} cases where {file.shape[0]} should be, one image for each label")
    if tuple(sizes) != file.shape[1:]:
        found, expected = (" x ".join(map(str, s)) for s in (sizes, file.shape[1:]))
        raise DataError(f"promises cases of {found} where {expected} should be")


class Inflated:
    """Reads a gzip file of one member, never decompressing more than is asked for, nor `limit` bytes in all."""

    def __init__(self, stream: BinaryIO, limit: float = math.inf) -> None:
        self._stream = stream
        self._engine = zlib.decompressobj(wbits=31)  # gzip alone: no zlib, no raw deflate
        self._left = limit

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and not self._engine.eof:
            fed = self._engine.unconsumed_tail or self._stream.read(CHUNK)
            piece = self._engine.decompress(fed, size - len(found))
            if not fed and not piece:
                raise DataError("truncated gzip file")
            found += piece
        if self._engine.eof and (self._engine.unused_data or self._stream.read(1)):
            raise DataError("oversized, bytes follow the end of its gzip data")
        self._left -= len(found)
        if self._left < 0:
            raise DataError("unpacks to more than it should")
        return bytes(found)


def _sha256(*pieces: bytes | bytearray) -> str:
    state = hashlib.sha256()
    for piece in pieces:
        state.update(piece)
    return state.hexdigest()
