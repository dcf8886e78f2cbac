import gzip
import hashlib
import shutil

import numpy as np
import pytest
import torch

from meannet import config, data
from meannet.data import DataError, mnist

# Of the four .gz files, as every library that uses MNIST lists them.
MD5 = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}


def load(*, held_out: bool = False) -> data.Dataset:
    return data.load(config.Data(name="mnist", held_out=held_out), say=pytest.fail)


def place(contents: dict[str, bytes], *, zipped: bool = True) -> None:
    mnist.where().mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = mnist.where() / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)


def test_mnist_is_the_published_files_divided_by_255(real_data):
    arrays = {}
    for file in mnist.FILES:
        packed = (real_data / "mnist" / f"{file.name}.gz").read_bytes()
        assert hashlib.md5(packed).hexdigest() == MD5[file.name]
        assert hashlib.sha256(packed).hexdigest() == file.published
        content = gzip.decompress(packed)
        arrays[file.name] = np.frombuffer(content, np.uint8, offset=16 if "images" in file.name else 8)
    found = load()
    for cases, part, count in ((found.train, "train", 60_000), (found.test, "t10k", 10_000)):
        assert cases.inputs.shape == (count, 784) and cases.inputs.dtype == torch.float32
        assert cases.targets.shape == (count,) and cases.targets.dtype == torch.int64
        pixels = arrays[f"{part}-images-idx3-ubyte"].reshape(count, 784)
        assert np.array_equal(cases.inputs.numpy(), pixels.astype(np.float32) / np.float32(255))
        assert np.array_equal(cases.targets.numpy(), arrays[f"{part}-labels-idx1-ubyte"])
    assert found.train.targets[:5].tolist() == [5, 0, 4, 1, 9] and found.test.targets[:5].tolist() == [7, 2, 1, 0, 4]
    assert (found.name, found.image, found.classes) == ("mnist", (28, 28), tuple("0123456789"))

    held_out = load(held_out=True)
    assert torch.equal(held_out.train.inputs, found.train.inputs[:50_000])
    assert torch.equal(held_out.train.targets, found.train.targets[:50_000])
    assert torch.equal(held_out.test.inputs, found.train.inputs[50_000:])
    assert torch.equal(held_out.test.targets, found.train.targets[50_000:])
    assert held_out.digest != found.digest


def test_real_mnist_passes_its_check(real_data):
    checked = data.check("mnist")
    assert [path.name.removesuffix(".gz") for path, _, _ in checked] == list(MD5)
    assert all(ok for _, ok, _ in checked)


@pytest.mark.parametrize("zipped", [True, False])
def test_files_packed_otherwise_or_not_at_all_are_as_good(toy, zipped):
    place(toy, zipped=zipped)
    found = load()
    values = np.frombuffer(toy["t10k-images-idx3-ubyte"], np.uint8, offset=16).reshape(5, 6)
    assert np.array_equal(found.test.inputs.numpy(), values.astype(np.float32) / np.float32(255))
    assert found.test.targets.tolist() == list(toy["t10k-labels-idx1-ubyte"][8:])
    assert all(ok and "packed otherwise" in message for _, ok, message in data.check("mnist"))


def test_choices_are_made_without_opening_the_test_files(toy, monkeypatch):
    monkeypatch.setattr(mnist, "N_HELD_OUT", 2)
    place({name: content for name, content in toy.items() if name.startswith("train")})
    found = load(held_out=True)
    labels = list(toy["train-labels-idx1-ubyte"][8:])
    assert found.train.targets.tolist() == labels[:3] and found.test.targets.tolist() == labels[3:]
    pixels = np.frombuffer(toy["train-images-idx3-ubyte"], np.uint8, offset=16).reshape(5, 6) / np.float32(255)
    assert np.array_equal(found.train.inputs, pixels[:3]) and np.array_equal(found.test.inputs, pixels[3:])


@pytest.mark.parametrize(
    ("name", "damage", "fault"),
    [
        ("train-images-idx3-ubyte", lambda c: c[:-1], "truncated"),
        ("t10k-images-idx3-ubyte", lambda c: c + b"\x00", "oversized"),
        ("train-labels-idx1-ubyte", lambda c: c[:-1] + b"\x0b", "value 11"),
        ("t10k-labels-idx1-ubyte", lambda c: c[:-1] + b"\x00", "checksum"),
    ],
)
def test_a_damaged_file_is_named_with_its_fault_and_the_remedy_and_left_alone(toy, name, damage, fault):
    place(toy)
    path = mnist.where() / f"{name}.gz"
    damaged = gzip.compress(damage(toy[name]))
    path.write_bytes(damaged)
    with pytest.raises(DataError) as caught:
        load()
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and fault in message and "\n" not in message
    assert "`meannet data fetch mnist --force`" in message
    assert path.read_bytes() == damaged
    assert [(p, fault in m) for p, ok, m in data.check("mnist") if not ok] == [(path, True)]


def test_images_in_the_place_of_labels_are_refused(toy):
    place(toy)
    shutil.copy(mnist.where() / "train-images-idx3-ubyte.gz", mnist.where() / "train-labels-idx1-ubyte.gz")
    with pytest.raises(DataError, match="mislabelled"):
        load()


def test_the_zipped_file_counts_where_both_are_there(toy):
    place(toy)
    place({"train-images-idx3-ubyte": b"left over"}, zipped=False)
    assert all(ok for _, ok, _ in data.check("mnist"))


def test_a_missing_file_is_reported_with_the_command_that_gets_it(toy):
    assert [(ok, "`meannet data fetch mnist`" in message) for _, ok, message in data.check("mnist")] == [
        (False, True)
    ] * 4
    assert not mnist.where().exists()
    place(toy)
    (mnist.where() / "t10k-images-idx3-ubyte.gz").unlink()
    assert [ok for _, ok, _ in data.check("mnist")] == [True, True, False, True]
    assert not mnist.status().present
