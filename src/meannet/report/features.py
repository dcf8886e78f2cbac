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
    shape = shape_of(run, next(iter(weights.values())).shape[1])
    return None if shape is None else (seed, [some_of(arm, incoming, shape) for arm, incoming in weights.items()])


def some_of(arm: str, weights: Array, shape: tuple[int, int]) -> Panel:
    """A random choice of features, (units, inputs), of which all are looked at for smoothness."""
    chosen = np.sort(np.random.default_rng(CHOICE).permutation(len(weights))[:SHOWN])
    images = np.nan_to_num(weights, posinf=0, neginf=0).reshape(len(weights), *shape)
    return panel(arm, grid(images[chosen]), len(chosen), smoothness(images))


def panel(arm: str, picture: np.ndarray, shown: int, smooth: float) -> Panel:
    """A picture as it goes into the page."""
    height, width = (max(1, PIXELS // picture.shape[1]) * side for side in picture.shape[:2])
    return Panel(arm, shown, png_uri(picture), width, height, smooth)


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


def shape_of(run: Run, inputs: int) -> tuple[int, int] | None:
    """Rows and columns of the inputs as a picture, a square where the run does not say; None where they are none."""
    side = round(inputs**0.5)
    rows, columns = run.image or (side, side)
    return (rows, columns) if rows * columns == inputs else None


def png_uri(picture: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
