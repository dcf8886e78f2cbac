"""Image nets as a fleet (F, G): nets of one shape whose parameters lie side by side, as those of dense nets do.

Each net is a module, and its parameters are views of the fleet's tensors: what trains, saves or restores the one does
so to the other. Nets take turns; a convolution of one net has enough to do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from meannet.nn import dense
from meannet.nn.convnets import ConvNet, start_


@dataclass
class ConvFleet(dense.Fleet):
    """A fleet whose weights are (nets, units, incoming weights); a convolution's are (row, column, channel) by unit."""

    nets: Sequence[ConvNet] = ()
    mean: Tensor | float = 0.0  # of each pixel over the training cases
    scale: float = 1.0
    decays: Sequence[tuple[float, float]] = ()  # of each net: of convolutional filters, of the weights above them

    @property
    def floats_a_case(self) -> int:
        _, rows, columns = self.nets[0].shape
        layers = [layer.layer for layer in self.nets[0].weight_layers()]
        return max(len(_bias(layer)) * (rows * columns if _convolves(layer) else 1) for layer in layers)

    def centred(self, images: Tensor) -> Tensor:
        """Pixels as the nets take them: less the mean, times the scale, channels last; a grey image may be one row."""
        images = images.reshape(-1, *self.nets[0].shape).float()
        return ((images - self.mean) * self.scale).contiguous(memory_format=torch.channels_last)

    def omits(self, net: int) -> bool:
        return bool(self.nets[net].dropouts())

    def pick(self, nets: Sequence[int], device: torch.device | str | None = None) -> "ConvFleet":
        """Some of the nets to be judged by; their modules are those of the fleet, and stay where they are."""
        assert device is None or torch.device(device) == self.device
        return replace(self, seeds=self.seeds[list(nets)], nets=[self.nets[net] for net in nets])

    def mean_outputs(self, inputs: Tensor) -> Tensor:
        x = self.centred(inputs)
        return torch.stack([net.eval()(x) for net in self.nets])

    def sampled_outputs(self, inputs: Tensor, sample: int, cases: range) -> Tensor:
        return self.sampler(inputs, cases)(sample)

    def sampler(self, inputs: Tensor, cases: range) -> Callable[[int], Tensor]:
        x = self.centred(inputs)
        below = [net.activities(x, net.first_omitting())[-1] for net in self.nets]

        def outputs(sample: int) -> Tensor:
            pairs = zip(self.nets, below, strict=True)
            return torch.stack([net.thinned(own, sample, cases.start) if net.dropouts() else own for net, own in pairs])

        return outputs

    def parameters(self, net: int) -> list[Tensor]:
        """Weights and then biases of one net, in the shapes of its layers."""
        return self._of(net, self.weights, self.biases)

    def velocities(self, net: int) -> list[Tensor]:
        """In the same order and shapes."""
        return self._of(net, self.weight_velocities, self.bias_velocities)

    def _of(self, net: int, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Tensor]:
        layers = [layer.layer for layer in self.nets[net].weight_layers()]
        return [_shaped(w[net], layer) for w, layer in zip(weights, layers, strict=True)] + [b[net] for b in biases]


def conv_fleet(
    nets: Sequence[ConvNet],
    seeds: Sequence[int],
    spreads: Sequence[float] | None,
    *,
    output_sd: float,
    bias: Sequence[float],
    units: str,
    mean: Tensor | float = 0.0,
    scale: float = 1.0,
    decays: Sequence[tuple[float, float]] = (),
    device: torch.device | str = "cpu",
) -> ConvFleet:
    """Start each net from its seed, unless its weights are to come from a state, and put all of them side by side."""
    for net, seed, own in zip(nets, seeds, bias, strict=True):
        if spreads is not None:
            start_(net, seed, spreads, output_sd, own)
    layers = [[layer.layer for layer in net.weight_layers()] for net in nets]
    weights = [torch.stack([_flat(layer) for layer in same]).to(device) for same in zip(*layers, strict=True)]
    biases = [torch.stack([_bias(layer) for layer in same]).to(device) for same in zip(*layers, strict=True)]
    fleet = ConvFleet(
        units=units,
        output="softmax",
        seeds=torch.tensor(list(seeds), device=device),
        rates=[],
        weights=weights,
        biases=biases,
        weight_velocities=[torch.zeros_like(w) for w in weights],
        bias_velocities=[torch.zeros_like(b) for b in biases],
        nets=[net.to(device) for net in nets],
        mean=mean.to(device) if isinstance(mean, Tensor) else mean,
        scale=scale,
        decays=decays or [(0.0, 0.0)] * len(nets),
    )
    for net in range(len(nets)):
        own = fleet.parameters(net)
        for k, layer in enumerate(layers[net]):
            layer.weight, layer.bias = nn.Parameter(own[k]), nn.Parameter(own[len(weights) + k])
    return fleet


def pixel_mean(images: Tensor) -> Tensor:
    """Of each pixel over the cases; for pixels that are bytes exact before it is rounded."""
    sums = torch.stack([part.double().sum(0) for part in images.split(5000)]).sum(0)
    return (sums / len(images)).float()


def _flat(layer: Any) -> Tensor:
    weight = layer.weight.detach()
    return (weight.permute(0, 2, 3, 1) if _convolves(layer) else weight).reshape(len(weight), -1)


def _shaped(flat: Tensor, layer: Any) -> Tensor:
    """A view in the layer's own shape; for convolutions its channels come last in memory."""
    if not _convolves(layer):
        return flat.view(layer.weight.shape)
    units, channels, rows, columns = layer.weight.shape
    return flat.view(units, rows, columns, channels).permute(0, 3, 1, 2)


def _convolves(layer: Any) -> bool:
    return isinstance(layer, nn.Conv2d)


def _bias(layer: Any) -> Tensor:
    return layer.bias.detach()
