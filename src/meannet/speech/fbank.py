"""Kaldi's log mel filter banks (B: 25 ms windows every 10 ms), in torch: many recordings at once, on CPU and GPU.

Samples are whole numbers as in 16-bit files, not fractions of 1. Frames of several recordings stand one after another
in one table, and `counts` has how many each recording has. There is no dither, and no energy beside the bins.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

LENGTH, SHIFT = 0.025, 0.010  # seconds
BINS = 40
LOW = 20.0  # Hz, below which no filter begins; the last one ends at half the sampling rate
PREEMPHASIS = 0.97
DELTA_SPAN = 2  # frames on each side that a difference is taken over
FRAMES_AT_A_TIME = 1 << 13  # what fits a processor's cache is faster than more


def frame_count(samples: int, rate: int = 16_000) -> int:
    """Frames that lie wholly within so many samples."""
    length, shift = sizes(rate)
    return 1 + (samples - length) // shift if samples >= length else 0


def sizes(rate: int) -> tuple[int, int]:
    """Samples of a window, and from one window to the next."""
    return int(LENGTH * rate), int(SHIFT * rate)


def filter_banks(waves: Sequence[Tensor], rate: int = 16_000, bins: int = BINS) -> tuple[Tensor, list[int]]:
    """Of recordings, each (samples,), on the device of the first: (frames of all, bins), and frames of each."""
    length, shift = sizes(rate)
    counts = [frame_count(len(wave), rate) for wave in waves]
    device = waves[0].device
    found = torch.empty(sum(counts), bins, device=device)
    window, filters = _window(length, device), _filters(rate, bins, device)
    done = 0
    for frames in _framed(waves, counts, length, shift):
        found[done : done + len(frames)] = _log_energies(frames.float(), window, filters)
        done += len(frames)
    return found, counts


def _framed(waves: Sequence[Tensor], counts: Sequence[int], length: int, shift: int) -> Iterator[Tensor]:
    """(frames, length), of as many recordings at a time as are good for speed."""
    held: list[Tensor] = []
    for wave, count in zip(waves, counts, strict=True):
        if not count:
            continue
        for part in wave.unfold(0, length, shift).split(FRAMES_AT_A_TIME):
            if held and sum(map(len, held)) + len(part) > FRAMES_AT_A_TIME:
                yield torch.cat(held)
                held = []
            held.append(part)
    if held:
        yield torch.cat(held)


def _log_energies(frames: Tensor, window: Tensor, filters: Tensor) -> Tensor:
    """(frames, bins): mean removed, high frequencies raised, windowed; then power, filters, log."""
    frames = frames - frames.mean(1, keepdim=True)
    raised = torch.empty_like(frames)
    torch.sub(frames[:, 1:], frames[:, :-1], alpha=PREEMPHASIS, out=raised[:, 1:])
    raised[:, 0] = frames[:, 0] * (1 - PREEMPHASIS)
    spectrum = torch.fft.rfft(raised.mul_(window), n=2 * (len(filters) - 1))
    power = torch.view_as_real(spectrum).square_().sum(-1)
    return (power @ filters).clamp_(min=torch.finfo(torch.float32).eps).log_()


@cache
def _window(length: int, device: torch.device) -> Tensor:
    """Kaldi's own: like Hamming's, but zero at its ends."""
    angle = torch.arange(length, dtype=torch.float64) * (2 * math.pi / (length - 1))
    return (0.5 - 0.5 * angle.cos()).pow(0.85).float().to(device)


@cache
def _filters(rate: int, bins: int, device: torch.device) -> Tensor:
    """(frequencies, bins): triangles of equal width on the mel scale."""
    points = 1 << (sizes(rate)[0] - 1).bit_length()
    low, high = _mel(torch.tensor([LOW, rate / 2], dtype=torch.float64)).tolist()
    edges = low + (high - low) / (bins + 1) * torch.arange(bins + 2, dtype=torch.float64)
    mel = _mel(torch.arange(points // 2, dtype=torch.float64) * (rate / points))[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (mel - left) / (centre - left), (right - mel) / (right - centre)
    found = torch.minimum(rising, falling).clamp_(min=0)
    return torch.cat((found, found.new_zeros(1, bins))).float().to(device)  # the highest frequency is in none


def _mel(frequency: Tensor) -> Tensor:
    return 1127 * (1 + frequency / 700).log()


def with_deltas(frames: Tensor, counts: Sequence[int], orders: int = 2) -> Tensor:
    """Frames with their differences over time beside them, as add-deltas of Kaldi has it: (frames, (1 + orders) n).

    Differences of a higher order are one filter on the frames themselves; before its first and after its last frame a
    recording goes on as these.
    """
    if not orders:
        return frames
    sizes_of = torch.tensor(counts, device=frames.device)
    last = (sizes_of.cumsum(0) - 1).repeat_interleave(sizes_of)
    first = last - (sizes_of - 1).repeat_interleave(sizes_of)
    place = torch.arange(len(frames), device=frames.device)
    parts = [frames]
    for order in range(1, orders + 1):
        part = torch.zeros_like(frames)
        for offset, scale in _scales(order).items():
            if scale:
                part.add_(frames[(place + offset).clamp(first, last)], alpha=scale)
        parts.append(part)
    return torch.cat(parts, 1)


@cache
def _scales(order: int) -> dict[int, float]:
    """By offset in frames, what a difference of this order multiplies."""
    if order == 0:
        return {0: 1.0}
    norm = sum(j * j for j in range(-DELTA_SPAN, DELTA_SPAN + 1))
    found: dict[int, float] = {}
    for below, scale in _scales(order - 1).items():
        for j in range(-DELTA_SPAN, DELTA_SPAN + 1):
            found[below + j] = found.get(below + j, 0.0) + j * scale / norm
    return dict(sorted(found.items()))
