"""Parts of the image nets (F.1, F.2, G and H).

Overlapping pools, unshared local filters, response normalisation, randomly connected groups, and the layer with two
inputs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meannet.core import philox
from meannet.nn.compiled import Adjacent, Maximum, compiling, pooled

Pair = int | tuple[int, int]


class Pool2d(nn.Module):
    """Maximum or average of `size` x `size` neighbourhoods, `stride` apart; with a smaller stride they overlap (F.1).

    The last neighbourhoods of a row or column may reach over the edge, so that 32 places become 16, 8 and 4; each must
    begin inside. An average is that of the places that are there.
    """

    KINDS = ("max", "average")

    def __init__(self, kind: str, size: int = 3, stride: int = 2):
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"unknown kind of pool {kind!r}; the kinds are {', '.join(self.KINDS)}")
        if size < 1 or stride < 1:
            raise ValueError(f"size and stride of a pool must be 1 or more, not {size} and {stride}")
        self.kind, self.size, self.stride = kind, size, stride

    def forward(self, x: Tensor) -> Tensor:
        window = min(self.size, x.shape[-2]), min(self.size, x.shape[-1])  # torch refuses one larger than its input
        if self.kind == "max":
            if compiling():
                return Maximum.apply(x, window, self.stride)
            return F.max_pool2d(x, window, self.stride, ceil_mode=True)
        # There is no padding to count. But told to count it, torch.compile divides the gradient of a neighbourhood that
        # reaches over the edge by the whole of its size (pytorch issue 198119).
        return F.avg_pool2d(x, window, self.stride, ceil_mode=True, count_include_pad=False)

    def out_size(self, size: int) -> int:
        """How many neighbourhoods there are along a side of `size` places."""
        return pooled(size, self.size, self.stride)

    def extra_repr(self) -> str:
        return f"{self.kind}, size={self.size}, stride={self.stride}"


class LocallyConnected2d(nn.Module):
    """Like a convolution whose filters are not shared: each place of each bank has its own (G).

    `in_size` is the height and width of the input. The weight is (units, in_channels, height, width of a filter), with
    units counted bank by bank and row by row, so that its first axis is the unit, as in nn.Linear and nn.Conv2d; the
    bias is (units,).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        in_size: Pair,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.in_size, self.kernel_size, self.stride, self.padding = map(_pair, (in_size, kernel_size, stride, padding))
        sides = zip(self.in_size, self.kernel_size, self.stride, self.padding, strict=True)
        self.out_size = tuple((size + 2 * pad - kernel) // step + 1 for size, kernel, step, pad in sides)
        if min(self.out_size) < 1:
            raise ValueError(f"filters of {self.kernel_size} do not fit into an input of {self.in_size}")
        units = out_channels * self.out_size[0] * self.out_size[1]
        self.weight = nn.Parameter(torch.empty(units, in_channels, *self.kernel_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(units, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self):
        """As nn.Conv2d starts: uniform within one over the square root of the number of incoming weights."""
        bound = self.weight[0].numel() ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-3:] != (self.in_channels, *self.in_size):
            wanted = (self.in_channels, *self.in_size)
            raise ValueError(f"expected inputs of (…, {', '.join(map(str, wanted))}), not {tuple(x.shape)}")
        patches = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)  # (…, inputs, places)
        weight = self.weight.reshape(self.out_channels, patches.shape[-1], patches.shape[-2])
        outputs = torch.einsum("...il,oli->...ol", patches, weight)
        if self.bias is not None:
            # Under autocast the outputs may be of a lower precision than the bias, and stay so.
            outputs = outputs + self.bias.view(self.out_channels, -1).to(outputs.dtype)
        return outputs.unflatten(-1, self.out_size)

    def extra_repr(self) -> str:
        settings = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        bias = "" if self.bias is not None else ", bias=False"
        return f"{self.in_channels}, {self.out_channels}, in_size={self.in_size}, {settings}{bias}"


class ResponseNorm(nn.Module):
    """Divides each activity by (1 + alpha sum of squares of `size` adjacent banks at its place)^beta (F.2).

    The authors' package divided alpha by the number of banks, and the paper's alpha is meant so; that is the default,
    `form="authors"`. With `form="printed"` the formula is taken as it stands, `size` times stronger. Where `size` is
    even, the banks reach one further down than up. Sums are taken in float32 or better.
    """

    FORMS = ("authors", "printed")

    def __init__(
        self, size: int = 9, alpha: float = 0.001, beta: float = 0.75, *, offset: float = 1.0, form: str = "authors"
    ):
        super().__init__()
        if form not in self.FORMS:
            raise ValueError(f"unknown form {form!r}; the forms are {', '.join(self.FORMS)}")
        if size < 1:
            raise ValueError(f"size is the number of adjacent banks and must be 1 or more, not {size}")
        self.size, self.alpha, self.beta, self.offset, self.form = size, alpha, beta, offset, form

    def forward(self, x: Tensor) -> Tensor:
        exact = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        with torch.autocast(x.device.type, enabled=False):
            squares = exact.square().movedim(-3, -1)
            if compiling():
                total = Adjacent.apply(squares, self.size // 2, self.size - 1 - self.size // 2) * self.share
                scales = (-self.beta * (self.offset + total).log()).exp()  # a power takes several times as long
            else:
                # A product with a band of ones: several times as fast as the pools of F.local_response_norm. Not a
                # convolution, which on a GPU would by default be one of TF32.
                scales = (self.offset + F.linear(squares, self.adjacent(exact))).pow(-self.beta)
            return (exact * scales.movedim(-1, -3)).to(x.dtype)

    @property
    def share(self) -> float:
        """What the sum of squares is multiplied by."""
        return self.alpha / self.size if self.form == "authors" else self.alpha

    def adjacent(self, x: Tensor) -> Tensor:
        """alpha, or its share, for each bank (rows) and each of the banks that are adjacent to it (columns)."""
        bank = torch.arange(x.shape[-3], device=x.device)
        apart = bank - bank[:, None] + self.size // 2
        return ((apart >= 0) & (apart < self.size)).to(x.dtype) * self.share

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, offset={self.offset}, form={self.form!r}"


class RandomGroupConv2d(nn.Conv2d):
    """A convolution in groups, each reading a random set of channels of its own; together they read each once (H).

    Seed and layer fix a permutation of the channels, which is in the state_dict; group g reads channels
    `permutation.view(groups, -1)[g]`.
    """

    permutation: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        groups: int,
        *,
        seed: int = 0,
        layer: int = 0,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.joined = False  # computed as one group, see `joined`
        permutation = philox.order(torch.tensor([seed]), 0, in_channels, layer)[0]
        self.register_buffer("permutation", permutation.to(self.weight.device))

    def forward(self, input: Tensor) -> Tensor:
        if self.joined:
            filters = joined(self.weight, self.permutation, self.groups)
            return F.conv2d(input, filters, self.bias, self.stride, self.padding, self.dilation)
        return super().forward(input.index_select(-3, self.permutation))


class Subsampled(nn.Module):
    """Every `every`-th pixel of a blurred image (H's second input): 224 x 224 becomes 56 x 56.

    The paper says only that the image is subsampled; the blur is a Gaussian whose sd is half the distance of the pixels
    that are kept, and these lie where the first layer's filters of 11 x 11, 4 apart and padded by 4, are centred.
    """

    kernel: Tensor

    def __init__(self, every: int = 4, first: int = 1):
        super().__init__()
        if not 0 <= first < every:
            raise ValueError(f"the first pixel kept must be one of the first {every}, not {first}")
        self.every, self.first = every, first
        places = torch.arange(-(3 * every // 2), 3 * every // 2 + 1, dtype=torch.float64)
        weights = torch.exp(-0.5 * (places / (every / 2)) ** 2)
        self.register_buffer("kernel", (weights / weights.sum()).float(), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        channels, reach = image.shape[-3], len(self.kernel) // 2
        kernel = self.kernel.to(image.dtype)
        rows = F.pad(image, (0, 0, reach, reach), mode="reflect")[..., self.first :, :]
        rows = F.conv2d(
            rows, kernel.view(1, 1, -1, 1).repeat(channels, 1, 1, 1), stride=(self.every, 1), groups=channels
        )
        columns = F.pad(rows, (reach, reach, 0, 0), mode="reflect")[..., self.first :]
        return F.conv2d(
            columns, kernel.view(1, 1, 1, -1).repeat(channels, 1, 1, 1), stride=(1, self.every), groups=channels
        )

    def extra_repr(self) -> str:
        return f"every={self.every}, first={self.first}"


class TwoInputConv2d(nn.Module):
    """A convolution of the layer below, in random groups, plus one of the subsampled image, stride 2 (H).

    A unit's incoming vector is made of both filters: the weight is (banks, channels of a group and then of the image,
    height, width). The maps that the two inputs give are added and must have the same size. Groups are as in
    RandomGroupConv2d.
    """

    permutation: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        groups: int,
        image_channels: int = 3,
        *,
        seed: int = 0,
        layer: int = 0,
        image_stride: int = 2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"{in_channels} channels and {out_channels} banks cannot be divided into {groups} groups")
        self.groups, self.own, self.image_stride = groups, in_channels // groups, image_stride
        self.joined = False  # computed as one group, see `joined`
        shape = out_channels, self.own + image_channels, kernel_size, kernel_size
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype))
        bound = self.weight[0].numel() ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)
        permutation = philox.order(torch.tensor([seed]), 0, in_channels, layer)[0]
        self.register_buffer("permutation", permutation.to(self.weight.device))

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        padding = self.weight.shape[-1] // 2
        filters = self.weight[:, : self.own]
        if self.joined:
            below = F.conv2d(x, joined(filters, self.permutation, self.groups), self.bias, padding=padding)
        else:
            below = F.conv2d(
                x.index_select(-3, self.permutation), filters, self.bias, padding=padding, groups=self.groups
            )
        beside = F.conv2d(image, self.weight[:, self.own :], stride=self.image_stride, padding=padding)
        if below.shape != beside.shape:
            raise ValueError(
                f"the maps of the two inputs must have the same size, not {tuple(below.shape)} and "
                f"{tuple(beside.shape)}; the image should be {self.image_stride} times as large as the layer below"
            )
        return below + beside

    def extra_repr(self) -> str:
        banks, channels, size, _ = self.weight.shape
        image = f"image_channels={channels - self.own}, image_stride={self.image_stride}"
        return f"{self.own * self.groups}, {banks}, kernel_size={size}, groups={self.groups}, {image}"


def joined(filters: Tensor, permutation: Tensor, groups: int) -> Tensor:
    """Filters of groups as filters over all channels, with zeros for those that a group does not read.

    A GPU takes longer for many small groups than for one large product that has them all in it.
    """
    banks, own = filters.shape[:2]
    reads = permutation.view(groups, own).repeat_interleave(banks // groups, 0)  # (banks, own)
    whole = filters.new_zeros(banks, own * groups, *filters.shape[2:])
    return whole.scatter(1, reads[:, :, None, None].expand_as(filters), filters)


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
