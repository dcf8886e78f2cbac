"""Files that are there whole or not at all, whatever happens while they are written."""

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


def write_atomically(path: Path, content: bytes, *, keep: Path | None = None) -> None:
    """All of `content` or nothing; what was at `path` is lost, or moved to `keep`."""
    with written_atomically(path, keep=keep) as file:
        file.write(content)


@contextmanager
def written_atomically(path: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write into, which is at `path` once the block has ended well, and not at all after an error.

    Temporary file beside `path`, fsync, rename, fsync of the folder. Errors of these name `path`; those of the block
    are as they were.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with io.BufferedWriter(_File(temporary, path)) as file:
            yield file
            file.flush()
            with naming(path):
                os.fsync(file.fileno())
        with naming(path):
            if keep is not None and path.exists():
                path.replace(keep)
            temporary.replace(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


class _File(io.FileIO):
    """The temporary file, whose errors name the one that it is to be."""

    def __init__(self, temporary: Path, path: Path):
        self._path = path
        with naming(path):
            super().__init__(temporary, "w")

    def write(self, content: Any, /) -> int:
        with naming(self._path):
            return super().write(content)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error in the block, which may name no file or a temporary one, names `path`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(path: Path) -> None:
    """So that a rename outlives a loss of power; not every system can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
