"""Recordings as the corpus of B has them: SPHERE and RIFF files with one channel of 16-bit samples, checked."""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

PCM, EXTENSIBLE = 1, 0xFFFE
CONVERT = "convert it, for example with `sox IN -b 16 -c 1 OUT.wav`"


class AudioError(ValueError):
    """A file that is no recording that can be read; the message is one line with the file and the remedy."""


class Audio(NamedTuple):
    samples: np.ndarray  # int16
    rate: int  # samples a second


def read(path: Path) -> Audio:
    """A recording, whatever its name ends in: the first bytes say which kind it is."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise AudioError(f"{path}: {error.strerror}") from None
    try:
        if content.startswith(b"NIST_1A"):
            return sphere(content)
        if content.startswith(b"RIFF"):
            return riff(content)
        raise AudioError("neither a SPHERE nor a RIFF file")
    except AudioError as error:
        raise AudioError(f"{path}: {error}; {CONVERT}") from None


def sphere(content: bytes) -> Audio:
    """NIST's format: a header of lines such as `sample_rate -i 16000`, then samples."""
    lines = content[:1024].split(b"\n", 2)
    if len(lines) < 3 or not lines[1].strip().isdigit():
        raise AudioError("its SPHERE header does not say how long it is")
    size = int(lines[1])
    header, marker, _ = content[:size].partition(b"end_head")
    if size < 16 or len(content) < size or not marker:
        raise AudioError("its SPHERE header is cut short")
    fields: dict[str, str] = {}
    for line in header.decode("ascii", "replace").splitlines()[2:]:
        parts = line.split(None, 2)
        if len(parts) == 3 and not line.startswith(";"):
            fields[parts[0]] = parts[2].strip()
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise AudioError(f"its samples are coded as {coding}, not pcm")
    _need(channels=_whole(fields, "channel_count"), width=_whole(fields, "sample_n_bytes"))
    order = fields.get("sample_byte_format", "")
    if order not in ("01", "10"):
        raise AudioError(f"sample_byte_format is {order or 'missing'}, not 01 or 10")
    kind = "<i2" if order == "01" else ">i2"
    return _samples(content[size:], _whole(fields, "sample_count"), kind, _whole(fields, "sample_rate"))


def riff(content: bytes) -> Audio:
    """The WAVE format: chunks, of which `fmt ` says what the samples in `data` are."""
    if content[8:12] != b"WAVE":
        raise AudioError("a RIFF file, but no WAVE file")
    at, rate = 12, None
    while at + 8 <= len(content):
        name, size = content[at : at + 4], struct.unpack_from("<I", content, at + 4)[0]
        body = content[at + 8 : at + 8 + size]
        if len(body) < size:
            raise AudioError(f"its {name.decode('ascii', 'replace').strip()} chunk is cut short")
        if name == b"fmt ":
            if size < 16:
                raise AudioError("its fmt chunk is too short")
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if kind == EXTENSIBLE and size >= 26:
                kind = struct.unpack_from("<H", body, 24)[0]
            if kind != PCM:
                raise AudioError(f"its samples are of format {kind}, not PCM")
            _need(channels=channels, width=bits / 8)
        elif name == b"data":
            if rate is None:
                raise AudioError("its data chunk comes before the fmt chunk")
            if size % 2:
                raise AudioError("its last sample is cut short")
            return _samples(body, size // 2, "<i2", rate)
        at += 8 + size + size % 2
    raise AudioError("it has no data chunk")


def _samples(body: bytes, count: int, kind: str, rate: int) -> Audio:
    if len(body) != 2 * count:
        raise AudioError(f"it says {count} samples and holds {len(body) / 2:g}")
    if not 1000 <= rate <= 200_000:
        raise AudioError(f"{rate} samples a second are none of a recording of speech")
    if not count:
        raise AudioError("it is empty")
    return Audio(np.frombuffer(body, kind).astype(np.int16), rate)


def _need(*, channels: int, width: float) -> None:
    if channels != 1:
        raise AudioError(f"it has {channels} channels, not one")
    if width != 2:
        raise AudioError(f"its samples have {8 * width:g} bits, not 16")


def _whole(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    if not text.isdigit() or len(text) > 10:
        raise AudioError(f"{name} is {text or 'missing'}, not a whole number")
    return int(text)
