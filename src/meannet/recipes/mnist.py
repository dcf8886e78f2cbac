"""MNIST from scratch (body, A.1, A.3): Fig. 1, the feature figure, and the choice of what the paper leaves open."""

import math
from dataclasses import replace

from meannet.config import Arm, Claim, Data, Dropout, Experiment, Net, Optim, Source

BACKPROP = Arm(name="backprop")
DROPOUT = Arm(name="dropout", hidden=True)
DROPOUT_INPUT = Arm(name="dropout+input", hidden=True, visible=True)

# Errors of 10,000 test cases (body and Fig. 1). The backprop figure is the best published, not the authors' own run.
CLAIMS = (
    Claim(arm="dropout+input", value=110),
    Claim(arm="dropout", value=130),
    Claim(arm="backprop", value=160),
)

SOURCES = (
    Source(path="net.hidden", section="A.1", paper="800,800;1200,1200;2000,2000;1200,1200,1200"),
    Source(path="net.units", section="not stated; learning rate 10 trains logistic units and kills rectified ones"),
    Source(path="net.initial_sd", section="A.1", paper="0.01"),
    Source(path="net.initial_bias", section="not stated; at 0 some nets never leave chance: mnist.choose_bias"),
    Source(path="dropout.hidden", section="A.1", paper="0.5"),
    Source(path="dropout.visible", section="A.1", paper="0.2"),
    Source(path="optim.epochs", section="A.1", paper="3000"),
    Source(path="optim.rule", section="A.1", paper="a1"),
    Source(path="optim.batch", section="A.1", paper="100"),
    Source(path="optim.lr", section="A.1", paper="10"),
    Source(path="optim.decay", section="A.1", paper="0.998"),
    Source(path="optim.momentum_start", section="A.1 (text; its formula swaps start and end)", paper="0.5"),
    Source(path="optim.momentum_end", section="A.1 (text; its formula swaps start and end)", paper="0.99"),
    Source(path="optim.momentum_epochs", section="A.1", paper="500"),
    Source(path="optim.limit", section="A.1, a squared length", paper="15"),
)
BACKPROP_SOURCES = (
    Source(path="arms.backprop.lr", section="not stated; chosen on 10,000 held-out training cases by mnist.choose"),
    Source(path="arms.backprop.limit", section="not stated; chosen on 10,000 held-out training cases by mnist.choose"),
)


def a1() -> Experiment:
    """Fig. 1: four nets, with and without dropout, logistic units."""
    return Experiment(
        recipe="mnist.a1",
        paper="A.1, Fig. 1",
        about="Test errors on MNIST of four nets trained by backpropagation, with dropout of hidden units, "
        "and with dropout of hidden and visible units.",
        data=Data(name="mnist"),
        net=Net(hidden=((800, 800), (1200, 1200), (2000, 2000), (1200, 1200, 1200)), initial_bias=-2.0),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=Optim(epochs=3000),
        arms=(replace(BACKPROP, lr=10.0, limit=15.0), DROPOUT, DROPOUT_INPUT),
        seeds=(0, 1, 2, 3, 4),
        claims=CLAIMS,
        record_every=10,
        samples=20,
        sources=SOURCES + BACKPROP_SOURCES,
        time="40 minutes on one H200",
        next="meannet eval RUN --samples 100",
    )


def a1_relu() -> Experiment:
    """The same with rectified units, which want a tenth of the learning rate."""
    logistic = a1()
    sources = tuple(source for source in SOURCES if source.path not in ("net.units", "net.initial_bias", "optim.lr"))
    return replace(
        logistic,
        recipe="mnist.a1_relu",
        about="Fig. 1 with rectified units: four nets, with and without dropout.",
        time="some 35 minutes on one H200 (estimated; 800,800 took 4 and 1200,1200 7)",
        net=replace(logistic.net, units="rectified", initial_bias=0.0),
        optim=replace(logistic.optim, lr=1.0),
        arms=(replace(BACKPROP, lr=1.0, limit=15.0), DROPOUT, DROPOUT_INPUT),
        sources=(
            *sources,
            Source(path="net.units", section="not stated; the rectified twin of mnist.a1"),
            Source(path="net.initial_bias", section="not stated; zero"),
            Source(path="optim.lr", section="A.1; 10 kills rectified units at once", paper="10"),
            Source(path="arms.backprop.lr", section="not stated; chosen on held-out cases by mnist.choose_relu"),
            Source(path="arms.backprop.limit", section="not stated; chosen on held-out cases by mnist.choose_relu"),
        ),
    )


