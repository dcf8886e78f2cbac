"""Small estimators and cases, and references that share no code with the package."""

import numpy as np

from meannet import DropoutClassifier, DropoutRegressor

SMALL = {"hidden": (7, 5), "dropout_visible": 0.0, "lr": 0.1, "epochs": 4, "batch": 8, "random_state": 3}


def classifier(**more):
    return DropoutClassifier(**SMALL | more)


def regressor(**more):
    return DropoutRegressor(**SMALL | more)


def table(cases=40, features=6, classes=3, seed=0):
    """Inputs on wild scales, and class numbers that depend on them."""
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(cases, features))
    y = (X @ rng.normal(size=(features, classes))).argmax(1)
    return X * 10.0 ** np.linspace(-6, 6, features) + 3 * 10.0 ** np.linspace(-6, 6, features), y


def standard(inputs):
    """Mean 0 and standard deviation 1, outliers drawn in."""
    z = (inputs - inputs.mean(0)) / inputs.std(0)
    return z / np.sqrt(1 + z**2 / 9)


def layers(network):
    """Weights and biases of the linear layers of a module, as numpy."""
    return [(m.weight.numpy(), m.bias.numpy()) for m in network.modules() if type(m).__name__ == "Linear"]


def softmax(z):
    z = np.exp(z - z.max(-1, keepdims=True))
    return z / z.sum(-1, keepdims=True)


def forward(parts, inputs, keep=None):
    """Total inputs of the outputs of a net of rectified units; `keep[k]` multiplies what layer k passes on."""
    below = inputs if keep is None else inputs * keep[0]
    for k, (weight, bias) in enumerate(parts):
        below = below @ weight.T + bias
        if k < len(parts) - 1:
            below = np.maximum(below, 0) * (1 if keep is None else keep[k + 1])
    return below
