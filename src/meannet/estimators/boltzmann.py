"""DBM: features by a deep Boltzmann machine, learned without labels (A.2), the scikit-learn way."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from meannet.config import Joint, Pretrain
from meannet.estimators.cases import Matrix
from meannet.estimators.pretrained import log_partition
from meannet.estimators.transformer import Pretrained
from meannet.pretrain import dbm
from meannet.pretrain.unrolled import layers


class DBM(Pretrained):
    """A deep Boltzmann machine with two hidden layers of binary units; its features are those of mean field.

    Layers are trained one by one with doubled inputs, then both together: mean field for the cases, persistent chains
    for the model.

    Parameters
    ----------
    hidden : pair of ints
        Units of the two layers.
    lr, epochs : float, int
        Of each layer by itself.
    joint_lr, joint_epochs : float, int
        Of both together.
    sweeps : int
        Mean-field sweeps.
    chains, steps : int
        Persistent chains, and their Gibbs steps for each mini-batch.
    batch, momentum, decay, random_state, device, verbose
        As in BernoulliRBM, and so is the scaling of inputs to [0, 1].

    Attributes
    ----------
    components_, intercepts_ : lists of arrays
        Weights (units, inputs) of each layer; biases of the visible units and of those of each layer.
    history_ : list of dicts
        The reconstruction error after each epoch.
    """

    def __init__(
        self,
        hidden=(256, 256),
        *,
        lr=0.05,
        epochs=20,
        joint_lr=0.005,
        joint_epochs=20,
        sweeps=10,
        chains=100,
        steps=5,
        batch=32,
        momentum=(0.5, 0.9),
        decay=0.0002,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.hidden = hidden
        self.lr = lr
        self.epochs = epochs
        self.joint_lr = joint_lr
        self.joint_epochs = joint_epochs
        self.sweeps = sweeps
        self.chains = chains
        self.steps = steps
        self.batch = batch
        self.momentum = momentum
        self.decay = decay
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def bound(self, X: Any, log_partition: float = 0.0) -> np.ndarray:
        """A lower bound on the log probability of each case of 0s and 1s, (cases,), by mean field.

        `log_partition` is what the method of that name gives first; without it the bound is up to that constant.
        """

        def bounds(inputs: torch.Tensor) -> torch.Tensor:
            if not ((inputs == 0) | (inputs == 1)).all():
                raise ValueError("bound is about cases of 0s and 1s, and X has others; take X > 0.5, or draw them")
            made, sweeps = self._machine, self._stack.settings.joint.sweeps
            return dbm.bound(made, inputs, *dbm.mean_field(made, inputs, sweeps=sweeps), inputs.new_zeros(1))

        return self._each(X, bounds) - log_partition

    def log_partition(self, temperatures: int = 1000, particles: int = 100) -> tuple[float, float, float]:
        """As of BernoulliRBM."""
        return log_partition(self._machine.folded, temperatures, particles)

    @property
    def _machine(self) -> dbm.DBM:
        check_is_fitted(self)
        assert self._stack.dbm is not None
        return self._stack.dbm

    @property
    def components_(self) -> list[np.ndarray]:
        check_is_fitted(self)
        (first, _), (second, _) = layers(self._stack)
        return [first[0, :, : self.n_features_in_].numpy(), second[0].numpy()]

    @property
    def intercepts_(self) -> list[np.ndarray]:
        folded = self._machine.folded
        visible, second = np.split(folded.hidden_biases[0].numpy(), [self.n_features_in_])
        return [visible, folded.visible_biases[0].numpy(), second]

    def _features(self, inputs: torch.Tensor) -> torch.Tensor:
        return dbm.mean_field(self._machine, inputs, sweeps=self._stack.settings.joint.sweeps)[1]

    def _visible(self, X: Matrix) -> str:
        return "bernoulli"

    def _hidden(self) -> tuple[int, ...]:
        return tuple(self.hidden)

    def _settings(self, kind: str, cases: int, **more: Any) -> Pretrain:
        joint = Joint(
            epochs=self.joint_epochs,
            lr=self.joint_lr,
            lr_decay=0.1 ** (1 / self.joint_epochs),
            lr_least=0.0,
            decay=self.decay,
            sweeps=self.sweeps,
            chains=self.chains,
            steps=self.steps,
            cost=0.0,
        )
        return super()._settings(kind, cases, model="dbm", states="samples", sample_inputs=True, joint=joint, **more)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.hidden, tuple | list) or len(self.hidden) != 2:
            raise ValueError(f"The 'hidden' parameter of DBM must be a pair of ints. Got {self.hidden!r} instead.")