def quick() -> Experiment:
    """All of MNIST in minutes on two CPU cores: rectified units, a schedule of 20 epochs."""
    full = a1_relu()
    chosen = {
        "net.hidden": "A.1; the smallest of its nets",
        "net.units": "not stated; rectified units learn faster",
        "optim.epochs": "A.1; 20 fit into minutes",
        "optim.lr": "A.1; chosen on 10,000 held-out training cases by mnist.choose_quick",
        "optim.decay": "A.1; fitted to 20 epochs, a few values tried on held-out cases",
        "optim.momentum_end": "A.1; fitted to 20 epochs, a few values tried on held-out cases",
        "optim.momentum_epochs": "A.1; fitted to 20 epochs",
        "arms.backprop.lr": "not stated; chosen on 10,000 held-out training cases by mnist.choose_quick",
    }
    sources = [s for s in full.sources if s.path != "arms.backprop.limit"]
    return replace(
        full,
        recipe="mnist.quick",
        about="Backpropagation beside dropout on all of MNIST, in minutes on two CPU cores.",
        net=replace(full.net, hidden=full.net.hidden[:1]),
        optim=replace(full.optim, epochs=20, lr=1.0, decay=0.9, momentum_end=0.95, momentum_epochs=3),
        arms=(replace(BACKPROP, lr=0.5), DROPOUT, DROPOUT_INPUT),
        seeds=(0, 1),
        record_every=1,
        samples=10,
        sources=tuple(replace(s, section=chosen.get(s.path, s.section)) for s in sources),
        time="under 6 minutes on two CPU cores",
        next="meannet run mnist.a1 --device cuda",
    )


def features() -> Experiment:
    """A.3: what the first hidden layer of a 784-500-500 net looks for, with and without dropout."""
    full = a1()
    return replace(
        full,
        recipe="mnist.features",
        paper="A.3, feature figure",
        about="A hundred random first-layer features of a 784-500-500 net: backpropagation beside dropout.",
        net=replace(full.net, hidden=((500, 500),)),
        arms=full.arms[:2],
        seeds=(0,),
        claims=(),
        show_features=True,
        sources=(
            *(source for source in full.sources if source.path != "net.hidden"),
            Source(path="net.hidden", section="A.3", paper="500,500"),
        ),
        time="67 minutes on two busy CPU cores",
        next="",
    )


def choose() -> Experiment:
    """Learning rate and bound of the backprop arm, logistic units, judged on 10,000 held-out training cases."""
    full = a1()
    return replace(
        _grid(full, rates=(1.0, 3.0, 10.0, 30.0)),
        recipe="mnist.choose",
        net=replace(full.net, hidden=full.net.hidden[1:2]),
        optim=full.optim.compressed(600),
        time="about 2 minutes on one H200",
    )


def rounding() -> Experiment:
    """Whether errors depend on the precision of products: the same nets under each --precision, on held-out cases."""
    full = a1()
    return replace(
        on_held_out(full, (full.arms[0], full.arms[2])),
        recipe="mnist.rounding",
        about="Errors on 10,000 held-out training cases, to be run under each --precision of products on a GPU.",
        net=replace(full.net, hidden=full.net.hidden[1:2]),
        optim=full.optim.compressed(300),
        seeds=full.seeds,
        time="40 s on one H200; with --precision float32 minutes (estimated)",
    )


def choose_relu() -> Experiment:
    """The same for rectified units."""
    full = a1_relu()
    return replace(
        _grid(full, rates=(0.03, 0.1, 0.3, 1.0, 3.0)),
        recipe="mnist.choose_relu",
        net=replace(full.net, hidden=full.net.hidden[1:2]),
        optim=full.optim.compressed(600),
        time="about 2 minutes on one H200",
    )


def choose_quick() -> Experiment:
    """Learning rates of mnist.quick's arms, on held-out cases."""
    full = quick()
    arms = tuple(
        replace(arm, name=f"{arm.name}, lr {rate:g}", lr=rate)
        for arm in full.arms
        for rate in ((0.3, 0.5, 1.0) if arm.name == "backprop" else (1.0, 2.0, 3.0))
    )
    return replace(on_held_out(full, arms), recipe="mnist.choose_quick", time="27 minutes on two CPU cores")


def choose_bias() -> Experiment:
    """Whether a logistic net leaves chance at all, by the hidden biases it starts from: the first three epochs."""
    full = a1()
    arms = tuple(
        replace(DROPOUT, name=f"dropout, bias {bias:g}", initial_bias=bias) for bias in (0.0, -1.0, -2.0, -3.0)
    )
    return replace(
        on_held_out(full, arms),
        recipe="mnist.choose_bias",
        about="How often a logistic net leaves chance within three epochs, by its initial hidden biases.",
        net=replace(full.net, hidden=full.net.hidden[:1]),
        optim=replace(full.optim, epochs=3),
        seeds=full.seeds,
        record_every=1,
        time="about 2 minutes on two CPU cores",
    )


def _grid(full: Experiment, rates: tuple[float, ...]) -> Experiment:
    """Backprop arms over learning rates and bounds, on held-out cases."""
    arms = tuple(
        Arm(name=f"backprop, lr {rate:g}, {'no bound' if limit == math.inf else f'l {limit:g}'}", lr=rate, limit=limit)
        for rate in rates
        for limit in (15.0, math.inf)
    )
    return on_held_out(full, arms)


def on_held_out(full: Experiment, arms: tuple[Arm, ...]) -> Experiment:
    """The same experiment with other arms, two seeds, judged on 10,000 held-out training cases."""
    return replace(
        full,
        paper="A.1, settings left open",
        about="How settings that the paper leaves open were chosen: errors on 10,000 held-out training cases.",
        data=Data(name="mnist", held_out=True),
        arms=arms,
        seeds=(0, 1),
        claims=(),
        samples=0,
        sources=(),
        next="",
    )
