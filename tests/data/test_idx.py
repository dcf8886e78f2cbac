import gzip
import hashlib
import io
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meannet.data import DataError, idx

VALUES = bytes(range(0, 240, 10))
CONTENT = bytes([0, 0, 8, 3]) + struct.pack(">III", 4, 2, 3) + VALUES
FILE = idx.File(name="images", shape=(4, 2, 3), content=hashlib.sha256(CONTENT).hexdigest())
LABELS = bytes([0, 0, 8, 1]) + struct.pack(">I", 4) + bytes([3, 1, 9, 0])
LABEL_FILE = idx.File(name="labels", shape=(4,), below=10, content=hashlib.sha256(LABELS).hexdigest())
ZIPPED = gzip.compress(CONTENT, mtime=0)


def parse(content: bytes, file: idx.File = FILE, *, zipped: bool = False) -> np.ndarray:
    return idx.parse(io.BytesIO(content), file, named="the file", zipped=zipped)


def fault(content: bytes, file: idx.File = FILE, *, zipped: bool = False) -> str:
    with pytest.raises(DataError) as caught:
        parse(content, file, zipped=zipped)
    message = str(caught.value)
    assert message.startswith("the file: ") and "\n" not in message
    return message


@pytest.mark.parametrize("zipped", [False, True])
def test_values_come_back_in_row_order(zipped):
    array = parse(ZIPPED if zipped else CONTENT, zipped=zipped)
    assert array.dtype == np.uint8
    assert array.tolist() == np.arange(0, 240, 10).reshape(4, 2, 3).tolist()


def test_the_header_is_that_of_the_format():
    assert FILE.header == CONTENT[:16] and LABEL_FILE.header == LABELS[:8]
    assert FILE.size == len(CONTENT)


@pytest.mark.parametrize("length", [0, 3, 4, 15, 16, 17, len(CONTENT) - 1])
def test_a_truncated_file_is_refused(length):
    assert "truncated" in fault(CONTENT[:length])
    assert "truncated" in fault(gzip.compress(CONTENT[:length]), zipped=True)


@pytest.mark.parametrize("more", [b"\x00", b"x", bytes(5000)])
def test_an_oversized_file_is_refused(more):
    assert "oversized" in fault(CONTENT + more)
    assert "oversized" in fault(gzip.compress(CONTENT + more), zipped=True)
    assert "oversized" in fault(ZIPPED + more, zipped=True)
    assert "oversized" in fault(ZIPPED + gzip.compress(more), zipped=True)


def test_a_mislabelled_file_is_refused_and_the_fault_is_named():
    assert "begins with 3c68746d where 00000803" in fault(b"<html>no such file</html>")
    assert "type 0x0d" in fault(b"\x00\x00\x0d\x03" + CONTENT[4:])
    assert "1 dimensions where 3" in fault(LABELS)
    assert "3 dimensions where 1" in fault(CONTENT, LABEL_FILE)
    assert "cases of 3 x 2 where 2 x 3" in fault(CONTENT[:8] + struct.pack(">II", 3, 2) + VALUES)


def test_a_count_that_differs_between_images_and_labels_is_refused():
    five = bytes([0, 0, 8, 1]) + struct.pack(">I", 5) + bytes(5)
    assert "promises 5 cases where 4 should be" in fault(five, LABEL_FILE)


def test_a_label_out_of_range_is_refused():
    assert "value 10 where 9 is the largest" in fault(LABELS[:-1] + b"\x0a", LABEL_FILE)


def test_one_changed_value_is_refused():
    assert "checksum" in fault(CONTENT[:-1] + b"\x01")


def test_damaged_gzip_is_refused():
    assert "not a sound gzip file (incorrect header check)" in fault(CONTENT, zipped=True)
    wrong_sum = ZIPPED[:-8] + struct.pack("<I", zlib.crc32(CONTENT) ^ 1) + ZIPPED[-4:]
    assert "incorrect data check" in fault(wrong_sum, zipped=True)
    wrong_size = ZIPPED[:-4] + struct.pack("<I", len(CONTENT) + 1)
    assert "incorrect length check" in fault(wrong_size, zipped=True)
    for length in range(len(ZIPPED)):
        assert "truncated" in fault(ZIPPED[:length], zipped=True)


def test_a_gzip_bomb_is_not_decompressed_past_what_the_header_promises():
    bomb = gzip.compress(CONTENT + bytes(200_000_000), compresslevel=1)
    tracemalloc.start()
    try:
        assert "oversized" in fault(bomb, zipped=True)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_header_that_promises_the_world_is_refused_before_anything_is_read():
    class Watched(io.BytesIO):
        taken = 0

        def read(self, size=-1):
            piece = super().read(size)
            self.taken += len(piece)
            return piece

    stream = Watched(bytes([0, 0, 8, 3]) + struct.pack(">III", 2**32 - 1, 2**32 - 1, 2**32 - 1) + bytes(10**6))
    with pytest.raises(DataError, match="promises 4294967295 cases"):
        idx.parse(stream, FILE, named="the file", zipped=False)
    assert stream.taken == 16


def test_decompression_in_any_steps_gives_what_zlib_gives():
    content = random.Random(0).randbytes(3000) + bytes(300_000) + b"end"
    packed = gzip.compress(content)
    for step in (1000, 4096, 65_536, 10**6):
        inflated = idx.Inflated(io.BytesIO(packed))
        pieces = []
        while piece := inflated.read(step):
            pieces.append(piece)
        assert b"".join(pieces) == zlib.decompress(packed, wbits=31) == content


def test_a_limit_on_decompression_holds():
    inflated = idx.Inflated(io.BytesIO(gzip.compress(bytes(10**6))), limit=2500)
    assert len(inflated.read(1000)) == len(inflated.read(1000)) == 1000
    with pytest.raises(DataError, match="more than it should"):
        inflated.read(1000)


def original_or_refused(content: bytes, *, zipped: bool) -> None:
    try:
        array = parse(content, zipped=zipped)
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert array.shape == FILE.shape and array.tobytes() == VALUES


@settings(max_examples=400, deadline=None)
@given(data=st.data(), zipped=st.booleans())
def test_damage_anywhere_is_refused_or_harmless(data, zipped):
    content = bytearray(ZIPPED if zipped else CONTENT)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "double"])):
            case "flip":
                content[place] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del content[place : place + data.draw(st.integers(1, 8))]
            case "insert":
                content[place:place] = data.draw(st.binary(min_size=1, max_size=8))
            case "double":
                content += content[place:]
        if not content:
            break
    original_or_refused(bytes(content), zipped=zipped)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=100), zipped=st.booleans())
def test_noise_is_refused(content, zipped):
    original_or_refused(content, zipped=zipped)
    original_or_refused(ZIPPED[:10] + content, zipped=True)


def test_every_single_bit_flip_is_refused_or_harmless():
    for content, zipped in ((CONTENT, False), (ZIPPED, True)):
        for place in range(8 * len(content)):
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            original_or_refused(bytes(flipped), zipped=zipped)


def test_a_file_that_cannot_be_read_is_a_data_error_that_names_it(tmp_path):
    (tmp_path / "images").mkdir()
    path = idx.locate(tmp_path, FILE)
    assert path == tmp_path / "images"
    with pytest.raises(DataError, match=r"images: cannot be read \(Is a directory\)"):
        idx.read(path, FILE)
    with pytest.raises(DataError, match=r"nowhere: cannot be read \(No such file"):
        idx.read(tmp_path / "nowhere", FILE)
