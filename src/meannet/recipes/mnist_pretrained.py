"""MNIST with generative pretraining (body, A.2): a deep belief net and a deep Boltzmann machine, finetuned."""

import math
from dataclasses import replace

from meannet.config import Arm, Claim, Data, Dropout, Experiment, Joint, Net, Optim, Pretrain, Source
from meannet.recipes.mnist import BACKPROP, DROPOUT, DROPOUT_INPUT, on_held_out

AUTHORS = "the authors' public code, to which A.2 refers"
BINARY = "binary here, which held-out cases do not tell from means (docs/log.md)"

# All finetuning settings that A.2 does not name are "the same as before", those of A.1.
FINETUNING = (
    Source(path="net.units", section="not stated; the pretrained machines have logistic units"),
    Source(path="dropout.hidden", section="A.2", paper="0.5"),
    Source(path="dropout.visible", section="A.2; the body speaks of hidden units only: arm dropout", paper="0.2"),
    Source(path="optim.epochs", section="A.2", paper="1000"),
    Source(path="optim.batch", section="A.2", paper="100"),
    Source(
        path="optim.lr",
        section="A.2; not stated without dropout, where 1 and 3 come out alike in mnist.choose_a2_dbn and _dbm",
        paper="1",
    ),
    Source(path="optim.decay", section="A.2: constant", paper="1"),
    Source(path="optim.limit", section="A.2: no constraint", paper="inf"),
    Source(path="optim.rule", section="A.1", paper="a1"),
    Source(path="optim.momentum_start", section="A.1 (text; its formula swaps start and end)", paper="0.5"),
    Source(path="optim.momentum_end", section="A.1 (text; its formula swaps start and end)", paper="0.99"),
    Source(path="optim.momentum_epochs", section="A.1", paper="500"),
    Source(path="pretrain.softmax_epochs", section="not stated; the new layer must not spoil those below it at first"),
    Source(path="pretrain.softmax_lr", section="not stated"),
    Source(path="pretrain.scale_up", section="not stated; so units see the input that they were pretrained with"),
)
PRETRAINING = (
    Source(path="pretrain.batch", section=AUTHORS),
    Source(path="pretrain.rule", section=f"{AUTHORS}: no (1 - momentum) factor"),
    Source(path="pretrain.momentum_start", section=AUTHORS),
    Source(path="pretrain.momentum_end", section=AUTHORS),
    Source(path="pretrain.momentum_epochs", section=AUTHORS),
    Source(path="pretrain.sudden", section=AUTHORS),
)


def a2_dbn() -> Experiment:
    """A.2: a 784-500-500-2000 deep belief net, finetuned with and without dropout."""
    return Experiment(
        recipe="mnist.a2_dbn",
        paper="A.2, deep belief net",
        about="Test errors on MNIST of a deep belief net finetuned by backpropagation, with dropout of hidden units, "
        "and with dropout of hidden and visible units.",
        data=Data(name="mnist"),
        net=Net(hidden=((500, 500, 2000),)),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=Optim(epochs=1000, lr=1.0, decay=1.0, limit=math.inf),
        pretrain=Pretrain(epochs=(200,), states="samples", sample_inputs=True),
        arms=(BACKPROP, DROPOUT, DROPOUT_INPUT),
        seeds=(0, 1, 2, 3, 4),
        claims=(
            Claim(arm="dropout+input", value=92),
            Claim(arm="dropout", value=92),
            Claim(arm="backprop", value=118),
        ),
        record_every=10,
        samples=20,
        quick_epochs=4,
        sources=(
            Source(path="net.hidden", section="A.2", paper="500,500,2000"),
            *FINETUNING,
            *PRETRAINING,
            Source(path="pretrain.model", section="A.2", paper="dbn"),
            Source(path="pretrain.steps", section="A.2: contrastive divergence; one step in the authors' code"),
            Source(path="pretrain.epochs", section=f"{AUTHORS}: 50; with 200 fewest held-out errors, perhaps by luck"),
            Source(path="pretrain.lr", section=AUTHORS),
            Source(path="pretrain.decay", section=AUTHORS),
            Source(path="pretrain.initial_sd", section=AUTHORS),
            Source(path="pretrain.states", section=f"{AUTHORS}: probabilities of visible units; {BINARY}"),
            Source(path="pretrain.sample_inputs", section=f"{AUTHORS}: no; {BINARY}"),
            Source(path="pretrain.data_biases", section=f"{AUTHORS}: all biases start at zero"),
        ),
        time="7 minutes on one H200 that had other runs as well",
        next="meannet eval RUN --samples 100",
    )


