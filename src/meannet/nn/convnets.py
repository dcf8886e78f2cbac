"""The image nets of appendices G and H as PyTorch modules, and how their weights start (F.5)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meannet.config import Conv, Patches
from meannet.core import philox
from meannet.nn.conv import LocallyConnected2d, Pool2d, RandomGroupConv2d, ResponseNorm, Subsampled, TwoInputConv2d
from meannet.nn.dropout import Dropout, counters_kept

UNITS: dict[str, Callable[[Tensor], Tensor]] = {"rectified": F.relu, "logistic": torch.sigmoid}
CIFAR10, CIFAR10_CLASSES = (3, 32, 32), 10
IMAGENET_CLASSES = 1000
NEARLY_ALL = 0.9
LEAST_BIAS = 0.5
G_CONV, G_LOCAL = Conv(), Conv(local=(16,))  # every number of these is in appendix G or a default of Conv


class Rates(NamedTuple):
    """Probability of omitting a unit of a convolutional layer, and of a layer above them."""

    conv: float = 0.0
    top: float = 0.0


class Layer(nn.Module):
    """A weight layer with its units, and what may follow: a pool, response normalisation, dropout.

    `layer` gives the total inputs. Images may come with further channels that are zero, so that they fill what a GPU
    multiplies at a time.
    """

    def __init__(
        self,
        layer: nn.Module,
        units: str | None,
        pool: Pool2d | None = None,
        norm: ResponseNorm | None = None,
        dropout: Dropout | None = None,
    ):
        super().__init__()
        self.layer, self.units, self.pool, self.norm, self.dropout = layer, units, pool, norm, dropout

    @property
    def weight(self) -> Tensor:
        weight = self.layer.weight
        assert isinstance(weight, Tensor)
        return weight

    @property
    def bias(self) -> Tensor:
        bias = self.layer.bias
        assert isinstance(bias, Tensor)
        return bias

    @property
    def shares_filters(self) -> bool:
        """Whether the layer is convolutional: the units of a bank have one filter."""
        return isinstance(self.layer, nn.Conv2d | TwoInputConv2d)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        x = self.activity(x, *others)
        return x if self.dropout is None else self.dropout(x)

    def activity(self, x: Tensor, *others: Tensor) -> Tensor:
        """What the units give before any of them are omitted."""
        activate = UNITS[self.units] if self.units else nn.Identity()
        pool = self.pool or nn.Identity()
        if isinstance(self.layer, nn.Linear):
            x = activate(self.layer(x.flatten(1)))
        elif type(self.layer) is nn.Conv2d and self.pool is not None and self.pool.kind == "max":
            # Bias and units keep the order of total inputs, so they can wait for the maximum, on fewer places.
            x = pool(_convolved(self.layer, x, biased=False))
            x = activate(x + self.bias.to(x.dtype).view(-1, 1, 1))
        elif type(self.layer) is nn.Conv2d:
            x = pool(activate(_convolved(self.layer, x, biased=True)))
        else:
            x = pool(activate(self.layer(x, *others)))
        return x if self.norm is None else self.norm(x)


class ConvNet(nn.Module):
    """Layers one upon another, the last a softmax's total inputs; the second may take the subsampled image too (H)."""

    def __init__(self, shape: tuple[int, int, int], layers: Iterable[Layer], subsampled: Subsampled | None = None):
        super().__init__()
        self.shape, self.subsampled = shape, subsampled
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.activities(x)[-1]

    def activities(self, x: Tensor, last: int | None = None) -> list[Tensor]:
        """What each layer up to the `last` wanted gives before any of its units are omitted; then come the outputs."""
        image, found = x[:, : self.shape[0]], []
        for k, layer in enumerate(self.weight_layers()):
            beside = (self.subsampled(image),) if k == 1 and self.subsampled is not None else ()
            found.append(layer.activity(x, *beside))
            if k == last:
                break
            x = found[-1] if layer.dropout is None else layer.dropout(found[-1])
        return found

    def weight_layers(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def dropouts(self) -> list[Dropout]:
        return [layer.dropout for layer in self.weight_layers() if layer.dropout is not None]

    def first_omitting(self) -> int | None:
        """The first layer that may omit units; what lies below it is the same in all thinned networks."""
        return next((k for k, layer in enumerate(self.weight_layers()) if layer.dropout is not None), None)

    def thinned(self, activity: Tensor, sample: int, first_case: int) -> Tensor:
        """Outputs of the thinned network number `sample`, from the activity of the first layer that omits units."""
        first, layers = self.first_omitting(), self.train().weight_layers()
        dropout = layers[first].dropout if first is not None else None
        assert first is not None and dropout is not None and (first or self.subsampled is None)
        with self.sampling(sample, first_case):
            x = dropout(activity)
            for layer in layers[first + 1 :]:
                x = layer(x)
        return x

    @contextmanager
    def sampling(self, sample: int, first_case: int) -> Iterator[None]:
        """In the block a training pass is one of the thinned network number `sample` of cases from `first_case` on."""
        with counters_kept(self.dropouts()):
            for dropout in self.dropouts():
                dropout.updates.fill_(sample)
                dropout.purpose, dropout.first_case = philox.SAMPLE, first_case
            yield


def _convolved(layer: nn.Conv2d, x: Tensor, *, biased: bool) -> Tensor:
    filters = layer.weight
    if x.shape[1] > layer.in_channels:
        filters = F.pad(filters, (0, 0, 0, 0, 0, x.shape[1] - layer.in_channels))
    return F.conv2d(x, filters, layer.bias if biased else None, layer.stride, layer.padding)


def image_net(
    conv: Conv,
    hidden: Sequence[int] = (),
    classes: int = CIFAR10_CLASSES,
    *,
    shape: tuple[int, int, int] = CIFAR10,
    units: str = "rectified",
    rates: Rates = Rates(),  # noqa: B008, immutable
    seed: int = 0,
) -> ConvNet:
    """Convolutional layers with pools, local layers, dense layers of `hidden` units and the softmax (G)."""
    channels, rows, columns = shape
    layers = []

    def dropout(rate: float) -> Dropout | None:
        return Dropout(rate, seed=seed, layer=len(layers)) if rate else None

    for k, banks in enumerate(conv.banks):
        filters = nn.Conv2d(channels, banks, conv.filter, padding=conv.filter // 2)
        pool = Pool2d(conv.pools[k], conv.pool_size, conv.pool_stride)
        norm = ResponseNorm(conv.norm_size, conv.norm_alpha, conv.norm_beta, form=conv.norm_form)
        layers.append(Layer(filters, units, pool, norm if k < conv.normalised else None, dropout(rates.conv)))
        channels, rows, columns = banks, pool.out_size(rows), pool.out_size(columns)
    for banks in conv.local:
        filters = LocallyConnected2d(
            channels, banks, (rows, columns), conv.local_filter, padding=conv.local_filter // 2
        )
        layers.append(Layer(filters, units, dropout=dropout(rates.top)))
        channels = banks
    width = channels * rows * columns
    for size in hidden:
        layers.append(Layer(nn.Linear(width, size), units, dropout=dropout(rates.top)))
        width = size
    return ConvNet(shape, [*layers, Layer(nn.Linear(width, classes), None)])


def cifar10(*, dropout: bool, seed: int = 0) -> ConvNet:
    """G: three convolutional layers; with dropout also a local layer, half of whose units are omitted."""
    return image_net(G_LOCAL if dropout else G_CONV, rates=Rates(top=0.5 if dropout else 0.0), seed=seed)


def patch_net(
    patches: Patches,
    hidden: Sequence[int] = (),
    classes: int = IMAGENET_CLASSES,
    *,
    units: str = "rectified",
    rate: float = 0.0,
    seed: int = 0,
) -> ConvNet:
    """H: convolutional layers in random groups, the second with two inputs, and dense layers of `hidden` units above.

    224 x 224 pixels become 56 x 56 places (filters of 11 x 11, 4 apart, padded by 4), 28 after a pool, 28 in the second
    layer, whose other input is a 56 x 56 image filtered with stride 2, 14 after its pool and in the layers after it,
    and 7 after the last pool. The filters of layers three to five and the constants of normalisation are not given:
    3 x 3, and those of G.
    """
    places, below, first, layers = patches.size // patches.stride, 3, 0, []
    for k, (banks, size, groups) in enumerate(zip(patches.banks, patches.filters, patches.groups, strict=True)):
        if k == 0:  # so many places that the stride divides the patch: 56 of 224
            padding = -(-((places - 1) * patches.stride + size - patches.size) // 2)
            filters = nn.Conv2d(below, banks, size, stride=patches.stride, padding=padding)
            first = max(0, size // 2 - padding)  # the pixel on which the first filter is centred
        elif k == 1:
            filters = TwoInputConv2d(below, banks, size, groups, seed=seed, layer=k)
        else:
            filters = RandomGroupConv2d(below, banks, size, groups, seed=seed, layer=k, padding=size // 2)
        pool = Pool2d("max", patches.pool_size, patches.pool_stride) if k + 1 in patches.pooled else None
        norm = ResponseNorm(patches.norm_size, patches.norm_alpha, patches.norm_beta, form=patches.norm_form)
        layers.append(Layer(filters, units, pool, norm if k + 1 in patches.normalised else None))
        below, places = banks, pool.out_size(places) if pool else places
    width = below * places**2
    for size in hidden:
        dropout = Dropout(rate, seed=seed, layer=len(layers)) if rate else None
        layers.append(Layer(nn.Linear(width, size), units, dropout=dropout))
        width = size
    shape = 3, patches.size, patches.size
    return ConvNet(shape, [*layers, Layer(nn.Linear(width, classes), None)], Subsampled(patches.stride, first))


def imagenet(*, dropout: bool, classes: int = IMAGENET_CLASSES, seed: int = 0) -> ConvNet:
    """H with every number that it gives; with dropout two dense layers above, half of whose units are omitted."""
    hidden, rate = ((4096, 4096), 0.5) if dropout else ((), 0.0)
    return patch_net(Patches(), hidden, classes, rate=rate, seed=seed)


@torch.no_grad()
def start_(net: ConvNet, seed: int, spreads: Sequence[float], output_sd: float = 0.01, bias: float = 1.0) -> ConvNet:
    """Normal weights of the given sds, hidden biases at `bias` (1 in F.5), output biases at 0; from the seed alone."""
    hidden = net.weight_layers()[:-1]
    for k, (layer, sd) in enumerate(zip(net.weight_layers(), [*spreads, output_sd], strict=True)):
        layer.weight.copy_(philox.normal(seed, k, layer.weight.numel()).view(layer.weight.shape) * sd)
        layer.bias.fill_(bias if k < len(hidden) else 0.0)
    return net


@torch.no_grad()
def working_spreads(
    net: ConvNet, x: Tensor, bias: float = 1.0, *, first: float = 2**-14, last: float = 100.0
) -> list[float]:
    """An sd for each hidden layer's weights, from below: variances are tried until an initialisation works (F.5).

    The variance is doubled until a unit's total input varies from case to case at least half as much as the bias is
    large: with less, all cases look alike to the layers above, since activities that the bias alone brings about are
    much the same in all. It is halved again while more than a tenth of the units get no positive total input from any
    of the cases x. Beside a bias of zero or less every variance would be large enough and none small enough; one under
    `LEAST_BIAS` is taken as that. The net is left with these weights, drawn from seed 0, and the bias judged by.
    """
    found, image, bias = [], x, max(bias, LEAST_BIAS)
    net.eval()
    for k, layer in enumerate(net.weight_layers()[:-1]):
        beside = (net.subsampled(image),) if k == 1 and net.subsampled is not None else ()
        if isinstance(layer.layer, nn.Linear):
            x = x.flatten(1)
        drawn = philox.normal(0, k, layer.weight.numel()).view(layer.weight.shape)
        layer.weight.copy_(drawn)
        layer.bias.zero_()
        total = layer.layer(x, *beside)  # which grows as the sd does
        spread = total.std(0).mean()
        most = total.amax((0, 2, 3) if layer.shares_filters else 0)  # of each filter
        sd = first
        while spread * sd < bias / 2:
            if sd >= last:
                raise ValueError(f"inputs of layer {k + 1} hardly vary with weights of sd {sd:g}; give conv.initial_sd")
            sd *= 2**0.5
        while (most * sd + bias > 0).double().mean() < NEARLY_ALL:
            sd /= 2**0.5
        found.append(sd)
        layer.weight.mul_(sd)
        layer.bias.fill_(bias)
        x = layer(x, *beside)
    return found


class NoRateError(ValueError):
    """No learning rate that was tried will do."""


def largest_rate(reduces: Callable[[float], bool], *, first: int = 0, last: int = -8) -> float:
    """The largest power of ten from 10^first down to 10^last of which `reduces` says that the objective falls (F.7)."""
    for power in range(first, last - 1, -1):
        if reduces(10.0**power):
            return 10.0**power
    raise NoRateError(f"no learning rate from 1e{first} to 1e{last} reduces the objective; look at the initial weights")
