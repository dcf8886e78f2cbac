"""Philox 4x32-10 over again, in Python integers: what the tensor version is held against."""

from collections.abc import Callable

import pytest

WORD = 0xFFFFFFFF


def philox_in_integers(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 1 << 32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


@pytest.fixture(scope="session")
def integers() -> Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]:
    """Four words from a counter of four and a key of two."""
    return philox_in_integers


@pytest.fixture(scope="session")
def draw16() -> Callable[..., int]:
    """The 16-bit draw of one unit, in [0, 65535], at (seed, purpose, layer, update, row, column)."""

    def draw(seed: int, purpose: int, layer: int, update: int, row: int, column: int) -> int:
        counter = (column // 8, row, purpose << 24 | layer, update)
        four = philox_in_integers(counter, (seed & WORD, seed >> 32))
        word = four[column % 8 // 2]
        return word >> 16 if column % 2 else word & 0xFFFF

    return draw
