"""Views of images, against slices taken by hand."""

import pytest
import torch

from meannet.views import centred_views, ten_views


def numbered(cases=3, side=10):
    return torch.arange(cases * 2 * side * side).view(cases, 2, side, side)


def random_views(images, *given, **size):
    return centred_views(images, torch.zeros(images.shape[1:], dtype=images.dtype), *given, **size)


def test_a_random_view_is_a_patch_of_its_own_image_or_its_reflection():
    images = numbered()
    places, flips = set(), 0
    for update in range(60):
        for image, view in zip(images, random_views(images, 7, update, size=8), strict=True):
            patches = {
                (top, left, flipped): patch.flip(-1) if flipped else patch
                for top in range(3)
                for left in range(3)
                for flipped in (False, True)
                for patch in [image[:, top : top + 8, left : left + 8]]
            }
            (place,) = [where for where, patch in patches.items() if patch.equal(view)]
            places.add(place[:2])
            flips += place[2]
    assert len(places) == 9 and abs(flips - 90) < 4.5 * (180 * 0.25) ** 0.5


def test_views_come_from_seed_update_and_place_alone():
    images = numbered(5)
    first = random_views(images, 1, 4, size=6)
    assert random_views(images, 1, 4, size=6).equal(first) and random_views(images[:2], 1, 4, size=6).equal(first[:2])
    assert not random_views(images, 2, 4, size=6).equal(first) and not random_views(images, 1, 5, size=6).equal(first)
    assert random_views(images, 1, 4, size=10).sort(-1)[0].equal(images)


def test_the_ten_views_are_centre_corners_and_their_reflections():
    images = numbered()
    found = ten_views(images, size=6)
    assert found.shape == (3, 10, 2, 6, 6)
    for k, (top, left) in enumerate([(2, 2), (0, 0), (0, 4), (4, 0), (4, 4)]):
        patch = images[:, :, top : top + 6, left : left + 6]
        assert found[:, k].equal(patch) and found[:, 5 + k].equal(patch.flip(-1))
    assert ten_views(torch.zeros(1, 3, 256, 256)).shape == (1, 10, 3, 224, 224)


def test_images_that_are_too_small_are_refused():
    for view in (lambda: ten_views(numbered()), lambda: random_views(numbered(), 0, 0)):
        with pytest.raises(ValueError, match="10 x 10 have no patches of 224 x 224"):
            view()
