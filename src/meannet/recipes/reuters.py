"""Newswire by topic (body, C): the paper's experiment on RCV1, and the same on collections that are at hand."""

import math
from dataclasses import replace

from meannet.config import PERCENT, Arm, Claim, Data, Dropout, Experiment, Net, Optim, Selection, Source

ARMS = (
    Arm(name="backprop"),
    Arm(name="dropout", hidden=True),
    Arm(name="dropout+input", hidden=True, visible=True),
)
NETS = ((2000, 1000), (1000, 1000))

# Of the 2000-2000-1000-50 net. The body speaks of 50 % dropout, C of the settings of A.1, in which visible units are
# omitted too, so the same figure stands for both arms.
CLAIMS = (
    Claim(arm="dropout+input", value=29.62, unit=PERCENT),
    Claim(arm="dropout", value=29.62, unit=PERCENT),
    Claim(arm="backprop", value=31.05, unit=PERCENT),
)

OPEN = "not stated"
SOURCES = (
    Source(path="data.selection.words", section="body, C", paper="2000"),
    Source(path="data.selection.commonest", section=f"{OPEN}; C says the most frequent"),
    Source(path="data.selection.words_of", section="C: most frequent in the dataset", paper="all"),
    Source(path="data.selection.fewest", section="C drops a class with four examples", paper="5"),
    Source(path="data.selection.largest", section="C drops a class with 25 % of the examples, no others near that"),
    Source(path="data.selection.alone", section=f"{OPEN}; the body says mutually exclusive classes"),
    Source(path="data.selection.split", section="C: equal parts at random", paper="equal"),
    Source(path="data.selection.seed", section=OPEN),
    Source(path="net.hidden", section="C; the body has 2000,2000", paper="2000,1000"),
    Source(path="net.units", section=f"{OPEN}; those of mnist.a1"),
    Source(path="net.initial_sd", section="A.1, by C", paper="0.01"),
    Source(path="net.initial_bias", section=f"{OPEN}; the best on held-out documents, of reuters.choose"),
    Source(path="dropout.hidden", section="body; A.1, by C", paper="0.5"),
    Source(path="dropout.visible", section="A.1, by C", paper="0.2"),
    Source(path="optim.epochs", section="C", paper="500"),
    Source(path="optim.rule", section="A.1, by C", paper="a1"),
    Source(path="optim.batch", section="A.1, by C", paper="100"),
    Source(path="optim.lr", section="A.1, by C", paper="10"),
    Source(path="optim.decay", section="A.1, by C", paper="0.998"),
    Source(path="optim.momentum_start", section="A.1, by C", paper="0.5"),
    Source(path="optim.momentum_end", section="A.1, by C", paper="0.99"),
    Source(path="optim.momentum_epochs", section="A.1, by C", paper="500"),
    Source(path="optim.limit", section="A.1, by C; a squared length", paper="15"),
)


def c_2000_1000() -> Experiment:
    """2000-2000-1000-50 on all of RCV1."""
    return Experiment(
        recipe="reuters.c_2000_1000",
        paper="C, Fig. 7",
        about="Test errors on RCV1-v2 documents by second-level topic, with and without dropout.",
        data=Data(name="reuters", selection=Selection()),
        net=Net(hidden=((2000, 1000),), initial_bias=-2.0),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=Optim(epochs=500),
        arms=ARMS,
        seeds=(0, 1, 2, 3, 4),
        claims=CLAIMS,
        record_every=5,
        quick_epochs=20,
        sources=SOURCES,
        time="some 20 minutes on one H200 (estimated from reuters.size)",
    )


def c_1000_1000() -> Experiment:
    """2000-1000-1000-50, the other net of Fig. 7, for which the paper gives no figure."""
    full = c_2000_1000()
    return replace(
        full,
        recipe="reuters.c_1000_1000",
        net=replace(full.net, hidden=((1000, 1000),)),
        claims=(),
        sources=_sources({"net.hidden": Source(path="net.hidden", section="C, Fig. 7", paper="1000,1000")}),
    )


