"""Testing on ten views of each picture in shards (H): the mean network, and sampled networks beside it (body)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meannet.core.mean import arithmetic_mean
from meannet.data.stream import Stream
from meannet.nn.convfleet import ConvFleet
from meannet.nn.convnets import ConvNet
from meannet.patches import Prepared, as_images, batches
from meannet.ranks import Ranks
from meannet.views import ten_views

AT_ONCE = 64  # pictures; ten views each
TOP = 5


@torch.no_grad()
def judge(
    fleet: ConvFleet, data: Prepared, part: str, cases: np.ndarray, ranks: Ranks, workers: int, *, views: int = 10
) -> dict[str, float]:
    """Errors, cases whose label is not among the best five, and log probability, of the mean network's average views.

    With one view it is the centre. Ranks share the cases.
    """
    net, own = fleet.nets[0].eval(), cases[ranks.rank :: ranks.world]
    total = torch.zeros(3, dtype=torch.float64, device=fleet.device)
    for images, right in _blocks(fleet, data, part, own, workers):
        found = averaged(net, fleet, images, views)
        best = found.topk(min(TOP, found.shape[1]), dim=1).indices
        total[0] += (best[:, 0] != right).sum()
        total[1] += (best != right[:, None]).all(1).sum()
        total[2] += found.gather(1, right[:, None]).sum()
    ranks.total_(total)
    wrong, beyond, log_probability = total.tolist()
    return {"errors": int(wrong), "top5_errors": int(beyond), "log_probability": log_probability / len(cases)}


def averaged(net: ConvNet, fleet: ConvFleet, images: Tensor, views: int = 10) -> Tensor:
    """Log of the mean probability, float64 (cases, classes), over ten views of each picture, or of its centre alone."""
    seen = _centred(net, fleet, images)[:, :views].flatten(0, 1).contiguous(memory_format=torch.channels_last)
    return arithmetic_mean(net(seen).double().log_softmax(-1).unflatten(0, (len(images), -1)).transpose(0, 1))


@torch.no_grad()
def sampled(
    fleet: ConvFleet, data: Prepared, part: str, cases: np.ndarray, workers: int, counts: Sequence[int]
) -> dict[str, Any]:
    """Errors of the mean network, and of the arithmetic and the geometric mean of the first 1..count sampled networks.

    A case's thinned network sees all of its ten views, and its probabilities are averaged over them, as those of the
    mean network are. What lies below the first layer that omits units is the same for all, and computed once.
    """
    net, wrong = fleet.nets[0], torch.zeros(2, len(counts), dtype=torch.int64, device=fleet.device)
    mean_network, done = torch.zeros((), dtype=torch.int64, device=fleet.device), 0
    first = net.first_omitting()
    for images, right in _blocks(fleet, data, part, cases, workers):
        below, whole = [], []
        net.eval()
        for view in _centred(net, fleet, images).unbind(1):
            found = net.activities(view.contiguous(memory_format=torch.channels_last))
            whole.append(found[-1].log_softmax(-1))
            below += [found[first]] if first is not None else []
        mean_network += (arithmetic_mean(torch.stack(whole)).argmax(1) != right).sum()
        logs = probabilities = torch.zeros((), device=fleet.device)
        for sample in range(counts[-1]):
            seen = [net.thinned(activity, sample, done).log_softmax(-1) for activity in below] or whole
            own = arithmetic_mean(torch.stack(seen))
            # Neither renormalising nor dividing by the count moves the largest probability.
            logs, probabilities = logs + own, probabilities + own.exp()
            if sample + 1 in counts:
                column = counts.index(sample + 1)
                wrong[0, column] += (probabilities.argmax(1) != right).sum()
                wrong[1, column] += (logs.argmax(1) != right).sum()
        done += len(images)
    arithmetic, geometric = wrong.tolist()
    return {"mean_network": int(mean_network), "arithmetic": arithmetic, "geometric": geometric}


def _centred(net: ConvNet, fleet: ConvFleet, images: Tensor) -> Tensor:
    """Ten views as the net takes them, (cases, 10, 3, rows, columns)."""
    return ten_views((images.to(fleet.device).float() - fleet.mean) * fleet.scale, net.shape[1])


def _blocks(
    fleet: ConvFleet, data: Prepared, part: str, cases: np.ndarray, workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Pictures as bytes, and their labels on the fleet's device."""
    with Stream(data.folder, part, AT_ONCE, workers) as stream:
        blocks = [cases[first : first + AT_ONCE] for first in range(0, len(cases), AT_ONCE)]
        for pixels, labels in batches(stream, blocks):
            yield as_images(pixels), torch.from_numpy(labels).to(fleet.device)
