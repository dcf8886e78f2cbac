"""Single pictures, by Pillow: photographs of any kind become 256 x 256 JPEGs (E), and JPEGs pixels."""

import io
import warnings
from typing import Any

import numpy as np

from meannet.data import DataError

SIZE = 256  # E
QUALITY = 90
KINDS = {"RGB": "colour", "L": "greyscale", "CMYK": "cmyk"}


class Corrupt(Exception):
    """A file that is no picture, or not a whole one."""


def pillow() -> Any:
    """Pillow's Image module, or what to install."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise DataError("pictures need Pillow: pip install 'meannet[vision]'") from None
    return Image


def resized(content: bytes, size: int = SIZE, quality: int = QUALITY) -> tuple[bytes, np.ndarray, str]:
    """A picture resized to `size` x `size` as a JPEG, its pixels (size, size, 3) before that, and its kind.

    The paper resized all images to 256 x 256 and says no more: here both sides are scaled to that, whatever the
    picture's shape, by bicubic interpolation over all of its pixels.
    """
    image = pillow()
    try:
        # Of a picture that is large Pillow warns; one that is twice as large as that is an error.
        with (
            warnings.catch_warnings(action="ignore"),
            image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as opened,
        ):
            kind = KINDS.get(opened.mode, "other")
            # A JPEG far larger than wanted is decoded at half or a quarter of its size, never below twice the wanted.
            opened.draft(opened.mode, (2 * size, 2 * size))
            picture = _eight_bits(opened).convert("RGB").resize((size, size), image.Resampling.BICUBIC)
    except image.UnidentifiedImageError:
        raise Corrupt("neither a JPEG nor a PNG" if content else "an empty file") from None
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise Corrupt(" ".join(str(error).split())) from None
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality)
    return out.getvalue(), np.asarray(picture), kind


def _eight_bits(picture: Any) -> Any:
    """A picture of 16-bit grey in 8 bits, which Pillow would cut off at white."""
    return picture.point(lambda value: value / 257).convert("L") if picture.mode.startswith("I") else picture


def decode(content: bytes, out: np.ndarray) -> None:
    """Pixels of a JPEG of exactly this size into `out`, (size, size, 3) bytes."""
    image = pillow()
    rows, columns, _ = out.shape
    try:
        with image.open(io.BytesIO(content), formats=("JPEG",)) as opened:
            if (opened.mode, opened.height, opened.width) != ("RGB", rows, columns):  # before any of it is decoded
                found = f"{opened.mode} picture of {opened.height} x {opened.width}"
                raise Corrupt(f"{found} where one of RGB, {rows} x {columns} should be")
            out[:] = np.asarray(opened)
    except image.UnidentifiedImageError:
        raise Corrupt("not a JPEG" if content else "an empty file") from None
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise Corrupt(" ".join(str(error).split())) from None