def subset() -> Experiment:
    """Both nets on 14,512 documents of RCV1-v2: the paper's selection from a small part of it."""
    full = c_2000_1000()
    return replace(
        full,
        recipe="reuters.subset",
        paper="C, on a part of its documents",
        about="Both nets of Fig. 7 on 27,613 documents of RCV1-v2, of which the paper's selection leaves 14,512.",
        data=Data(name="rcv1-subset", selection=Selection()),
        net=replace(full.net, hidden=NETS),
        time="2 minutes on one H200",
        arms=(ARMS[0], replace(ARMS[1], lr=30.0), ARMS[2]),
        claims=(),
        sources=(
            *_sources({"net.hidden": Source(path="net.hidden", section="C, Fig. 7", paper="2000,1000;1000,1000")}),
            Source(
                path="arms.dropout.lr",
                section="A.1, by C; the best on held-out documents, of reuters.choose",
                paper="10",
            ),
        ),
    )


def r21578() -> Experiment:
    """Both nets on Reuters-21578, divided as published."""
    other = {
        "data.selection.words_of": "C: of all documents; here nothing of the test documents is used",
        "data.selection.largest": "C drops its largest class; here all are kept, as is usual for this collection",
        "data.selection.split": "C: equal parts; here the published parts",
    }
    part = subset()
    return replace(
        part,
        recipe="reuters.r21578",
        paper="C, on other documents",
        about="Both nets of Fig. 7 on the documents of Reuters-21578 that have one topic, divided as published.",
        data=Data(name="reuters21578", selection=Selection(split="published", words_of="train", fewest=5, largest=1.0)),
        time="1 minute on one H200",
        sources=tuple(replace(s, section=other.get(s.path, s.section)) for s in part.sources),
    )


def choose() -> Experiment:
    """What the paper leaves open, for every arm alike, judged on held-out training documents of the subset."""
    return replace(_choose(subset(), "reuters.choose"), time="4 minutes on one H200")


def choose_r21578() -> Experiment:
    """The same for Reuters-21578."""
    return replace(_choose(r21578(), "reuters.choose_r21578"), time="2 minutes on one H200")


def size() -> Experiment:
    """One net of the paper's size on made-up counts: its time and memory, and nothing else, mean something."""
    full = c_2000_1000()
    return replace(
        full,
        recipe="reuters.size",
        paper="C, its size only",
        about="Time and memory of the full run, on made-up counts: the errors say nothing about text.",
        data=Data(name="reuters-size", selection=Selection(fewest=2)),
        arms=ARMS[2:],
        seeds=(0,),
        claims=(),
        record_every=25,
        time="2 minutes on one H200",
        sources=(),
    )


def _choose(full: Experiment, name: str) -> Experiment:
    assert full.data.selection is not None
    arms = tuple(
        replace(
            arm,
            name=f"{arm.name}, lr {lr:g}, {'no bound' if limit == math.inf else f'l {limit:g}'}, bias {bias:g}",
            lr=lr,
            limit=limit,
            initial_bias=bias,
        )
        for arm in full.arms
        for lr in (1.0, 3.0, 10.0, 30.0)
        for limit in (15.0, math.inf)
        for bias in (0.0, -2.0)
    )
    return replace(
        full,
        recipe=name,
        paper="C, settings left open",
        about="How settings that the paper leaves open were chosen: errors on a fifth of the training documents.",
        data=replace(full.data, held_out=True),
        net=replace(full.net, hidden=NETS[:1]),
        arms=arms,
        seeds=(0, 1),
        claims=(),
        record_every=25,
        sources=(),
    )


def _sources(other: dict[str, Source]) -> tuple[Source, ...]:
    return tuple(other.get(source.path, source) for source in SOURCES)
