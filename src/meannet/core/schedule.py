"""Learning rate and momentum as functions of the epoch (A.1, F.7), to be read off as plain numbers."""

from collections.abc import Sequence


def learning_rate(epoch: int, *, start: float, decay: float = 1.0, cuts: Sequence[int] = ()) -> float:
    """start * decay^epoch, divided by ten at each epoch named in `cuts`; epochs count from 0."""
    return start * decay**epoch * 0.1 ** sum(epoch >= cut for cut in cuts)


def momentum(epoch: int, *, start: float, end: float, ramp: int, sudden: bool = False) -> float:
    """Rises linearly from `start` to `end` over the first `ramp` epochs, or all at once after them, and stays there.

    A.1's formula swaps the two ends; its text, followed here, says that momentum starts at 0.5 and is increased.
    """
    if epoch >= ramp:
        return end
    return start if sudden else start + (end - start) * epoch / ramp
