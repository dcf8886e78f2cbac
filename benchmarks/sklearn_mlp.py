"""scikit-learn's MLPClassifier. It has neither dropout nor a bound on weights, so it does less than the others."""

import numpy as np
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_info


def threads():
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def prepare(work):
    """A function that makes `work.updates` updates and returns the last loss."""
    if work.device != "cpu":
        raise RuntimeError("scikit-learn trains on CPUs only")
    net = MLPClassifier(
        tuple(work.sizes[1:-1]),
        activation="relu" if work.units == "rectified" else "logistic",
        solver="sgd",
        alpha=0.0,
        batch_size=work.batch,
        learning_rate_init=work.step,
        momentum=work.momentum,
        nesterovs_momentum=False,
        random_state=0,
    )
    classes = np.arange(work.sizes[-1])
    net.partial_fit(work.inputs[: work.batch], work.targets[: work.batch], classes=classes)
    net.coefs_[:] = [weight.T.copy() for weight in work.mean_weights]
    net.intercepts_[:] = [bias.copy() for bias in work.biases]
    order = np.random.default_rng(0)

    def run():
        chosen = order.permutation(len(work.inputs))[: work.updates * work.batch]
        net.partial_fit(work.inputs[chosen], work.targets[chosen])  # one mini-batch after another
        return float(net.loss_)

    return run
