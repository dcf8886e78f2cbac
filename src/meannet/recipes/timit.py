"""Speech (body, B): frames of TIMIT classified by pretrained nets, phones recognised; the same on its sample."""

import math
from collections.abc import Sequence
from dataclasses import replace

from meannet.config import PHONES, Arm, Claim, Data, Dropout, Experiment, Net, Optim, Pretrain, Source, Speech

BACKPROP = Arm(name="backprop", lr=0.1)
DROPOUT = Arm(name="dropout", hidden=True)
DROPOUT_INPUT = Arm(name="dropout+input", hidden=True, visible=True)
ARMS = (BACKPROP, DROPOUT, DROPOUT_INPUT)
NETS = tuple((units,) * layers for units in (2000, 4000) for layers in (3, 4, 5))

PRETRAIN = Pretrain(
    visible="gaussian",
    epochs=(100, 50),
    lr=(0.001, 0.01),
    decay=(0.001,),
    initial_sd=(0.01,),
    data_biases="upper",
    rule="a1",
    momentum_end=0.9,
    momentum_epochs=20,
    sudden=False,
)
OPTIM = Optim(epochs=200, lr=1.0, decay=1.0, momentum_end=0.9, momentum_epochs=10, limit=math.inf)

OPEN = "not stated"
SOURCES = (
    Source(path="data.speech.bins", section=f"{OPEN}; 40 bins in later work of the group"),
    Source(path="data.speech.deltas", section=f"{OPEN}; first and second differences in later work of the group"),
    Source(path="data.speech.sa", section=f"{OPEN}; the corpus says not to use these sentences"),
    Source(path="net.units", section=f"{OPEN}; the pretrained machines have logistic units"),
    Source(path="dropout.hidden", section="body, Fig. 2", paper="0.5"),
    Source(path="dropout.visible", section="Fig. 2; the body speaks of hidden units only: arm dropout", paper="0.2"),
    Source(path="optim.epochs", section="B.2: about 200", paper="200"),
    Source(path="optim.batch", section="B", paper="100"),
    Source(path="optim.rule", section="A.1, by B.2", paper="a1"),
    Source(path="optim.lr", section="B.2", paper="1"),
    Source(path="arms.backprop.lr", section="B.2", paper="0.1"),
    Source(path="optim.decay", section="B.2: constant", paper="1"),
    Source(path="optim.limit", section="A.2, by B.2: no constraint", paper="inf"),
    Source(path="optim.momentum_start", section="B.2", paper="0.5"),
    Source(path="optim.momentum_end", section="B.2", paper="0.9"),
    Source(path="optim.momentum_epochs", section="B.2", paper="10"),
    Source(path="pretrain.model", section="B.1", paper="dbn"),
    Source(path="pretrain.visible", section="B.1: the first layer", paper="gaussian"),
    Source(path="pretrain.epochs", section="B.1", paper="100,50"),
    Source(path="pretrain.lr", section="B.1", paper="0.001,0.01"),
    Source(path="pretrain.decay", section="B.1", paper="0.001"),
    Source(path="pretrain.initial_sd", section="B.1", paper="0.01"),
    Source(path="pretrain.data_biases", section="B.1: of all layers but the first", paper="upper"),
    Source(path="pretrain.batch", section="B", paper="100"),
    Source(path="pretrain.rule", section="B.1", paper="a1"),
    Source(path="pretrain.momentum_start", section="B.1", paper="0.5"),
    Source(path="pretrain.momentum_end", section="B.1", paper="0.9"),
    Source(path="pretrain.momentum_epochs", section="B.1", paper="20"),
    Source(path="pretrain.sudden", section="B.1: linearly", paper="false"),
    Source(path="pretrain.steps", section=OPEN),
    Source(path="pretrain.states", section=OPEN),
    Source(path="pretrain.softmax_epochs", section=f"{OPEN}; as in mnist.a2_dbn"),
    Source(path="pretrain.softmax_lr", section=f"{OPEN}; as in mnist.a2_dbn"),
    Source(path="pretrain.scale_up", section=f"{OPEN}; so units see the input that they were pretrained with"),
)

# Why nets for the sample are trained otherwise.
SHORT = {
    "optim.epochs": "fewer, to take minutes",
    "optim.lr": "higher, as there are fewer epochs; chosen on held-out speakers, by timit.choose",
    "arms.backprop.lr": "chosen on held-out speakers, by timit.choose",
    "optim.decay": "a decay, as A.1 has it, ends a short training well",
}


