"""Testing: the mean network, and averages of sampled thinned networks beside it (body)."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from meannet.core import metrics
from meannet.nn.dense import Fleet
from meannet.nn.own import OwnInputs, block
from meannet.train import Rows

CHUNK_FLOATS = 1 << 25  # activities of one layer held at a time
ON_A_GPU = 4  # times as many, since small parts would leave it idle


def chunks(fleet: Fleet, cases: int) -> Iterator[range]:
    """Ranges of cases small enough to hold one layer's activities."""
    floats = CHUNK_FLOATS * (ON_A_GPU if fleet.device.type == "cuda" else 1)
    size = max(1, floats // fleet.floats_a_case)
    return (range(start, min(start + size, cases)) for start in range(0, cases, size))


@torch.no_grad()
def mean_network_figures(fleet: Fleet, inputs: Rows, targets: Tensor) -> tuple[list[int], list[float]]:
    """Errors and mean log probability of the right answer, per net, of the mean network."""
    wrong = torch.zeros(len(fleet.seeds), dtype=torch.int64, device=fleet.device)
    log_probability = torch.zeros(len(fleet.seeds), dtype=torch.float64, device=fleet.device)
    for part in chunks(fleet, len(inputs)):
        outputs = fleet.mean_outputs(block(inputs, part))
        right = targets[part.start : part.stop]
        wrong += metrics.errors(outputs, right)
        log_probability -= metrics.losses(outputs, right.expand(len(outputs), -1), "softmax")
    return wrong.tolist(), (log_probability / len(inputs)).tolist()


@torch.no_grad()
def sampled_errors(
    fleet: Fleet, inputs: Rows, targets: Tensor, counts: list[int], stop: Callable[[], bool] = lambda: False
) -> tuple[list[list[int]], list[list[int]]] | None:
    """Errors, [net][count], of the arithmetic and of the geometric mean of the first 1..count sampled networks.

    A net that omits nothing is all of its sampled networks. None when `stop` said so before the end.
    """
    wrong = torch.zeros(2, len(fleet.seeds), len(counts), dtype=torch.int64, device=fleet.device)
    drawn = [net for net in range(len(fleet.seeds)) if fleet.omits(net)]
    if len(drawn) < len(fleet.seeds):
        wrong += torch.tensor(mean_network_figures(fleet, inputs, targets)[0], device=fleet.device)[None, :, None]
        wrong[:, drawn] = 0
    if not drawn:
        arithmetic, geometric = wrong.tolist()
        return arithmetic, geometric
    fleet = fleet.pick(drawn)
    for part in chunks(fleet, len(inputs)):
        x, right = block(inputs, part), targets[part.start : part.stop]
        if isinstance(inputs, OwnInputs):
            x = x[drawn]
        outputs, logs, probabilities = fleet.sampler(x, part), 0.0, 0.0
        for sample in range(counts[-1]):
            if stop():
                return None
            log_probs = outputs(sample).log_softmax(-1)
            # Neither renormalising nor dividing by the count moves the largest probability.
            logs, probabilities = logs + log_probs, probabilities + log_probs.exp()
            if sample + 1 in counts:
                column = counts.index(sample + 1)
                wrong[0, drawn, column] += metrics.errors(probabilities, right)
                wrong[1, drawn, column] += metrics.errors(logs, right)
    arithmetic, geometric = wrong.tolist()
    return arithmetic, geometric


def sample_counts(samples: int) -> list[int]:
    """1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, ... up to and including `samples`."""
    if samples < 1:
        raise ValueError(f"the number of sampled networks must be 1 or more, not {samples}")
    steps = [round(base * 10**power) for power in range(7) for base in (1, 1.5, 2, 3, 5, 7)]
    return sorted({step for step in steps if step < samples} | {samples})
