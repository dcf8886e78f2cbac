"""The parts of an experiment: data, nets, dropout, gradient descent, pretraining, arms and claims."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

PERCENT = "% test errors"
PHONES = "% phone errors"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which documents, classes and words make a data set of text (C): all that the paper leaves open."""

    words: int = 2000  # the commonest that are no stop words
    commonest: Literal["occurrences", "documents"] = "occurrences"  # what is counted to find them
    words_of: Literal["all", "train"] = "all"  # the documents in which it is counted
    fewest: int = 5  # documents of a class; classes with fewer are dropped
    largest: float = 0.2  # share of the documents that are in one class; a class with more is dropped
    alone: Literal["before", "after"] = "before"  # a document is in one class before, or after, classes are dropped
    split: Literal["equal", "published"] = "equal"  # a random half each, or the parts that came with the data
    seed: int = 2012  # of the split, and of the held-out documents
    held_out: float = 0.2  # share of the training documents, where choices are made


@dataclass(frozen=True, kw_only=True)
class Speech:
    """How recordings become cases (B), with what the paper leaves open, and who learns from and is judged on whom."""

    folder: str = ""  # of recordings of one's own
    frames: int = 15  # in a case; the middle one is to be classified
    bins: int = 40  # of the filter bank
    deltas: int = 2  # orders of differences over time beside the bins
    sa: bool = False  # whether the two sentences that every speaker of TIMIT says are used
    judged: Literal["core", "dev"] = "core"  # which set of the full corpus
    folds: int = 0  # turns in which all are judged on, the net of seed s in turn s % folds; 0: the corpus is divided
    apart: Literal["speakers", "recordings"] = "speakers"  # what a turn keeps together
    dev: int = 2  # of these in each turn neither learned from nor judged on: the decoder is tuned there
    decode: bool = True  # whether phones are recognised and their errors counted
    aligned_by: str = ""  # a finished run whose nets divide phones among states; empty: states have equal parts


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which cases to learn from and which to be judged on."""

    name: str
    held_out: bool = False  # judge on held-out training cases instead of the test set: where choices are made
    selection: Selection | None = None  # for text alone
    speech: Speech | None = None  # for recordings alone
    cases: int | None = None  # train on the first so many only


@dataclass(frozen=True, kw_only=True)
class Net:
    """Hidden layers, one architecture or several trained one after another, and their units."""

    hidden: tuple[tuple[int, ...], ...]
    units: Literal["logistic", "rectified"] = "logistic"
    initial_sd: float = 0.01
    initial_bias: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Conv:
    """Convolutional and local layers below `net.hidden` (F, G), each with its pool, and what their nets alone have."""

    banks: tuple[int, ...] = (64, 64, 64)
    filter: int = 5  # rows and columns of a filter
    pools: tuple[Literal["max", "average"], ...] = ("max", "average", "average")
    pool_size: int = 3
    pool_stride: int = 2  # less than the size: pools overlap
    normalised: int = 2  # so many layers, from below, have response normalisation after their pools
    norm_size: int = 9
    norm_alpha: float = 0.001
    norm_beta: float = 0.75
    norm_form: Literal["authors", "printed"] = "authors"
    local: tuple[int, ...] = ()  # banks of locally connected layers above them
    local_filter: int = 3
    scale: float = 1.0  # multiplies the centred pixels
    # Of each hidden layer's weights, where the last one given holds for all layers after it; empty: variances are tried
    # until they work (F.5).
    initial_sd: tuple[float, ...] = ()
    weight_decay: float = 0.0  # of convolutional filters
    top_decay: float = 0.0  # of the weights above them
    rate: float = 0.5  # of convolutional units, in arms that omit them


@dataclass(frozen=True, kw_only=True)
class Patches:
    """The net of H below `net.hidden`, and the patches that it learns from; layers are counted from 1."""

    size: int = 224  # rows and columns of a patch
    banks: tuple[int, ...] = (64, 256, 512, 512, 512)
    filters: tuple[int, ...] = (11, 5, 3, 3, 3)  # rows and columns
    stride: int = 4  # of the first layer; the second one's other input keeps every so manieth pixel of the patch
    groups: tuple[int, ...] = (1, 4, 16, 16, 16)  # of banks; each reads channels of its own, drawn at random
    pooled: tuple[int, ...] = (1, 2, 5)  # layers that a max-pool follows
    normalised: tuple[int, ...] = (1, 2)  # layers with response normalisation after that
    pool_size: int = 3
    pool_stride: int = 2
    norm_size: int = 9
    norm_alpha: float = 0.001
    norm_beta: float = 0.75
    norm_form: Literal["authors", "printed"] = "authors"
    scale: float = 1.0  # multiplies the centred pixels
    initial_sd: tuple[float, ...] = ()  # of each hidden layer's weights; where empty, variances are tried (F.5)
    weight_decay: float = 0.0
    search: int = 0  # updates with each power of ten to find the learning rate (F.7); 0: it is optim.lr


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Probability of omitting a hidden unit and a visible unit, for the arms that omit them."""

    hidden: float = 0.5
    visible: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Optim:
    """Gradient descent on mini-batches: A.1's rule with its (1 - momentum) factor, or the plain one used for images."""

    epochs: int
    rule: Literal["a1", "plain"] = "a1"
    batch: int = 100
    lr: float = 10.0
    decay: float = 0.998  # of the learning rate, each epoch
    cuts: tuple[int, ...] = ()  # epochs at which the learning rate is divided by ten
    momentum_start: float = 0.5
    momentum_end: float = 0.99
    momentum_epochs: int = 500
    limit: float = 15.0  # on the squared length of a hidden unit's incoming vector; inf for none

    def compressed(self, epochs: int) -> "Optim":
        """The same schedule run through in fewer epochs: final learning rate and share of the momentum ramp stay."""
        ratio = self.epochs / epochs
        return replace(
            self,
            epochs=epochs,
            decay=self.decay**ratio,
            momentum_epochs=round(self.momentum_epochs / ratio),
            cuts=tuple(round(cut / ratio) for cut in self.cuts),
        )