def a2_dbm() -> Experiment:
    """A.2: a 784-500-1000 deep Boltzmann machine, unrolled into 1784-500-1000-10 and finetuned."""
    belief = a2_dbn()
    return replace(
        belief,
        recipe="mnist.a2_dbm",
        paper="A.2, deep Boltzmann machine",
        about="Test errors on MNIST of a deep Boltzmann machine finetuned by backpropagation, with dropout of hidden "
        "units, and with dropout of hidden and visible units; each seed has a machine of its own.",
        net=Net(hidden=((500, 1000),)),
        pretrain=Pretrain(
            model="dbm",
            epochs=(100, 200),
            lr=(0.05,),
            decay=(0.001,),
            initial_sd=(0.001, 0.01),
            steps_every=(0, 20),
            states="samples",
            sample_inputs=True,
            labels=True,
            joint=Joint(epochs=300, sweeps=10),
        ),
        arms=(replace(BACKPROP, lr=3.0), DROPOUT, DROPOUT_INPUT),
        claims=(
            Claim(arm="dropout+input", value=79),
            Claim(arm="dropout", value=79),
            Claim(arm="backprop", value=94),
        ),
        sources=(
            Source(path="net.hidden", section="A.2; 1000 more inputs are mean-field activities", paper="500,1000"),
            *FINETUNING,
            *PRETRAINING,
            Source(path="pretrain.model", section="A.2", paper="dbm"),
            Source(path="pretrain.steps_every", section=f"{AUTHORS}: the second layer's steps grow every 20 epochs"),
            Source(path="pretrain.epochs", section=AUTHORS),
            Source(path="pretrain.lr", section=f"{AUTHORS}; divided by the number of Gibbs steps"),
            Source(path="pretrain.decay", section=AUTHORS),
            Source(path="pretrain.initial_sd", section=AUTHORS),
            Source(path="pretrain.states", section=AUTHORS),
            Source(path="pretrain.sample_inputs", section=AUTHORS),
            Source(path="pretrain.data_biases", section=f"{AUTHORS}: all biases start at zero"),
            Source(path="pretrain.labels", section=f"{AUTHORS}; the extra inputs are found without labels"),
            Source(path="pretrain.joint.epochs", section=f"{AUTHORS}: 300 to 500"),
            Source(path="pretrain.joint.lr", section=AUTHORS),
            Source(path="pretrain.joint.lr_decay", section=f"{AUTHORS}: divided by 1.000015 each update"),
            Source(path="pretrain.joint.lr_least", section=AUTHORS),
            Source(path="pretrain.joint.decay", section=AUTHORS),
            Source(path="pretrain.joint.sweeps", section=f"{AUTHORS}: at most 30; means settle within 10"),
            Source(path="pretrain.joint.chains", section=AUTHORS),
            Source(path="pretrain.joint.steps", section=AUTHORS),
            Source(path="pretrain.joint.states", section=f"{AUTHORS}; samples leave the second layer nearly silent"),
            Source(path="pretrain.joint.targets", section=AUTHORS),
            Source(path="pretrain.joint.cost", section=AUTHORS),
        ),
        time="9 minutes on one H200",
    )


def choose_a2_dbn() -> Experiment:
    """The learning rate of the backprop arm, and which units to omit, judged on 10,000 held-out training cases."""
    return replace(_choose(a2_dbn()), recipe="mnist.choose_a2_dbn", time="some 4 minutes on one H200 (estimated)")


def choose_a2_dbm() -> Experiment:
    """The same for the deep Boltzmann machine."""
    return replace(_choose(a2_dbm()), recipe="mnist.choose_a2_dbm", time="6 minutes on one H200")


def _choose(full: Experiment) -> Experiment:
    rates = (0.1, 0.3, 1.0, 3.0)
    arms = (
        *(Arm(name=f"backprop, lr {rate:g}", lr=rate) for rate in rates),
        *(replace(arm, name=f"{arm.name}, lr {rate:g}", lr=rate) for arm in full.arms[1:] for rate in rates[2:]),
    )
    about = "How settings that A.2 leaves open are chosen: errors on 10,000 held-out training cases."
    return replace(on_held_out(full, arms), paper="A.2, settings left open", about=about)