def fig2() -> Experiment:
    """Frame classification on the core test set, 21 frames, for several architectures."""
    return Experiment(
        recipe="timit.fig2",
        paper="body, Fig. 2",
        about="Per cent of frames of TIMIT's core test set put into the wrong one of 39 classes, with and without "
        "dropout, for nets of 3 and 4 layers of 2000 and 4000 units.",
        data=Data(name="timit", speech=Speech(frames=21, decode=False)),
        net=Net(hidden=tuple((units,) * layers for units in (4000, 2000) for layers in (4, 3))),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=OPTIM,
        pretrain=PRETRAIN,
        arms=ARMS,
        seeds=(0, 1),
        record_every=2,
        quick_epochs=4,
        sources=(
            Source(path="data.speech.frames", section="body", paper="21"),
            Source(path="net.hidden", section="body: 4 layers of 4000; the others of Fig. 2 are not named"),
            *SOURCES,
        ),
        time="some 6 hours on one H200 (estimated)",
    )


def fig6() -> Experiment:
    """Training and validation curves, 15 frames, on the development speakers."""
    full = fig2()
    return replace(
        full,
        recipe="timit.fig6",
        paper="B, Fig. 6",
        about="Frame error and cross-entropy on training and validation frames of TIMIT as learning progresses, 15 "
        "input frames, 3 to 5 layers of 2000 and 4000 units.",
        data=Data(name="timit", speech=Speech(frames=15, judged="dev", decode=False)),
        net=Net(hidden=NETS),
        arms=(BACKPROP, DROPOUT_INPUT),
        seeds=(0,),
        sources=(
            Source(path="data.speech.frames", section="B", paper="15"),
            Source(path="net.hidden", section="B"),
            *SOURCES,
        ),
        time="some 4 hours on one H200 (estimated)",
    )


def fig6_31() -> Experiment:
    """The same with 31 frames."""
    part = fig6()
    return replace(
        part,
        recipe="timit.fig6_31",
        about=part.about.replace("15 input frames", "31 input frames"),
        data=Data(name="timit", speech=Speech(frames=31, judged="dev", decode=False)),
        sources=(Source(path="data.speech.frames", section="B", paper="31"), *part.sources[1:]),
    )


def core() -> Experiment:
    """Phones of the core test set recognised: 22.7 % errors become 19.7 % with dropout."""
    full = fig2()
    return replace(
        full,
        recipe="timit.core",
        paper="body, recognition",
        about="Phone error rate on TIMIT's core test set with and without dropout: 4 layers of 4000 units, 21 frames, "
        "a hidden Markov model of the training labels, silence counted as one of 39 classes.",
        data=Data(name="timit", speech=Speech(frames=21)),
        net=Net(hidden=((4000,) * 4,)),
        claims=(
            Claim(arm="dropout", value=19.7, unit=PHONES),
            Claim(arm="dropout+input", value=19.7, unit=PHONES),
            Claim(arm="backprop", value=22.7, unit=PHONES),
        ),
        sources=(
            full.sources[0],
            Source(path="net.hidden", section="body", paper="4000,4000,4000,4000"),
            *SOURCES,
        ),
        time="some 3 hours on one H200 (estimated)",
    )


def choose_core() -> Experiment:
    """Learning rates of every arm for the full corpus, judged on every tenth training speaker."""
    full = core()
    tried: dict[str, Sequence[float]] = {"backprop": (0.03, 0.1, 0.3, 1.0), "dropout": (0.3, 1.0, 3.0)}
    return _choose(full, "timit.choose_core", tried, "some 5 hours on one H200 (estimated)")


def sample() -> Experiment:
    """16 speakers, each judged on by nets that have not heard them; sized for two CPU cores."""
    full = core()
    return replace(
        full,
        recipe="timit.sample",
        paper="B, on 16 speakers",
        about="Per cent of frames of NLTK's sample of TIMIT put into the wrong one of 39 classes, with and without "
        "dropout; the 16 speakers take turns in being judged on. Phones are recognised too.",
        data=Data(name="timit-sample", speech=Speech(frames=15, folds=4)),
        net=Net(hidden=((512,) * 3,)),
        optim=replace(OPTIM, epochs=16, lr=10.0, decay=0.88, momentum_epochs=5),
        pretrain=replace(PRETRAIN, epochs=(8, 4), lr=(0.01, 0.05), momentum_epochs=2, softmax_epochs=2),
        arms=(replace(BACKPROP, lr=1.0), DROPOUT, DROPOUT_INPUT),
        seeds=tuple(range(4)),
        claims=(),
        record_every=1,
        quick_epochs=2,
        sources=_but(
            SOURCES,
            SHORT
            | {
                "optim.momentum_epochs": "fewer, as there are fewer epochs",
                "pretrain.epochs": "fewer, to take minutes",
                "pretrain.lr": "higher, as there are fewer updates",
                "pretrain.momentum_epochs": "fewer, as there are fewer epochs",
            },
        ),
        time="under 10 minutes on two CPU cores",
        next="meannet speech decode RUN FILE.wav",
    )


