"""Views of an image (H): random patches and their reflections to learn from, ten fixed ones to be judged by."""

import torch
from torch import Tensor

from meannet.core import philox


def centred_views(
    images: Tensor, mean: Tensor, seed: int | Tensor, update: int | Tensor, size: int = 224, first: int = 0
) -> Tensor:
    """A patch of each image, (cases, channels, size, size), at a random place, reflected half of the time.

    Images may be bytes; the mean of each pixel, (channels, rows, columns), is subtracted. Place and reflection are a
    function of the seed, the update and the case's place in the mini-batch, of which these are the cases from `first`
    on. Seed, as (1,), and update may be tensors on the images' device.
    """
    row, column = places(images, seed, update, size, first)
    cases = torch.arange(len(images), device=images.device)
    patches = images[cases[:, None, None], :, row[:, :, None], column[:, None, :]]
    means = mean[:, row[:, :, None], column[:, None, :]].permute(1, 2, 3, 0)
    return (patches - means).permute(0, 3, 1, 2)


def places(images: Tensor, seed: int | Tensor, update: int | Tensor, size: int, first: int) -> tuple[Tensor, Tensor]:
    """Rows and columns, (cases, size), of each image's random patch; columns run backwards where it is reflected."""
    rows, columns = images.shape[-2:]
    _check(images, size)
    cases = torch.arange(first, first + len(images), device=images.device)
    seeds = seed if isinstance(seed, Tensor) else torch.tensor([seed], device=images.device)
    down, right, flip, _ = (w.view(-1) for w in philox.words(seeds, philox.VIEW, 0, update, cases, 1))
    down, right, flip = down % (rows - size + 1), right % (columns - size + 1), flip % 2
    across = torch.arange(size, device=images.device)
    return down[:, None] + across, right[:, None] + torch.where(flip[:, None] == 1, size - 1 - across, across)


def ten_views(images: Tensor, size: int = 224) -> Tensor:
    """The centre, the four corners and their reflections: (cases, 10, channels, size, size)."""
    rows, columns = images.shape[-2:]
    _check(images, size)
    low, wide = rows - size, columns - size
    places = [(low // 2, wide // 2), (0, 0), (0, wide), (low, 0), (low, wide)]
    patches = [images[..., top : top + size, left : left + size] for top, left in places]
    return torch.stack([*patches, *(patch.flip(-1) for patch in patches)], 1)


def _check(images: Tensor, size: int) -> None:
    if min(images.shape[-2:]) < size:
        raise ValueError(f"images of {images.shape[-2]} x {images.shape[-1]} have no patches of {size} x {size}")
