"""A restricted Boltzmann machine in PyTorch as most people write it: CD-1, momentum, weight decay, a loop."""

import torch

LR, MOMENTUM, DECAY = 0.1, 0.5, 0.0002
threads = torch.get_num_threads


def prepare(work):
    """A function that makes `work.updates` updates and returns the last reconstruction error, per case."""
    if work.device == "cuda":
        torch.set_float32_matmul_precision("high")
    inputs = torch.from_numpy(work.inputs).to(work.device)
    visible, hidden = work.sizes
    weights = 0.1 * torch.randn(visible, hidden, device=work.device)
    a, b = torch.zeros(visible, device=work.device), torch.zeros(hidden, device=work.device)
    velocities = [torch.zeros_like(parameter) for parameter in (weights, a, b)]

    @torch.no_grad()
    def run():
        order = torch.randperm(len(inputs), device=work.device)[: work.updates * work.batch]
        for chosen in order.split(work.batch):
            v = inputs[chosen]
            up = torch.sigmoid(v @ weights + b)
            fantasy = torch.sigmoid(torch.bernoulli(up) @ weights.T + a)
            again = torch.sigmoid(fantasy @ weights + b)
            gradients = (
                (v.T @ up - fantasy.T @ again) / len(v) - DECAY * weights,
                (v - fantasy).mean(0),
                (up - again).mean(0),
            )
            for parameter, velocity, gradient in zip((weights, a, b), velocities, gradients, strict=True):
                velocity.mul_(MOMENTUM).add_(gradient, alpha=LR)
                parameter.add_(velocity)
        return ((v - fantasy) ** 2).sum(1).mean().item()

    return run