@dataclass(frozen=True, kw_only=True)
class Adapt:
    """How arms that do so adapt the rate of each unit (body); the paper has the idea and no numbers."""

    cases: int  # the last so many training cases, which no arm learns from: thinned networks are judged on them
    samples: int = 10  # thinned networks a case, after each epoch
    pace: float = 0.1  # how far the log-odds of omission move for an advantage of 1 in log probability
    start: int = 20  # epochs before the first move
    least: float = 0.05  # rates stay from this ...
    most: float = 0.9  # ... to this
    worst: float = -5.0  # log probability below which it does not matter how wrong a thinned network is


MOST_STEPS = 999  # Gibbs steps of one update


@dataclass(frozen=True, kw_only=True)
class Joint:
    """Training of all layers of a deep Boltzmann machine together."""

    epochs: int = 300
    lr: float = 0.001
    lr_decay: float = 0.991  # each epoch
    lr_least: float = 0.0001
    decay: float = 0.0002  # of weights
    sweeps: int = 30  # of mean field for each mini-batch
    chains: int = 100
    steps: int = 5  # Gibbs steps of the chains for each mini-batch
    states: Literal["means", "samples"] = "means"  # of the second layer in the model's statistics
    targets: tuple[float, ...] = (0.2, 0.1)  # mean activities that the two layers are pulled to
    cost: float = 0.001  # how strongly


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Generative pretraining of the hidden layers, and how finetuning begins.

    Where there is one value a layer, the last one given holds for all layers after it.
    """

    model: Literal["dbn", "dbm"] = "dbn"
    visible: Literal["bernoulli", "gaussian"] = "bernoulli"
    epochs: tuple[int, ...] = (50,)
    lr: tuple[float, ...] = (0.1,)
    decay: tuple[float, ...] = (0.0002,)  # of weights
    initial_sd: tuple[float, ...] = (0.1,)
    steps_every: tuple[int, ...] = (0,)  # epochs after which the Gibbs steps grow by one and divide the rate; 0: never
    steps: int = 1  # of contrastive divergence
    persistent: bool = False
    states: Literal["means", "samples"] = "means"  # of visible units in reconstructions
    sample_inputs: bool = False  # binary states of the inputs, drawn anew for each update, instead of the inputs
    data_biases: Literal["none", "upper", "all"] = "none"  # layers whose visible biases come from the data's means
    batch: int = 100
    rule: Literal["a1", "plain"] = "plain"
    momentum_start: float = 0.5
    momentum_end: float = 0.9
    momentum_epochs: int = 5
    sudden: bool = True  # whether momentum jumps after those epochs instead of rising over them
    labels: bool = False  # whether the top layer of a deep Boltzmann machine sees labels while it is pretrained
    joint: Joint = field(default_factory=Joint)
    softmax_epochs: int = 10  # of the new softmax layer alone, before finetuning
    softmax_lr: float = 0.1
    scale_up: bool = True  # in arms that omit units, divide the weights that they feed by 1 - rate at the start
    gibbs: int = 1000  # steps before the samples that the report shows

    def of(self, name: str, layer: int) -> Any:
        """A layer's own value of a setting that has one a layer."""
        values = getattr(self, name)
        return values[min(layer, len(values) - 1)]

    def quick(self) -> "Pretrain":
        """A look: a fiftieth of the epochs."""
        joint = replace(self.joint, epochs=max(1, self.joint.epochs // 150))
        epochs = tuple(max(1, count // 50) for count in self.epochs)
        return replace(self, epochs=epochs, joint=joint, softmax_epochs=min(self.softmax_epochs, 2), gibbs=100)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One side of a comparison: which units it omits, and numbers of its own in place of the experiment's."""

    name: str
    hidden: bool = False
    visible: bool = False
    lr: float | None = None
    limit: float | None = None
    initial_bias: float | None = None
    hidden_rates: tuple[float, ...] = ()  # of each hidden layer, in place of dropout.hidden; the last holds for others
    visible_rate: float | None = None  # in place of dropout.visible
    adapt: bool = False  # whether units adapt their rates, from these on
    conv: bool = False  # whether units of convolutional layers are omitted too
    weight_decay: float | None = None  # of convolutional filters; in dense nets, of all weights
    top_decay: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure of the paper that an arm is held against: a count of errors, "% test errors" or "% phone errors"."""

    arm: str
    value: float
    unit: str = "test errors"

    def counted(self, n_test: int) -> "Claim":
        """A percentage as so many errors of `n_test`, since results are counts."""
        if self.unit != PERCENT:
            return self
        return replace(self, value=round(self.value / 100 * n_test, 1), unit=self.unit.removeprefix("% "))


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a setting comes from: a section and the value it gives, or why we chose what the paper leaves open."""

    path: str
    section: str
    paper: str = ""  # the paper's value as `--set` would take it; empty where it gives none
