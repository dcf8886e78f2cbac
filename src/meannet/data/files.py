"""Cases in a user's own files, to predict on: a table in .npy or .csv, pictures, or a folder of pictures.

Nothing is repaired on the way: a cell that is no number, a picture of another size or in colour are errors.
"""

import csv
import math
import struct
import tokenize
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meannet.data import pictures

PICTURES = (".png", ".bmp", ".gif", ".jpg", ".jpeg", ".pgm", ".pnm", ".tif", ".tiff", ".webp")
TABLES = (".npy", ".csv")
DEEP = "I;16"  # Pillow's name for 16-bit grey


class Wanted(NamedTuple):
    """What a net takes."""

    inputs: int
    image: tuple[int, int] | None  # rows and columns
    names: list[str] | None  # of the columns
    largest: float | None  # value of a pixel; the least is 0
    channels: int = 1  # three for colour, red first
    squeezed: bool = False  # whether photographs of any size are prepared as those of a data set in shards were

    def __str__(self) -> str:
        colour = " in colour" * (self.channels > 1)
        return f"{self.inputs} inputs" + (f", {self.image[0]} x {self.image[1]} pixels{colour}" if self.image else "")


class Pictures:
    """Pictures as inputs, (cases, inputs), which are read as they are asked for."""

    def __init__(self, paths: Sequence[Path], wanted: Wanted):
        self.paths, self.wanted, self.shape = paths, wanted, (len(paths), wanted.inputs)

    def __getitem__(self, some: slice) -> np.ndarray:
        wanted = self.wanted
        assert wanted.image is not None and wanted.largest is not None
        one = _squeezed if wanted.squeezed else _picture
        return (
            np.stack([one(path, wanted.image, wanted.channels).ravel() for path in self.paths[some]]) * wanted.largest
        )


def read(
    paths: Sequence[Path], wanted: Wanted, say: Callable[[str], None]
) -> tuple[list[int] | list[str], np.ndarray | Pictures]:
    """Numbers of the rows or names of the pictures, and inputs (cases, inputs), all finite."""
    for path in paths:
        if not path.exists():
            raise ValueError(f"there is no file {path}")
    if len(paths) == 1 and paths[0].suffix.lower() in TABLES and not paths[0].is_dir():
        path = paths[0]
        found = _array(path, wanted) if path.suffix.lower() == ".npy" else _table(path, wanted)
        if not len(found):
            raise ValueError(f"{path} holds no cases")
        _check_values(path, found, wanted)
        return list(range(len(found))), found
    shown = _in_folder(paths[0], say) if len(paths) == 1 and paths[0].is_dir() else list(paths)
    for path in shown:
        if path.suffix.lower() == ".wav":
            raise ValueError(f"{path} is a recording; `meannet speech decode` takes these, and runs on speech")
        if path.suffix.lower() in TABLES and not path.is_dir():
            raise ValueError(f"{path} is one of {len(shown)} files; give one table at a time")
        if path.is_dir() or path.suffix.lower() not in PICTURES:
            one = f"one table ({' or '.join(TABLES)}), pictures ({' '.join(PICTURES)}) or one folder of them"
            raise ValueError(f"{path} cannot be read here; give {one}")
    if wanted.image is None or wanted.largest is None:
        raise ValueError(f"{shown[0]} is a picture; this net takes tables of {wanted.inputs} columns")
    together = len({path.parent for path in shown}) == 1
    names = [path.name if together else str(path) for path in shown]
    return names, Pictures(shown, wanted)


def _in_folder(folder: Path, say: Callable[[str], None]) -> list[Path]:
    there = sorted(path for path in folder.iterdir() if path.name[0] != ".")
    found = [path for path in there if path.suffix.lower() in PICTURES]
    if not found:
        raise ValueError(f"{folder} holds no pictures ({' '.join(PICTURES)})")
    if others := [path.name for path in there if path not in found]:
        say(f"left out, being no pictures: {', '.join(others[:5])}{' …' * (len(others) > 5)}")
    return found


def _array(path: Path, wanted: Wanted) -> np.ndarray:
    # NumPy reads the header as a Python literal, and raises whatever comes of one that is broken.
    broken = (ValueError, EOFError, SyntaxError, TypeError, OverflowError, RecursionError, tokenize.TokenError)
    try:
        with warnings.catch_warnings(action="ignore"):
            # Unlike np.load, this compares the size in the header with that of the file before it asks for memory.
            found = np.lib.format.open_memmap(path, mode="r")
    except broken as error:
        raise ValueError(f"{path} is not a whole .npy file of numbers: {error}") from None
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds {found.dtype}, not numbers")
    shape = (*[wanted.channels][: wanted.channels > 1], *(wanted.image or ()))
    as_pictures = wanted.image is not None and found.shape[1:] == shape
    if not as_pictures and (found.ndim != 2 or found.shape[1] != wanted.inputs):
        shapes = f"(cases, {wanted.inputs})"
        if wanted.image:
            shapes += f" or (cases, {', '.join(map(str, shape))})"
        raise ValueError(f"{path} has shape {found.shape}; the net takes {shapes}")
    return np.array(found.reshape(len(found), wanted.inputs), np.float64)


