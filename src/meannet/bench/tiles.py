"""`python -m meannet.bench.tiles`: updates of dense nets on the GPU at hand with other tiles than fast/cuda.py has.

One setting is changed at a time, and all are timed in turns. What is faster than the first row, beyond the spread, is
to be written into fast/cuda.py by hand.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from meannet.fast.units import triton_is_there
from meannet.nn import dense

SIZES, BATCH, CASES = (784, 1200, 1200, 10), 100, 12_000
TRIED: dict[int, dict[str, Sequence[Any]]] = {  # settings of fast/cuda.py, by the number of nets that they matter to
    1: {
        "LAYER_OF_FEW": ((64, 32, 64, 4, 4), (64, 64, 128, 4, 3), (128, 32, 128, 4, 3)),
        "HIDDEN_STEP": ((64, 64, 128, 4, 2, 128), (64, 32, 128, 4, 2), (64, 128, 128, 8, 2, 128)),
    },
    20: {
        "LAYER_OF_MANY": ((64, 64, 64, 4, 4), (64, 64, 128, 4, 3), (64, 128, 64, 4, 3), (128, 64, 64, 8, 3)),
        "HIDDEN_STEP": (
            *((64, 64, 64, 4, 3), (64, 64, 128, 4, 2, 128), (64, 64, 32, 4, 4, 128)),
            *((64, 128, 64, 8, 3, 128), (128, 64, 64, 8, 3, 128), (128, 128, 64, 8, 2)),
        ),
        "LANES": (2, 4, 5),
    },
}


@contextmanager
def instead(name: str, value: Any) -> Iterator[None]:
    """With another value of a setting of fast/cuda.py."""
    from meannet.fast import cuda

    before = getattr(cuda, name)
    setattr(cuda, name, cuda.Tile(*value) if isinstance(value, tuple) else value)
    try:
        yield
    finally:
        setattr(cuda, name, before)


class Timed:
    """A fleet on the GPU, captured with the settings that hold when it is made."""

    def __init__(self, nets: int):
        from meannet.fast.cuda import Captured

        rates = [torch.full((nets, 1), rate, dtype=torch.float64) for rate in (0.2, *[0.5] * (len(SIZES) - 2))]
        fleet = dense.initial_fleet(SIZES, range(nets), rates, units="logistic", device="cuda")
        inputs = torch.rand(CASES, SIZES[0], device="cuda")
        targets = torch.arange(CASES, device="cuda") % SIZES[-1]
        self.engine = Captured(fleet, inputs * (inputs > 0.8), targets, BATCH, [15.0] * nets)
        self.nets, self.epochs = nets, 0
        self.seconds()  # compiles and captures

    def seconds(self) -> float:
        """Of one epoch, with its begin and end."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.engine.epoch(self.epochs, [1.0] * self.nets, 0.9, lambda: False)
        torch.cuda.synchronize()
        self.epochs += 1
        return time.perf_counter() - start


def compare(nets: int, repeats: int) -> list[tuple[str, list[float]]]:
    """Settings, as they are first, and microseconds an update and net in each repeat."""
    made = [("as it is", Timed(nets))]
    for name, values in TRIED[nets].items():
        for value in values:
            with instead(name, value):
                try:
                    made.append((f"{name} {value}", Timed(nets)))
                except RuntimeError as error:  # such as too much shared memory
                    print(f"{name} {value}: {' '.join(str(error).split())[:100]}", file=sys.stderr)
    found: list[tuple[str, list[float]]] = [(name, []) for name, _ in made]
    for _ in range(repeats):
        for (_, timed), (_, speeds) in zip(made, found, strict=True):
            speeds.append(1e6 * timed.seconds() / (CASES // BATCH * nets))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m meannet.bench.tiles", description=__doc__)
    parser.add_argument("--nets", type=int, choices=tuple(TRIED), action="append", help="both where not given")
    parser.add_argument("--repeats", type=int, default=9, metavar="N")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats must be 1 or more, not {options.repeats}")
    if not (torch.cuda.is_available() and triton_is_there()):
        print("meannet.bench.tiles: needs a CUDA device and Triton", file=sys.stderr)
        return 1
    for nets in options.nets or TRIED:
        for name, speeds in compare(nets, options.repeats):
            median, least, most = statistics.median(speeds), min(speeds), max(speeds)
            print(f"{nets:>3} nets  {median:6.2f} µs ({least:.2f} to {most:.2f})  {name}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
