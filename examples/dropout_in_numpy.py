"""The paper's method in plain numpy, to be read: dropout training and the mean network, on few handwritten digits.

    python examples/dropout_in_numpy.py

It does what `meannet run digits` does, a net at a time, with random numbers of its own; half a minute on a CPU.
"""

from itertools import pairwise

import numpy as np

SIZES = 64, 400, 400, 10


def train(x, y, rates, lr, seed, epochs=200, batch=50, limit=15.0):
    """Weights and biases; rates are the probabilities with which inputs and units of each hidden layer are omitted."""
    drawn = np.random.default_rng(seed)
    weights = [drawn.normal(0, 0.01, (above, below)) for below, above in pairwise(SIZES)]
    biases = [np.zeros(above) for above in SIZES[1:]]
    velocities = [np.zeros_like(parameter) for parameter in (*weights, *biases)]
    for epoch in range(epochs):
        momentum = 0.5 + (0.99 - 0.5) * min(epoch / 500, 1)
        step = (1 - momentum) * lr * 0.998**epoch
        for cases in np.split(drawn.permutation(len(x)), range(batch, len(x), batch)):
            # A fresh mask for every case and unit: each presentation trains another thinned network.
            masks = [drawn.random((len(cases), n)) >= rate for n, rate in zip(SIZES[:-1], rates, strict=True)]
            activities, output = forward(x[cases], weights, biases, masks)
            delta = (softmax(output) - np.eye(SIZES[-1])[y[cases]]) / len(cases)
            gradients = [None] * len(velocities)
            for k in reversed(range(len(weights))):
                gradients[k], gradients[len(weights) + k] = delta.T @ activities[k], delta.sum(0)
                delta = (delta @ weights[k]) * (activities[k] > 0)  # omitted units are 0 and learn nothing
            for parameter, velocity, gradient in zip((*weights, *biases), velocities, gradients, strict=True):
                velocity *= momentum
                velocity -= step * gradient
                parameter += velocity
            for weight in weights[:-1]:  # incoming weights of a hidden unit: at most so long, by division
                weight /= np.maximum(1, np.sqrt((weight**2).sum(1, keepdims=True) / limit))
    return weights, biases


def forward(x, weights, biases, masks):
    """What each layer passes on, masks applied, and the total inputs of the softmax."""
    activities = [x * masks[0]]
    for weight, bias, mask in zip(weights, biases, masks[1:], strict=False):
        activities.append(np.maximum(0, activities[-1] @ weight.T + bias) * mask)
    return activities, activities[-1] @ weights[-1].T + biases[-1]


def softmax(totals):
    shares = np.exp(totals - totals.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def errors(x, y, weights, biases, rates):
    """Of the mean network: all units are there, and what they pass on is multiplied by the share that was kept."""
    _, output = forward(x, weights, biases, [1 - rate for rate in rates])
    return int((output.argmax(1) != y).sum())


def main(seeds=3, epochs=200):
    from meannet.config import Data
    from meannet.data import load  # for its 300 training and 1,000 test digits, nothing else

    digits = load(Data(name="digits"), say=print)
    (x, y), (test, right) = [(part.inputs.numpy(), part.targets.numpy()) for part in (digits.train, digits.test)]
    arms = {"backprop": ((0, 0, 0), 1), "dropout": ((0, 0.5, 0.5), 3), "dropout+input": ((0.2, 0.5, 0.5), 1)}
    found = {
        name: [errors(test, right, *train(x, y, rates, lr, seed, epochs), rates) for seed in range(seeds)]
        for name, (rates, lr) in arms.items()
    }
    for name, wrong in found.items():
        print(f"{name}: {np.mean(wrong):.1f} of 1,000 test digits wrong, {seeds} seeds: {wrong}")
    return found


if __name__ == "__main__":
    main()
