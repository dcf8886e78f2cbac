"""First-layer features as pictures, 100 random ones a panel (A.3, "Effect on features")."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image  # comes with matplotlib

from meannet.report.runs import Array, Run

SHOWN, ACROSS, CHOICE = 100, 10, 0  # features a panel, features side by side, seed of the random choice
MOST_ARMS = 4  # with more, such as where settings are chosen, features are left out unless asked for
PIXELS = 300  # a panel is shown at the largest whole multiple of its size within this


@dataclass(frozen=True)
class Panel:
    """The features of one arm: a picture as a data URI, its size, and how alike neighbouring weights are."""

    arm: str
    shown: int
    uri: str
    width: int  # CSS pixels
    height: int
    smoothness: float


def panels(run: Run) -> tuple[int, list[Panel]] | None:
    """The seed shown and a panel for each arm, the same units in each; None where the inputs are no image."""
    wanted = run.experiment.show_features or (run.image and len(run.arms) <= MOST_ARMS)
    found = run.features() if wanted else None
    if found is None:
        return None
    seed, weights = found
    if run.image and run.experiment.pretrain:  # activities of the net's own machine come after the pixels
        weights = {arm: incoming[:, : run.image[0] * run.image[1]] for arm, incoming in weights.items()}
    units, inputs = next(iter(weights.values())).shape
    shape = run.image or _square(inputs)
    if shape is None or shape[0] * shape[1] != inputs:
        return None
    chosen = np.sort(np.random.default_rng(CHOICE).permutation(units)[:SHOWN])
    made = []
    for arm, incoming in weights.items():
        images = np.nan_to_num(incoming, posinf=0, neginf=0).reshape(units, *shape)
        made.append(panel(arm, grid(images[chosen]), len(chosen), smoothness(images)))
    return seed, made


def panel(arm: str, picture: np.ndarray, shown: int, smooth: float) -> Panel:
    """A picture as it goes into the page."""
    uri = "data:image/png;base64," + base64.b64encode(_png(picture)).decode()
    height, width = (max(1, PIXELS // picture.shape[1]) * side for side in picture.shape[:2])
    return Panel(arm, shown, uri, width, height, smooth)


def grid(images: Array, *, ink: bool = False) -> np.ndarray:
    """Grey and opacity, uint8 (height, width, 2): zero is mid grey, each feature fills its own range around it.

    With `ink` values are those of pixels from 0, which is white, to 1.
    """
    count, height, width = images.shape
    largest = np.abs(images).max((1, 2), keepdims=True)
    grey = 255 * (1 - images) if ink else 127.5 + 127.5 * images / np.where(largest > 0, largest, 1)
    grey = np.rint(grey).astype(np.uint8)
    across = min(ACROSS, count)
    down = -(-count // across)
    picture = np.zeros((down * (height + 1) - 1, across * (width + 1) - 1, 2), np.uint8)
    for k in range(count):
        y, x = k // across * (height + 1), k % across * (width + 1)
        picture[y : y + height, x : x + width] = np.stack((grey[k], np.full_like(grey[k], 255)), -1)
    return picture


def smoothness(images: Array) -> float:
    """Correlation of weights with their right and lower neighbours, each feature about its own mean; 0 for noise."""
    centred = images - images.mean((1, 2), keepdims=True)
    pairs = [(centred[:, :, 1:], centred[:, :, :-1]), (centred[:, 1:], centred[:, :-1])]
    products = sum(float((a * b).sum()) for a, b in pairs)
    squares = sum(float((a * a).sum() + (b * b).sum()) / 2 for a, b in pairs)
    return products / squares if squares else 0.0


def _square(inputs: int) -> tuple[int, int] | None:
    side = round(inputs**0.5)
    return (side, side) if side * side == inputs else None


def _png(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()
