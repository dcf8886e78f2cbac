"""scikit-learn's BernoulliRBM: persistent chains instead of CD-1, no momentum and no weight decay; as many products."""

import numpy as np
from sklearn.neural_network import BernoulliRBM
from threadpoolctl import threadpool_info


def threads():
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def prepare(work):
    """A function that makes `work.updates` updates and returns the reconstruction error of a mini-batch, per case."""
    if work.device != "cpu":
        raise RuntimeError("scikit-learn trains on CPUs only")
    precision = np.float64 if work.path == "float64" else np.float32
    inputs = work.inputs[: work.updates * work.batch].astype(precision)
    machine = BernoulliRBM(work.sizes[1], learning_rate=0.1, batch_size=work.batch, n_iter=1, random_state=0)

    def run():
        machine.fit(inputs)
        some = inputs[: work.batch]
        hidden = machine.transform(some)
        back = 1 / (1 + np.exp(-(hidden @ machine.components_ + machine.intercept_visible_)))
        return float(((some - back) ** 2).sum(1).mean())

    return run
