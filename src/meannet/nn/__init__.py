"""Networks: the dense fleets of A.1 and, one by one, the paper's parts as PyTorch modules."""

from meannet.nn.conv import (
    LocallyConnected2d,
    Pool2d,
    RandomGroupConv2d,
    ResponseNorm,
    Subsampled,
    TwoInputConv2d,
)
from meannet.nn.dropout import Dropout, seed_dropout_

__all__ = [
    "Dropout",
    "LocallyConnected2d",
    "Pool2d",
    "RandomGroupConv2d",
    "ResponseNorm",
    "Subsampled",
    "TwoInputConv2d",
    "seed_dropout_",
]
