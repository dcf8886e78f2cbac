"""Files that are there whole or not at all, whatever happens while they are written."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, content: bytes, *, keep: Path | None = None) -> None:
    """All of `content` or nothing; what was at `path` is lost, or moved to `keep`."""
    with written_atomically(path, keep=keep) as file:
        file.write(content)


@contextmanager
def written_atomically(path: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write into, which is at `path` once the block has ended well, and not at all after an error.

    Temporary file beside `path`, fsync, rename, fsync of the folder.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:  # which, from a write, names no file
        if error.filename is not None and str(error.filename) != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def sync_folder(path: Path) -> None:
    """So that a rename outlives a loss of power; not every system can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
