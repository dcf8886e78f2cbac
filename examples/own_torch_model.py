"""The paper's parts in a PyTorch model of one's own: a small net for images of digits, few of them labelled.

python examples/own_torch_model.py
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import meannet
from meannet.core.schedule import momentum
from meannet.nn import Dropout, LocallyConnected2d, ResponseNorm
from meannet.optim import DropoutSGD, param_groups


def a_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), ResponseNorm(5),  # 8 x 8 pixels become 4 x 4
        LocallyConnected2d(16, 16, 4, 3, padding=1), nn.ReLU(), nn.Flatten(),
        Dropout(0.5, seed=0), nn.Linear(256, 10),
    )  # fmt: skip


def trained(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    optimizer = DropoutSGD(param_groups(model, limit=4.0), lr=1.0)  # a squared length, of hidden units only
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.98)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["momentum"] = momentum(epoch, start=0.5, end=0.95, ramp=20)
        for batch in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        scheduler.step()
    return model


def main(epochs: int = 60) -> tuple[int, int]:
    torch.manual_seed(0)
    digits, order = load_digits(), torch.randperm(1797)
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[order, None]  # (cases, 1, 8, 8)
    labels = torch.tensor(digits.target)[order]
    model = trained(a_model(), images[:300], labels[:300], epochs)

    with torch.no_grad():
        mean = meannet.mean_network(model)(images[800:])  # all units, outgoing weights scaled
    sampled = meannet.sample_networks(model, images[800:], 50).softmax(-1).mean(0)
    errors = [int((outputs.argmax(1) != labels[800:]).sum()) for outputs in (mean, sampled)]
    print(f"errors of {len(mean)}: mean network {errors[0]}, mean of 50 thinned networks {errors[1]}")
    return errors[0], errors[1]


if __name__ == "__main__":
    main()
