"""The demonstration: 300 of scikit-learn's 1,797 handwritten digits, and a net with far more weights than that."""

from dataclasses import replace

from meannet.config import Arm, Data, Dropout, Experiment, Net, Optim, Source

CHOSEN = "chosen on 497 held-out cases by digits.choose"


def digits() -> Experiment:
    """A large net, a small training set: does omitting units help? Settings of every arm chosen on held-out cases."""
    return Experiment(
        recipe="digits",
        paper="body (the method, on data of our own choice)",
        about="Test errors on 1,000 handwritten digits of a large net trained on 300, with and without dropout.",
        data=Data(name="digits"),
        net=Net(hidden=((400, 400),), units="rectified"),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=Optim(epochs=200, batch=50, lr=1.0),
        arms=(
            Arm(name="backprop"),
            Arm(name="dropout", hidden=True, lr=3.0),
            Arm(name="dropout+input", hidden=True, visible=True),
        ),
        seeds=tuple(range(10)),
        record_every=5,
        samples=20,
        quick_epochs=100,
        sources=(
            Source(path="data.name", section="our demonstration; the split is fixed in advance in data/digits.py"),
            Source(path="net.hidden", section="our demonstration: far more weights than 300 cases can fix"),
            Source(path="net.units", section="our demonstration; the paper's image nets have them (F.3)"),
            Source(path="net.initial_sd", section="A.1", paper="0.01"),
            Source(path="dropout.hidden", section="body", paper="0.5"),
            Source(path="dropout.visible", section="body", paper="0.2"),
            Source(path="optim.epochs", section="A.1's schedule, left after 200 epochs", paper="3000"),
            Source(path="optim.rule", section="A.1", paper="a1"),
            Source(path="optim.batch", section="A.1; 300 cases make 3 batches of 100, so half of that", paper="100"),
            Source(path="optim.lr", section=f"A.1; {CHOSEN}", paper="10"),
            Source(path="optim.decay", section="A.1", paper="0.998"),
            Source(path="optim.momentum_start", section="A.1", paper="0.5"),
            Source(path="optim.momentum_end", section="A.1", paper="0.99"),
            Source(path="optim.momentum_epochs", section="A.1", paper="500"),
            Source(path="optim.limit", section="A.1", paper="15"),
            Source(path="arms.dropout.lr", section=CHOSEN),
        ),
        time="under 2 minutes on two CPU cores",
        next="meannet run mnist.quick",
    )


def choose() -> Experiment:
    """Learning rate and bound of each arm, judged on 497 held-out cases."""
    full = digits()
    arms = tuple(
        Arm(name=f"{arm.name}, lr {lr:g}, l {limit:g}", hidden=arm.hidden, visible=arm.visible, lr=lr, limit=limit)
        for arm in full.arms
        for lr in (0.1, 0.3, 1.0, 3.0)
        for limit in (4.0, 15.0)
    )
    return replace(
        full,
        recipe="digits.choose",
        about="How the settings of the demonstration were chosen: errors on 497 held-out cases.",
        time="8 minutes on two CPU cores",
        data=Data(name="digits", held_out=True),
        arms=arms,
        samples=0,
        sources=(),
        next="",
    )