def _table(path: Path, wanted: Wanted) -> np.ndarray:
    rows: list[np.ndarray] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                if not cells or (not rows and reader.line_num == 1 and _is_header(cells, path, wanted)):
                    continue
                rows.append(_row(cells, f"{path}, line {reader.line_num}", wanted))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a .csv file in UTF-8: {error}") from None
    return np.stack(rows) if rows else np.empty((0, wanted.inputs))


def _is_header(cells: list[str], path: Path, wanted: Wanted) -> bool:
    """Whether the first line holds names, which must be those the net was fitted with where it knows any.

    One with some numbers in it is a case, whose other cells are wrong.
    """
    cells = [cell.strip() for cell in cells]
    numbered = len(cells) > 1 and cells == [str(number) for number in range(len(cells))]  # as pandas names columns
    if cells == wanted.names:
        return True
    if not numbered and (not any(cells) or any(_number(cell) is not None for cell in cells)):
        return False
    if wanted.names is not None and len(cells) == len(wanted.names):
        for number, (name, known) in enumerate(zip(cells, wanted.names, strict=True), start=1):
            if name != known:
                raise ValueError(f"{path}: column {number} is {name!r}, but the net was fitted with {known!r} there")
    _check_count(cells, f"{path}, line 1", wanted)
    return True


def _row(cells: list[str], where: str, wanted: Wanted) -> np.ndarray:
    _check_count(cells, where, wanted)
    found = [_number(cell) for cell in cells]
    for column, (cell, number) in enumerate(zip(cells, found, strict=True), start=1):
        if number is None or not math.isfinite(number):
            raise ValueError(f"{where}, column {column}: {cell!r} is not a finite number")
    return np.array(found, np.float64)


def _check_count(cells: list[str], where: str, wanted: Wanted) -> None:
    if len(cells) != wanted.inputs:
        hint = "; cells are separated by commas" if len(cells) == 1 else ""
        raise ValueError(f"{where}: {len(cells)} column{'s' * (len(cells) > 1)}; the net takes {wanted}{hint}")


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _check_values(path: Path, found: np.ndarray, wanted: Wanted) -> None:
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        case, column = bad[0]
        more = f", and so are {len(bad) - 1:,} more" if len(bad) > 1 else ""
        raise ValueError(f"{path}: [{case}, {column}] is {found[case, column]}{more}; the net takes finite numbers")
    if wanted.largest is None:
        return
    least, most = found.min(), found.max()
    if least < 0 or most > wanted.largest * (1 + 1e-6):
        raise ValueError(
            f"{path}: pixels must be from 0 to {wanted.largest:g}, and these are from {least:g} to {most:g}; "
            "--divide says what white is, such as --divide 255"
        )


def _picture(path: Path, size: tuple[int, int], channels: int) -> np.ndarray:
    """Grey values from 0, black, to 1; or those of red, green and blue, (3, rows, columns)."""
    Image = pictures.pillow()
    # Whatever reads a format raises its own on broken files; pictures that are huge draw a warning.
    broken = (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            problem = _problem(image, size)
            pixels = np.zeros(0) if problem else np.asarray(image if image.mode == DEEP else image.convert("RGBA"))
    except broken as error:
        raise ValueError(f"{path} cannot be read as a picture: {error}") from None
    if problem:
        raise ValueError(f"{path} {problem}")
    if pixels.ndim == 2:
        return np.broadcast_to(pixels.astype(np.float64) / 65535, (channels, *pixels.shape))
    red, green, blue, opacity = np.moveaxis(pixels, -1, 0)
    if (opacity < 255).any():
        raise ValueError(f"{path} is transparent in places; put it on a background first")
    if channels > 1:
        return np.stack((red, green, blue)).astype(np.float64) / 255
    if (red != green).any() or (red != blue).any():
        raise ValueError(f"{path} is in colour; save it in grey first")
    return np.asarray(red, np.float64) / 255


def _squeezed(path: Path, size: tuple[int, int], channels: int) -> np.ndarray:
    """Red, green and blue from 0 to 1, of a photograph that was prepared as data/imagenet.py prepares them."""
    assert size[0] == size[1] and channels == 3
    pixels = np.empty((*size, channels), np.uint8)
    try:
        pictures.decode(pictures.resized(path.read_bytes(), size[0])[0], pixels)
    except pictures.Corrupt as error:
        raise ValueError(f"{path} cannot be read as a picture: {error}") from None
    return pixels.transpose(2, 0, 1) / 255


def _problem(image: Any, size: tuple[int, int]) -> str:
    """What is wrong with a picture that was opened but not yet unpacked; empty where nothing is."""
    rows, columns = size
    if image.size != (columns, rows):
        found = f"has {image.size[1]} x {image.size[0]} pixels, and the net takes {rows} x {columns}"
        return f"{found}; cut and resize it first, as the pictures that the net was trained on were"
    if getattr(image, "n_frames", 1) > 1:
        return "holds several pictures; save each as a file of its own"
    known = ("1", "L", "LA", "P", "RGB", "RGBA", DEEP)
    return "" if image.mode in known else f"has pixels of the kind {image.mode}; save it as 8-bit grey"
