"""The demonstration: 300 of scikit-learn's 1,797 handwritten digits, and a net with far more weights than that."""

from dataclasses import replace

from meannet.config import Arm, Data, Dropout, Experiment, Net, Optim, Source

CHOSEN = "our demonstration, not in the paper; chosen on 497 held-out cases by digits.choose"


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
        sources=(
            Source(path="data.name", section="our demonstration; the split is fixed in advance in data/digits.py"),
            Source(path="optim.lr", section=CHOSEN),
            Source(path="arms.dropout.lr", section=CHOSEN),
            Source(path="dropout.hidden", section="body", paper="0.5"),
            Source(path="dropout.visible", section="body", paper="0.2"),
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
        data=Data(name="digits", held_out=True),
        arms=arms,
        samples=0,
        sources=(),
        next="",
    )
