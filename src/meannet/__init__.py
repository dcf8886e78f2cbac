"""Dropout as Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov described it in 2012."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meannet import recipes as recipes
    from meannet.config import Experiment as Experiment
    from meannet.experiment import resume as resume
    from meannet.experiment import run as run

__version__ = "0.1.0"
__all__ = ["Experiment", "__version__", "recipes", "resume", "run"]

# Loaded on first use, so that `import meannet` needs neither torch nor scikit-learn.
_HOMES = {"Experiment": "meannet.config", "run": "meannet.experiment", "resume": "meannet.experiment"}
_MODULES = ("recipes",)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"meannet.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'meannet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
