"""Parts of the image nets (F.2, G and H): unshared local filters, response normalisation, randomly connected groups."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meannet.core import philox

Pair = int | tuple[int, int]


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
        weight = self.weight.view(self.out_channels, patches.shape[-1], patches.shape[-2])
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
        alpha = self.alpha if self.form == "authors" else self.alpha * self.size
        exact = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        with torch.autocast(x.device.type, enabled=False):
            return F.local_response_norm(exact, self.size, alpha, self.beta, self.offset).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, offset={self.offset}, form={self.form!r}"


class RandomGroupConv2d(nn.Conv2d):
    """A convolution in groups, each reading a random set of channels of its own; together they read each once (H).

    The seed fixes a permutation of the channels, which is in the state_dict; group g reads channels
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
        permutation = philox.order(torch.tensor([seed]), 0, in_channels)[0]
        self.register_buffer("permutation", permutation.to(self.weight.device))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.index_select(-3, self.permutation))


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
