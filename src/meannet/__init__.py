"""Dropout as Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov described it in 2012."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meannet import convert as convert
    from meannet import nn as nn
    from meannet import optim as optim
    from meannet import recipes as recipes
    from meannet.config import Experiment as Experiment
    from meannet.estimators import DBM as DBM
    from meannet.estimators import DBN as DBN
    from meannet.estimators import BernoulliRBM as BernoulliRBM
    from meannet.estimators import DropoutClassifier as DropoutClassifier
    from meannet.estimators import DropoutRegressor as DropoutRegressor
    from meannet.estimators import GaussianRBM as GaussianRBM
    from meannet.experiment import resume as resume
    from meannet.experiment import run as run
    from meannet.networks import mean_network as mean_network
    from meannet.networks import sample_networks as sample_networks

__version__ = "0.1.0"
__all__ = [
    "DBM",
    "DBN",
    "BernoulliRBM",
    "DropoutClassifier",
    "DropoutRegressor",
    "Experiment",
    "GaussianRBM",
    "__version__",
    "convert",
    "mean_network",
    "nn",
    "optim",
    "recipes",
    "resume",
    "run",
    "sample_networks",
]

# Loaded on first use, so that `import meannet` needs neither torch nor scikit-learn.
_HOMES = {
    "BernoulliRBM": "meannet.estimators",
    "DBM": "meannet.estimators",
    "DBN": "meannet.estimators",
    "DropoutClassifier": "meannet.estimators",
    "DropoutRegressor": "meannet.estimators",
    "Experiment": "meannet.config",
    "GaussianRBM": "meannet.estimators",
    "mean_network": "meannet.networks",
    "resume": "meannet.experiment",
    "run": "meannet.experiment",
    "sample_networks": "meannet.networks",
}
_MODULES = ("convert", "nn", "optim", "recipes")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"meannet.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'meannet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
