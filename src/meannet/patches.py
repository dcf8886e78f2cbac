"""Learning from random patches of pictures in shards (H), by one process or several.

Cases, patches and masks are functions of the seed, the epoch and the place in it. Where several processes share a
mini-batch, each has a run of its places, so that all together do what one alone would.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meannet import imagefleets
from meannet.config import Experiment
from meannet.core import philox
from meannet.data import imagenet, shards
from meannet.data.stream import Stream
from meannet.images import Learner, Stepped, stepped_
from meannet.nn.convfleet import ConvFleet
from meannet.nn.convnets import patch_net, working_spreads
from meannet.ranks import Ranks, averaging
from meannet.train import Tally
from meannet.views import centred_views


@dataclass(frozen=True)
class Prepared:
    """A prepared set: what a run needs to know before it reads any picture."""

    folder: Path
    classes: tuple[str, ...]
    size: int  # rows and columns of a picture
    cases: int  # to learn from
    judged: str  # the part that nets are judged on
    n_test: int
    mean: Tensor  # (3, size, size)
    digest: str
    name: str = imagenet.NAME


def open_prepared(*, held_out: bool) -> Prepared:
    """The set in the data folder; nets are judged on its test part where there is one and no choices are made."""
    folder = imagenet.where()
    document = shards.read_index(folder)
    parts = document["parts"]
    judged = "test" if "test" in parts and not held_out else "val"
    for part in ("train", judged):  # now, and not where the first test is due, hours later
        shards.read_cases(folder, document, part)
    mean = torch.from_numpy(shards.read_mean(folder, document)).permute(2, 0, 1).contiguous()
    return Prepared(
        folder=folder,
        classes=_names(document["classes"]),
        size=document["size"],
        cases=parts["train"]["cases"],
        judged=judged,
        n_test=parts[judged]["cases"],
        mean=mean,
        digest=document["digest"],
    )


def _names(classes: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """What each class is called; of those that share their words, as a bird and a machine do, with its id."""
    counts = Counter(one["words"] for one in classes)
    return tuple(one["words"] if counts[one["words"]] == 1 else f"{one['words']} ({one['id']})" for one in classes)


def make_fleet(experiment: Experiment, data: Prepared, where: torch.device) -> ConvFleet:
    """The one net of the experiment, from its seed; variances are tried on the first pictures of the first epoch."""
    patches, (seed,), (hidden,) = experiment.patches, experiment.seeds, experiment.net.hidden
    assert patches is not None
    if patches.size > data.size:
        raise ValueError(f"patches.size must be at most the {data.size} pixels of a picture, not {patches.size}")

    spreads = patches.initial_sd
    if not spreads:
        few = order(seed, 0, data.cases)[: imagefleets.CASES_TO_TRY]
        with Stream(data.folder, "train", len(few), 0) as stream:
            (pixels,) = (as_images(found).clone() for found in stream.batches([few]))
        views = centred_views(pixels, data.mean, seed, 0, patches.size) * patches.scale
        net = patch_net(patches, hidden, len(data.classes), units=experiment.net.units, seed=seed)
        spreads = working_spreads(net, views, experiment.net.initial_bias)
    return imagefleets.of_patches(experiment, patches, len(data.classes), data.mean, spreads, where)


def order(seed: int, epoch: int, cases: int) -> np.ndarray:
    """The cases of an epoch, each once."""
    return philox.order(torch.tensor([seed]), epoch, cases)[0].numpy()


def plan(
    seed: int, cases: int, batch: int, epochs: int, ranks: Ranks, *, epoch: int = 0, update: int = 0
) -> Iterator[np.ndarray]:
    """This rank's share of every mini-batch from one of an epoch on; of an epoch's last one it may have nothing."""
    own = batch // ranks.world
    for now in range(epoch, epochs):
        whole = order(seed, now, cases)
        for first in range(update * batch, cases, batch):
            yield whole[first : min(first + batch, cases)][ranks.rank * own : (ranks.rank + 1) * own]
        update = 0


class Patched(nn.Module):
    """From pictures as bytes to outputs: random patches, the mean subtracted, the net; and which layers were active."""

    mean: Tensor
    seed: Tensor

    def __init__(self, fleet: ConvFleet, first: int = 0, channels: int = 3):
        super().__init__()
        self.net, self.scale, self.first, self.channels = fleet.nets[0], fleet.scale, first, channels
        assert isinstance(fleet.mean, Tensor)
        self.register_buffer("mean", fleet.mean)
        self.register_buffer("seed", fleet.seeds)
        for dropout in self.net.dropouts():
            dropout.first_case = first

    def forward(self, images: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        x = centred_views(images, self.mean, self.seed, update, self.net.shape[1], self.first) * self.scale
        if self.channels > x.shape[1]:  # zeros, so that they fill what a GPU multiplies at a time
            x = F.pad(x.permute(0, 2, 3, 1), (0, self.channels - x.shape[1])).permute(0, 3, 1, 2)
        *hidden, outputs = self.net.activities(x)
        return outputs, torch.stack([activity.detach().amax() > 0 for activity in hidden])


class Plain:
    """Updates of the net on mini-batches, float32, on any device; with several ranks their gradients are averaged."""

    name = "plain"

    def __init__(
        self,
        fleet: ConvFleet,
        batch: int,
        limit: float,
        ranks: Ranks,
        *,
        channels: int = 3,
        low: bool = False,
        backend: Callable[..., Any] | None = None,
    ):
        tf32 = fleet.device.type == "cuda" and torch.backends.cudnn.allow_tf32
        self.precision = "tf32 convolutions, float32 weights" if tf32 else "float32"
        self.fleet, self.ranks, self.batch, self.own = fleet, ranks, batch, batch // ranks.world
        self.learner, self.low = Learner(fleet, 0, limit), low
        self.stepped: Stepped = stepped_  # may be a compiled one
        patched = Patched(fleet, ranks.rank * self.own, channels)
        if backend is not None:
            patched.compile(dynamic=False, fullgraph=True, backend=backend)
        self.alone = ranks.world == 1
        self.patched: Callable[[Tensor, Tensor], Any] = patched
        if not self.alone:
            self.patched = averaging(patched)
        device = fleet.device
        self.images = torch.zeros(self.own, *_bytes_of(fleet), dtype=torch.uint8, device=device).permute(0, 3, 1, 2)
        self.targets = torch.zeros(self.own, dtype=torch.int64, device=device)
        self.weights = torch.zeros(self.own, device=device)
        self.update = torch.zeros((), dtype=torch.int64, device=device)
        self.step, self.momentum = torch.zeros((), device=device), torch.zeros((), device=device)

    def begin(self, update: int, step: float, momentum: float, tally: Tally | None = None) -> None:
        """Before the first update of an epoch, or where one is taken up again; `update` counts over the run."""
        self.learner.begin(update)
        if tally is not None:
            for name, figure in _figures(self.learner).items():
                figure.copy_(getattr(tally, name)[0])
        self.update.fill_(update)
        self.step.fill_(step)
        self.momentum.fill_(momentum)

    def take(self, pixels: np.ndarray, targets: np.ndarray, cases: int) -> None:
        """This rank's share of a mini-batch of `cases` in all; what it lacks to a full share counts nothing."""
        own = len(targets)
        self.images[:own].copy_(as_images(pixels))
        self.targets[:own].copy_(torch.from_numpy(np.ascontiguousarray(targets)))
        self.weigh(own, cases)

    def weigh(self, own: int, cases: int) -> None:
        self.weights[:own].fill_(self.ranks.world / cases)  # averaged over ranks, this is the mean over cases
        self.weights[own:].fill_(0.0)

    def update_(self) -> None:
        """One update from what was taken; nothing in it waits for the device."""
        learner = self.learner
        with torch.enable_grad():
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if self.low else nullcontext():
                outputs, active = self.patched(self.images, self.update)
            losses = F.cross_entropy(outputs.float(), self.targets, reduction="none")
            loss = (losses * self.weights).sum()
            if self.alone:
                gradients = list(torch.autograd.grad(loss, learner.parameters))
            else:
                for parameter in learner.parameters:
                    parameter.grad = None
                loss.backward()
                gradients = [parameter.grad for parameter in learner.parameters if parameter.grad is not None]
        with torch.no_grad():
            counted = self.weights > 0
            learner.loss += (losses.double() * counted).sum()
            learner.wrong += ((outputs.argmax(1) != self.targets) & counted).sum()
            learner.active |= active
            hidden = gradients[: len(learner.active)]
            learner.moved |= torch.stack(torch._foreach_norm(hidden, math.inf)).amax() > 0
            learner.step_(gradients, self.step, self.momentum, self.stepped)
            self.update += 1

    def tally(self) -> Tally:
        """What the updates since `begin` add up to, over all ranks."""
        found = {name: figure.clone()[None] for name, figure in _figures(self.learner).items()}
        self.ranks.total_(*found.values())
        return Tally(**found)


