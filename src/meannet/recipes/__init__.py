"""The paper's experiments: one module per data set, one function per experiment, each returning an Experiment."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

from meannet.config import Experiment, from_json, nearest
from meannet.recipes import cifar10, claims, digits, imagenet, mnist, mnist_pretrained, reuters, timit

RECIPES: dict[str, Callable[[], Experiment]] = {
    "digits": digits.digits,
    "digits.choose": digits.choose,
    "claims.rates": claims.rates,
    "claims.inputs": claims.inputs,
    "claims.layers": claims.layers,
    "claims.bound": claims.bound,
    "claims.decaying": claims.decaying,
    "claims.constant": claims.constant,
    "claims.high_momentum": claims.high_momentum,
    "claims.low_momentum": claims.low_momentum,
    "claims.shrinking": claims.shrinking,
    "claims.adapted": claims.adapted,
    "mnist.quick": mnist.quick,
    "mnist.a1": mnist.a1,
    "mnist.a1_relu": mnist.a1_relu,
    "mnist.features": mnist.features,
    "mnist.a2_dbn": mnist_pretrained.a2_dbn,
    "mnist.a2_dbm": mnist_pretrained.a2_dbm,
    "mnist.rounding": mnist.rounding,
    "mnist.choose": mnist.choose,
    "mnist.choose_relu": mnist.choose_relu,
    "mnist.choose_quick": mnist.choose_quick,
    "mnist.choose_bias": mnist.choose_bias,
    "mnist.choose_a2_dbn": mnist_pretrained.choose_a2_dbn,
    "mnist.choose_a2_dbm": mnist_pretrained.choose_a2_dbm,
    "timit.fig2": timit.fig2,
    "timit.fig6": timit.fig6,
    "timit.fig6_31": timit.fig6_31,
    "timit.core": timit.core,
    "timit.sample": timit.sample,
    "timit.sample_wide": timit.sample_wide,
    "timit.choose": timit.choose,
    "timit.choose_core": timit.choose_core,
    "timit.rates": timit.rates,
    "timit.rates_m50": timit.rates_m50,
    "timit.rates_m98": timit.rates_m98,
    "timit.size": timit.size,
    "reuters.c_2000_1000": reuters.c_2000_1000,
    "reuters.c_1000_1000": reuters.c_1000_1000,
    "reuters.subset": reuters.subset,
    "reuters.r21578": reuters.r21578,
    "reuters.choose": reuters.choose,
    "reuters.choose_r21578": reuters.choose_r21578,
    "reuters.size": reuters.size,
    "cifar10.quick": cifar10.quick,
    "cifar10.g_conv": cifar10.g_conv,
    "cifar10.g_local": cifar10.g_local,
    "cifar10.g_local_dropout": cifar10.g_local_dropout,
    "cifar10.choose": cifar10.choose,
    "cifar10.choose_conv": cifar10.choose_conv,
    "cifar10.choose_quick": cifar10.choose_quick,
    "cifar10.choose_quick_dropout": cifar10.choose_quick_dropout,
    "cifar10.rates": cifar10.rates,
    "cifar10.aside": cifar10.aside,
    "cifar10.pools": cifar10.pools,
    "cifar10.saturating": cifar10.saturating,
    "cifar10.conv_dropout": cifar10.conv_dropout,
    "cifar10.dense_top": cifar10.dense_top,
    "cifar10.no_top": cifar10.no_top,
    "imagenet.h_backprop": imagenet.h_backprop,
    "imagenet.h_dropout": imagenet.h_dropout,
}


def get(name: str) -> Experiment:
    """A recipe by its name, an `experiment.json`, or NAME in one's own `./file.py:NAME`."""
    if name in RECIPES:
        return RECIPES[name]()
    path, colon, member = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_python(Path(path), member)
    if name.endswith(".py"):
        raise ValueError(f"say which experiment in {name} to run: {name}:NAME")
    if name.endswith(".json"):
        try:
            content = json.loads(Path(name).read_text())
        except OSError as error:
            raise ValueError(f"cannot read {name}: {error.strerror}") from None
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{name} is not valid JSON: {error}") from None
        try:
            return from_json(content)
        except ValueError as error:
            raise ValueError(f"{name} is not an experiment that runs: {error}") from None
    hint = nearest(name, RECIPES)
    raise ValueError(f"no recipe {name!r}; {hint if hint.startswith('did') else '`meannet list` shows all'}")


def _from_python(path: Path, member: str) -> Experiment:
    """The experiment, or the function that returns one, called `member` in the user's own file."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(module, member, None)
    if found is None:
        own = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == path.stem)
        names = [*own, *(name for name, value in vars(module).items() if isinstance(value, Experiment))]
        raise ValueError(f"{path} has no {member!r}; {nearest(member, names) if names else 'it defines nothing'}")
    try:
        made = found() if callable(found) else found
    except Exception as error:
        raise ValueError(f"{path}:{member}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, Experiment):
        raise ValueError(f"{path}:{member} is not an Experiment but a {type(made).__name__}")
    return made
