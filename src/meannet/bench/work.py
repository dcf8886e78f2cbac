"""What everyone is asked to do: the net and settings of A.1, cases, and weights that have begun to learn."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from meannet.data import Cases
    from meannet.nn.dense import Fleet

SIZES = (784, 1200, 1200, 10)
UNITS = {"rectified": "relu", "logistic": "logistic"}  # here and in the table
LEARNING_RATES = {"rectified": 1.0, "logistic": 10.0}  # A.1 has 10, at which rectified units die
INITIAL_BIASES = {"rectified": 0.0, "logistic": -2.0}
LEARNED = 600  # updates before the clock starts, an epoch of MNIST: how many units are zero depends on what was learned
INSTEAD = "scikit-learn's digits, doubled and centred in 28 x 28; MNIST is not in the data folder"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The numbers of a piece of work."""

    sizes: tuple[int, ...] = SIZES
    units: str = "rectified"
    nets: int = 1
    batch: int = 100
    updates: int = 50  # that one timing makes
    visible: float = 0.2
    hidden: float = 0.5
    momentum: float = 0.9
    limit: float = 15.0
    device: str = "cpu"
    path: str = "auto"  # of our own update

    @property
    def step(self) -> float:
        """What multiplies the gradient (A.1)."""
        return (1 - self.momentum) * LEARNING_RATES[self.units]

    @property
    def rates(self) -> list[float]:
        return [self.visible] + [self.hidden] * (len(self.sizes) - 2)


@dataclass(frozen=True, kw_only=True)
class Work(Settings):
    """The same with cases and a net, as numpy arrays; what a peer's `prepare` is given."""

    inputs: "np.ndarray"  # (cases, visible) float32
    targets: "np.ndarray"  # (cases,) int64
    weights: "list[np.ndarray]"  # (units, inputs) each, in the paper's convention
    biases: "list[np.ndarray]"

    @property
    def mean_weights(self) -> "list[np.ndarray]":
        """The mean network's, which is where dropout that scales while training starts from."""
        return [weight * weight.dtype.type(1 - r) for weight, r in zip(self.weights, self.rates, strict=True)]


def cases(count: int) -> "tuple[Cases, str]":
    """Training cases and what they are: MNIST's where it is at hand, and nothing is fetched."""
    import torch

    from meannet.data import Cases, digits, mnist

    if mnist.status().present:
        found, name = mnist.load(held_out=False, say=print).train, "mnist"
    else:
        whole = digits.load(held_out=False, say=print)
        # Doubled they cover as much of the picture as MNIST's do: 17 % of the pixels are not dark, and 19 %.
        images = whole.test.inputs.view(-1, 8, 8).repeat_interleave(2, 1).repeat_interleave(2, 2)
        found, name = Cases(torch.nn.functional.pad(images, (6, 6, 6, 6)).flatten(1), whole.test.targets), INSTEAD
    again = torch.arange(count) % len(found.inputs)
    return Cases(found.inputs[again], found.targets[again]), name


def begun(settings: Settings, learn: "Cases", updates: int = LEARNED) -> "Fleet":
    """A net that has made some updates by our own path; without them every net is alike."""
    from meannet import fast

    fleet = fresh(replace(settings, nets=1))
    for epoch in range(-(-updates * settings.batch // len(learn.inputs))):
        part = min(updates * settings.batch - epoch * len(learn.inputs), len(learn.inputs))
        inputs, targets = learn.inputs[:part].to(fleet.device), learn.targets[:part].to(fleet.device)
        engine = fast.engine(fleet, inputs, targets, settings.batch, [settings.limit])
        engine.epoch(epoch, [settings.step], settings.momentum, lambda: False)
    return fleet


def fresh(settings: Settings) -> "Fleet":
    """A fleet at the start of training."""
    import torch

    from meannet.nn.dense import initial_fleet

    return initial_fleet(
        settings.sizes,
        range(settings.nets),
        [torch.full((settings.nets, 1), rate, dtype=torch.float64) for rate in settings.rates],
        units=settings.units,
        bias=INITIAL_BIASES[settings.units],
        device=settings.device,
    )


def write(folder: Path, learn: "Cases", nets: "dict[str, Fleet]") -> None:
    """Cases, and a net for each kind of units, where processes that take part find them."""
    from safetensors.torch import save_file

    tensors = {"inputs": learn.inputs, "targets": learn.targets}
    for units, fleet in nets.items():
        tensors |= {f"{units}.{name}": tensor[0].cpu() for name, tensor in fleet.state().items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "work.safetensors")


def read(folder: Path, settings: Settings) -> Work:
    """A piece of work with the cases and, where one was written, the net that has begun to learn."""
    from safetensors.numpy import load_file

    tensors = load_file(folder / "work.safetensors")
    layers = range(len(settings.sizes) - 1 if f"{settings.units}.weights.0" in tensors else 0)
    return Work(
        **asdict(settings),
        inputs=tensors["inputs"],
        targets=tensors["targets"],
        weights=[tensors[f"{settings.units}.weights.{k}"] for k in layers],
        biases=[tensors[f"{settings.units}.biases.{k}"] for k in layers],
    )


def from_json(document: dict[str, Any]) -> Settings:
    return Settings(**document | {"sizes": tuple(document["sizes"])})


def net_name(sizes: Sequence[int]) -> str:
    return "-".join(map(str, sizes))