def as_images(pixels: np.ndarray) -> Tensor:
    """(cases, 3, rows, columns), channels last in memory."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def _bytes_of(fleet: ConvFleet) -> Sequence[int]:
    assert isinstance(fleet.mean, Tensor)
    return (*fleet.mean.shape[1:], 3)


def _figures(learner: Learner) -> dict[str, Tensor]:
    return {"loss": learner.loss, "errors": learner.wrong, "active": learner.active, "moved": learner.moved}


def tally_facts(tally: Tally) -> dict[str, Any]:
    """As JSON."""
    return {name: getattr(tally, name).tolist() for name in ("loss", "errors", "active", "moved")}


def tally_from(facts: dict[str, Any], device: torch.device) -> Tally:
    return Tally(
        loss=torch.tensor(facts["loss"], dtype=torch.float64, device=device),
        errors=torch.tensor(facts["errors"], dtype=torch.int64, device=device),
        active=torch.tensor(facts["active"], dtype=torch.bool, device=device),
        moved=torch.tensor(facts["moved"], dtype=torch.bool, device=device),
    )


def batches(stream: Stream, shares: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pixels and labels of a plan's shares."""
    kept: list[np.ndarray] = []

    def noted() -> Iterator[np.ndarray]:
        for share in shares:
            kept.append(share)
            yield share

    for pixels in stream.batches(noted()):
        yield pixels, stream.labels[kept.pop(0)]
