"""Recognised phones with their times, and the file in which Praat shows them over the recording."""

from collections.abc import Sequence
from dataclasses import dataclass

from meannet.speech import fbank, phones
from meannet.speech.hmm import Segment


@dataclass(frozen=True)
class Timed:
    """A phone from `start` to `stop`, in seconds."""

    phone: str
    start: float
    stop: float


def timed(found: Sequence[Segment], samples: int, rate: int) -> list[Timed]:
    """The phones of a recording of so many samples, of which a second has `rate`.

    A phone begins halfway between the middle of its first frame and that of the frame before. The first one begins with
    the recording and the last one ends with it.
    """
    length, shift = fbank.sizes(rate)
    starts = [0.0, *(round((one.start * shift + (length - shift) / 2) / rate, 6) for one in found[1:])]
    stops = [*starts[1:], samples / rate]
    return [Timed(phones.PHONES[one.phone], a, b) for one, a, b in zip(found, starts, stops, strict=True)]


def textgrid(found: Sequence[Timed], seconds: float) -> str:
    """A Praat TextGrid with one tier, in Praat's long text format."""
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0", f"xmax = {seconds:.12g}"]
    lines += ["tiers? <exists>", "size = 1", "item []:", "    item [1]:"]
    lines += ['        class = "IntervalTier"', '        name = "phones"', "        xmin = 0"]
    lines += [f"        xmax = {seconds:.12g}", f"        intervals: size = {len(found)}"]
    for number, one in enumerate(found, start=1):
        lines += [f"        intervals [{number}]:", f"            xmin = {one.start:.12g}"]
        lines += [f"            xmax = {one.stop:.12g}", f'            text = "{one.phone}"']
    return "\n".join(lines) + "\n"