def sample_wide() -> Experiment:
    """The same for a GPU: wider nets, trained longer, two for each turn."""
    small = sample()
    return replace(
        small,
        recipe="timit.sample_wide",
        net=Net(hidden=((2000,) * 3,)),
        optim=replace(OPTIM, epochs=60, lr=10.0, decay=0.97),
        pretrain=PRETRAIN,  # ten times its first rate, as in the small net, makes 2000 units diverge
        seeds=tuple(range(8)),
        record_every=2,
        sources=_but(SOURCES, SHORT | dict.fromkeys(("optim.lr", "arms.backprop.lr"), "as in timit.sample")),
        time="3 minutes on one H200",
    )


def choose() -> Experiment:
    """Learning rates of every arm for the sample, judged on speakers who are held out of learning in each turn."""
    tried: dict[str, Sequence[float]] = {"backprop": (0.3, 1.0, 3.0, 10.0), "dropout": (1.0, 3.0, 10.0, 30.0)}
    return _choose(sample(), "timit.choose", tried, "under a minute on one H200")


def rates() -> Experiment:
    """How much the result depends on the learning rate, with the paper's final momentum of 0.9."""
    small = sample()
    arms = tuple(
        replace(arm, name=f"{arm.name}, lr {lr:g}", lr=lr) for arm in (BACKPROP, DROPOUT) for lr in (1.0, 3.0, 10.0)
    )
    return replace(
        small,
        recipe="timit.rates",
        paper="B.2, not very sensitive to learning rate and momentum",
        about="Frame errors on the sample of TIMIT at three learning rates, with dropout and without.",
        data=replace(small.data, speech=Speech(frames=15, folds=4, decode=False)),
        arms=arms,
        sources=(),
        time="1 minute on one H200",
        next="",
    )


def rates_m50() -> Experiment:
    """The same with a final momentum of 0.5."""
    found = rates()
    return replace(found, recipe="timit.rates_m50", optim=replace(found.optim, momentum_end=0.5))


def rates_m98() -> Experiment:
    """The same with a final momentum of 0.98."""
    found = rates()
    return replace(found, recipe="timit.rates_m98", optim=replace(found.optim, momentum_end=0.98))


def size() -> Experiment:
    """One net of the paper's size on made-up frames: its time and memory, and nothing else, mean something."""
    return replace(
        core(),
        recipe="timit.size",
        paper="body, its size only",
        about="Time and memory of the full run, on made-up frames: the errors say nothing about speech.",
        data=Data(name="timit-size", speech=Speech(frames=21, decode=False)),
        arms=ARMS[1:2],
        seeds=(0,),
        claims=(),
        optim=OPTIM.compressed(2),
        pretrain=replace(PRETRAIN, epochs=(1,), softmax_epochs=1, gibbs=1),
        quick_epochs=1,
        sources=(),
        time="1 minute on one H200",
    )


def _choose(full: Experiment, name: str, tried: dict[str, Sequence[float]], time: str) -> Experiment:
    arms = tuple(
        replace(arm, name=f"{arm.name}, lr {lr:g}", lr=lr)
        for arm in full.arms
        for lr in tried["dropout" if arm.hidden else "backprop"]
    )
    return replace(
        full,
        recipe=name,
        paper="B.2, settings left open",
        about="How learning rates were chosen: frame errors on speakers who are held out of learning.",
        data=replace(full.data, held_out=True),
        arms=arms,
        claims=(),
        sources=(),
        time=time,
        next="",
    )


def _but(sources: Sequence[Source], reasons: dict[str, str]) -> tuple[Source, ...]:
    """Sources, with a reason where a recipe has a value of its own."""
    return tuple(
        replace(one, section=f"{one.section}; {reasons[one.path]}") if one.path in reasons else one for one in sources
    )
