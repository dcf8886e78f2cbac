"""PyTorch as most people write it: nn.Sequential with nn.Dropout, autograd, SGD with momentum, renorm after a step."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

threads = torch.get_num_threads


def network(work):
    """The net with the mean network's weights, since torch's dropout scales while training."""
    unit = nn.ReLU if work.units == "rectified" else nn.Sigmoid
    layers = [nn.Dropout(work.visible)]
    for weight, bias in zip(work.mean_weights, work.biases, strict=True):
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data.copy_(torch.from_numpy(weight))
        linear.bias.data.copy_(torch.from_numpy(bias))
        layers += [linear, unit(), nn.Dropout(work.hidden)]
    return nn.Sequential(*layers[:-2])  # the outputs are neither rectified nor omitted


def prepare(work, compiled=lambda function: function):
    """A function that makes `work.updates` updates and returns the last loss."""
    if work.device == "cuda":
        torch.set_float32_matmul_precision("high")
    net = network(work).to(work.device)
    inputs = torch.from_numpy(work.inputs).to(work.device)
    targets = torch.from_numpy(work.targets).to(work.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=work.step, momentum=work.momentum)
    *hidden, _ = [layer for layer in net if isinstance(layer, nn.Linear)]

    @compiled
    def loss_of(inputs, targets):
        return cross_entropy(net(inputs), targets)

    def run():
        order = torch.randperm(len(inputs), device=work.device)[: work.updates * work.batch]
        for chosen in order.split(work.batch):
            optimizer.zero_grad()
            loss = loss_of(inputs[chosen], targets[chosen])
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for layer in hidden:
                    layer.weight.renorm_(2, 0, work.limit**0.5)
        return loss.item()

    return run
