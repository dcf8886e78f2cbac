"""What an experiment is: frozen dataclasses, changed by path (`net.hidden=1200,1200`), to and from JSON."""

import dataclasses
import difflib
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
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
    initial_sd: tuple[float, ...] = ()  # of each hidden layer's weights; where empty, variances are tried (F.5)
    weight_decay: float = 0.0  # of convolutional filters
    top_decay: float = 0.0  # of the weights above them
    rate: float = 0.5  # of convolutional units, in arms that omit them


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
    conv: bool = False  # whether units of convolutional layers are omitted too
    weight_decay: float | None = None
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


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that decides a result. `arms` x `seeds` nets train side by side, for each architecture of `net.hidden`."""

    recipe: str
    paper: str
    about: str
    data: Data
    net: Net
    optim: Optim
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    dropout: Dropout = field(default_factory=Dropout)
    pretrain: Pretrain | None = None
    conv: Conv | None = None  # for pictures
    claims: tuple[Claim, ...] = ()  # the first is the headline
    record_every: int = 1  # epochs between two lines of the record
    samples: int = 0  # thinned networks to sample for each net at the end, beside the mean network
    quick_epochs: int = 0  # of --quick; a hundredth of the epochs where 0
    show_features: bool = False  # whether the report draws first-layer features
    sources: tuple[Source, ...] = ()
    time: str = ""  # about how long it takes, and where
    next: str = ""  # a command to try after this one

    def __post_init__(self) -> None:
        _check(self)

    def lr(self, arm: Arm) -> float:
        return self.optim.lr if arm.lr is None else arm.lr

    def limit(self, arm: Arm) -> float:
        return self.optim.limit if arm.limit is None else arm.limit

    def initial_bias(self, arm: Arm) -> float:
        return self.net.initial_bias if arm.initial_bias is None else arm.initial_bias

    def rates(self, arm: Arm) -> tuple[float, float]:
        """Rates of (visible, hidden) units in this arm."""
        return (self.dropout.visible if arm.visible else 0.0, self.dropout.hidden if arm.hidden else 0.0)

    def decays(self, arm: Arm) -> tuple[float, float]:
        """Weight decay of (convolutional filters, the weights above them) in this arm."""
        assert self.conv is not None
        own = (arm.weight_decay, self.conv.weight_decay), (arm.top_decay, self.conv.top_decay)
        first, second = (general if particular is None else particular for particular, general in own)
        return first, second

    def digest(self) -> str:
        """A hash of every setting that decides the numbers, and of nothing else."""
        return self._digest("data", "net", "dropout", "optim", "arms", "seeds")

    def pretrain_digest(self) -> str:
        """The same of pretraining, which neither arms nor finetuning decide."""
        return self._digest("data", "net", "seeds")

    def _digest(self, *names: str) -> str:
        also = [name for name in ("pretrain", "conv") if getattr(self, name) is not None]
        parts = to_json({name: getattr(self, name) for name in (*names, *also)})
        for part in (parts["data"], *parts.get("arms", ())):  # settings that came later count where they are used
            for name in ("selection", "speech", "cases", "conv", "weight_decay", "top_decay"):
                if part.get(name) is None or part[name] is False:
                    part.pop(name, None)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def quick(self) -> "Experiment":
        """A look at the same: one architecture, two seeds, few epochs, the schedule compressed into them."""
        epochs = self.quick_epochs or max(2, self.optim.epochs // 100)
        return replace(
            self,
            net=replace(self.net, hidden=self.net.hidden[:1]),
            optim=self.optim.compressed(epochs),
            pretrain=self.pretrain.quick() if self.pretrain else None,
            seeds=self.seeds[:2],
            record_every=1,
        )


def override(experiment: Experiment, settings: Iterable[str]) -> Experiment:
    """Apply `path=value` settings in order; names that do not exist are answered with the nearest that do."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes path=value, not {setting!r}; for example --set optim.lr=1")
        experiment = _set(experiment, path.split("."), text, path)
    return experiment


def settings(experiment: Experiment) -> dict[str, Any]:
    """Every setting by its path, in order: `net.hidden`, `arms.dropout.lr`, ..."""
    found: dict[str, Any] = {}
    for group in ("data", "net", *["conv"][: experiment.conv is not None], "dropout", "optim"):
        found |= _by_path(group, getattr(experiment, group))
    if experiment.pretrain:
        found |= _pretraining(experiment.pretrain)
    left_out = ("name",) if experiment.conv else ("name", "conv", "weight_decay", "top_decay")
    for arm in experiment.arms:
        found |= {f"arms.{arm.name}.{f.name}": getattr(arm, f.name) for f in fields(arm) if f.name not in left_out}
    rest = ("seeds", "record_every", "samples")
    return found | {name: getattr(experiment, name) for name in rest}


def _by_path(path: str, part: Any) -> dict[str, Any]:
    """The values of a group and of the groups in it; a group that is not there has none."""
    found: dict[str, Any] = {}
    for name in (f.name for f in fields(part)):
        value = getattr(part, name)
        if dataclasses.is_dataclass(value):
            found |= _by_path(f"{path}.{name}", value)
        elif value is not None:
            found[f"{path}.{name}"] = value
    return found


def _pretraining(part: Pretrain) -> dict[str, Any]:
    """Without what a deep belief net has no use for."""
    own = {f"pretrain.{f.name}": getattr(part, f.name) for f in fields(part) if f.name != "joint"}
    joint = {f"pretrain.joint.{f.name}": getattr(part.joint, f.name) for f in fields(part.joint)}
    return own | joint if part.model == "dbm" else {path: v for path, v in own.items() if path != "pretrain.labels"}


def text_of(value: Any) -> str:
    """A setting as `--set` takes it."""
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return ";".join(text_of(v) or "none" for v in value)
        return ",".join(text_of(v) for v in value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def to_json(value: Any) -> Any:
    """Plain JSON values; infinity, which JSON lacks, becomes the string "inf"."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_json(v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in value]
    return "inf" if value == math.inf else value


def from_json(document: Any) -> Experiment:
    """The experiment that `to_json` wrote; unknown, missing or ill-typed fields are errors that name the field."""
    return _build(Experiment, document, "experiment")


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say about an unknown name: the closest match, or all that there is."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there is {', '.join(known)}"


def _set(part: Any, path: list[str], text: str, whole: str) -> Any:
    if isinstance(part, tuple):
        names = [arm.name for arm in part]
        if path[0] not in names:
            raise ValueError(f"no arm {path[0]!r} in {whole}; {nearest(path[0], names)}")
        if not path[1:]:
            raise ValueError(f"{whole} is a whole arm; set one of its values, such as {whole}.lr")
        return tuple(_set(arm, path[1:], text, whole) if arm.name == path[0] else arm for arm in part)
    hints = {name: kind for name, kind in _hints(type(part)).items() if name not in _NOT_SETTINGS}
    name = path[0]
    if name not in hints:
        where = whole[: len(whole) - len(".".join(path))]
        raise ValueError(f"no setting {whole!r}; {nearest(name, hints)}" + (f" (in {where[:-1]})" if where else ""))
    value = getattr(part, name)
    if value is None and name == "pretrain":
        raise ValueError(f"no setting {whole!r}: this experiment does not pretrain; mnist.a2_dbn and others do")
    if value is None and name == "conv" and path[1:]:
        raise ValueError(f"no setting {whole!r}: this experiment has no convolutional layers; cifar10.g_conv has")
    if dataclasses.is_dataclass(value) or (name == "arms"):
        if not path[1:]:
            raise ValueError(
                f"{whole!r} is a group; set one of its values, such as {whole}.{next(iter(_names(value)))}"
            )
        return replace(part, **{name: _set(value, path[1:], text, whole)})
    if value is None and name in ("selection", "speech"):
        kind = "text" if name == "selection" else "speech"
        raise ValueError(f"{whole} is for data sets of {kind}; {part.name} is none")
    if path[1:]:
        raise ValueError(f"{'.'.join(path[:1])} in {whole!r} is a value and has no {path[1]!r}")
    return replace(part, **{name: _parse(hints[name], text, whole)})


_NOT_SETTINGS = (
    "recipe",
    "paper",
    "about",
    "claims",
    "sources",
    "time",
    "next",
    "show_features",
    "quick_epochs",
    "name",
)


def _names(value: Any) -> list[str]:
    return [arm.name for arm in value] if isinstance(value, tuple) else [f.name for f in fields(value)]


def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _parse(kind: Any, text: str, path: str) -> Any:
    """`text` from the command line as a value of type `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if text == "none" else _parse(arguments[0], text, path)
    if origin is Literal:
        if text not in arguments:
            raise ValueError(f"{path} must be one of {', '.join(arguments)}, not {text!r}; {nearest(text, arguments)}")
        return text
    if origin is tuple:
        inner = arguments[0]
        separator = ";" if typing.get_origin(inner) is tuple else ","
        pieces = (
            [piece for piece in text.split(separator) if piece.strip()] if text != "none" or separator == ";" else []
        )
        return tuple(_parse(inner, piece.strip(), path) for piece in pieces)
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{path} must be true or false, not {text!r}")
        return text == "true"
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ValueError(f"{path} must be {wanted}, not {text!r}") from None


def _build(kind: Any, value: Any, path: str) -> Any:
    """`value` from JSON as a value of type `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{path} must be an object, not {value!r}")
        hints = _hints(typing.cast(type, kind))
        for name in value:
            if name not in hints:
                raise ValueError(f"unknown field {path}.{name}; {nearest(name, hints)}")
        try:
            return kind(**{name: _build(hints[name], v, f"{path}.{name}") for name, v in value.items()})
        except TypeError as error:
            raise ValueError(f"{path}: {str(error).split(') ', 1)[-1]}") from None
    if origin is types.UnionType:
        return None if value is None else _build(arguments[0], value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{path} must be a list, not {value!r}")
        return tuple(_build(arguments[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if origin is Literal:
        return _parse(kind, str(value), path)
    if kind is float and value == "inf":
        return math.inf
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _parse(kind, str(value), path)
    if type(value) is not kind:
        raise ValueError(f"{path} must be {kind.__name__}, not {value!r}")
    return value


def _check(e: Experiment) -> None:
    """Refuse what cannot be run, naming the setting, its value and what is allowed."""

    def need(good: bool, path: str, value: Any, allowed: str) -> None:
        if not good:
            raise ValueError(f"{path} must be {allowed}, not {text_of(value)}")

    optim, text = e.optim, e.data.selection
    if text is not None:
        for name, value, least in (("words", text.words, 1), ("fewest", text.fewest, 1), ("seed", text.seed, 0)):
            need(least <= value < 2**31, f"data.selection.{name}", value, f"from {least} to {2**31 - 1}")
        need(0 < text.largest <= 1, "data.selection.largest", text.largest, "a share above 0 and at most 1")
        need(0 < text.held_out < 1, "data.selection.held_out", text.held_out, "a share above 0 and below 1")
    if e.data.speech is not None:
        _check_speech(e, e.data.speech, need)
    need(bool(e.net.hidden), "net.hidden", "empty", "layer sizes such as 800,800")
    for sizes in e.net.hidden:
        good = bool(sizes or e.conv) and all(1 <= n <= 1_000_000 for n in sizes)
        need(good, "net.hidden", sizes, "layer sizes from 1 to 1000000, such as 800,800")
    need(len(set(e.net.hidden)) == len(e.net.hidden), "net.hidden", e.net.hidden, "architectures that differ")
    need(0 < e.net.initial_sd < math.inf, "net.initial_sd", e.net.initial_sd, "above 0")
    need(math.isfinite(e.net.initial_bias), "net.initial_bias", e.net.initial_bias, "finite")
    for name in ("hidden", "visible"):
        rate = getattr(e.dropout, name)
        need(0 <= rate < 1, f"dropout.{name}", rate, "a probability of omission, at least 0 and below 1")
    for name, least in (("epochs", 1), ("batch", 1), ("momentum_epochs", 0)):
        count = getattr(optim, name)
        need(least <= count < 2**31, f"optim.{name}", count, f"from {least} to {2**31 - 1}")
    need(0 < optim.lr < math.inf, "optim.lr", optim.lr, "above 0")
    need(0 < optim.decay <= 1, "optim.decay", optim.decay, "above 0 and at most 1")
    need(0 <= optim.momentum_start < 1, "optim.momentum_start", optim.momentum_start, "at least 0 and below 1")
    need(0 <= optim.momentum_end < 1, "optim.momentum_end", optim.momentum_end, "at least 0 and below 1")
    need(optim.limit > 0, "optim.limit", optim.limit, "a squared length above 0, or inf for no bound")
    need(all(cut >= 0 for cut in optim.cuts), "optim.cuts", optim.cuts, "epochs, 0 or more")
    if e.pretrain:
        _check_pretraining(e, e.pretrain, need)
    need(bool(e.arms), "arms", "empty", "at least one arm")
    need(len({arm.name for arm in e.arms}) == len(e.arms), "arms", ",".join(a.name for a in e.arms), "named apart")
    for arm in e.arms:
        need(arm.lr is None or 0 < arm.lr < math.inf, f"arms.{arm.name}.lr", arm.lr, "above 0")
        need(arm.limit is None or arm.limit > 0, f"arms.{arm.name}.limit", arm.limit, "above 0, or inf for no bound")
        bias = arm.initial_bias
        need(bias is None or math.isfinite(bias), f"arms.{arm.name}.initial_bias", bias, "finite")
    need(bool(e.seeds), "seeds", "empty", "at least one seed")
    need(all(0 <= seed < 2**63 for seed in e.seeds), "seeds", e.seeds, "from 0 to 2^63 - 1")
    need(len(set(e.seeds)) == len(e.seeds), "seeds", e.seeds, "seeds that differ")
    need(e.record_every >= 1, "record_every", e.record_every, "1 or more")
    need(e.samples >= 0, "samples", e.samples, "0 or more")
    need(e.data.cases is None or e.data.cases >= 1, "data.cases", e.data.cases, "1 or more, or none for all")
    if e.conv is not None:
        _check_conv(e, e.conv, need)
    else:
        for arm in e.arms:
            own = arm.conv or arm.weight_decay is not None or arm.top_decay is not None
            need(not own, f"arms.{arm.name}", "conv or decay", "without settings of convolutional nets")


def _check_speech(e: Experiment, speech: Speech, need: Callable[[bool, str, Any, str], None]) -> None:
    odd = 1 <= speech.frames <= 999 and speech.frames % 2 == 1
    need(odd, "data.speech.frames", speech.frames, "odd, so that one frame is in the middle, such as 15")
    need(3 <= speech.bins <= 200, "data.speech.bins", speech.bins, "from 3 to 200")
    need(0 <= speech.deltas <= 4, "data.speech.deltas", speech.deltas, "from 0 to 4")
    need(speech.folds == 0 or speech.folds > 1, "data.speech.folds", speech.folds, "2 or more, or 0")
    need(speech.dev >= 0, "data.speech.dev", speech.dev, "0 or more")
    need(e.data.cases is None, "data.cases", e.data.cases, "none where cases are frames of recordings")


def _check_conv(e: Experiment, conv: Conv, need: Callable[[bool, str, Any, str], None]) -> None:
    need(bool(conv.banks) and min(conv.banks) >= 1, "conv.banks", conv.banks, "numbers of filters such as 64,64,64")
    need(len(conv.pools) == len(conv.banks), "conv.pools", conv.pools, "max or average for each of conv.banks")
    for name in ("filter", "local_filter"):
        size = getattr(conv, name)
        need(size >= 1 and size % 2 == 1, f"conv.{name}", size, "odd, so that a filter has a centre")
    for name in ("pool_size", "pool_stride", "norm_size"):
        need(getattr(conv, name) >= 1, f"conv.{name}", getattr(conv, name), "1 or more")
    need(0 <= conv.normalised <= len(conv.banks), "conv.normalised", conv.normalised, "a number of layers")
    need(all(banks >= 1 for banks in conv.local), "conv.local", conv.local, "numbers of filters such as 16")
    need(0 < conv.scale < math.inf, "conv.scale", conv.scale, "above 0")
    need(0 <= conv.rate < 1, "conv.rate", conv.rate, "a probability of omission, at least 0 and below 1")
    for name in ("norm_alpha", "norm_beta", "weight_decay", "top_decay"):
        value = getattr(conv, name)
        need(0 <= value < math.inf, f"conv.{name}", value, "0 or more")
    for arm in e.arms:
        for name in ("weight_decay", "top_decay"):
            value = getattr(arm, name)
            need(value is None or 0 <= value < math.inf, f"arms.{arm.name}.{name}", value, "0 or more")
        need(not arm.visible, f"arms.{arm.name}.visible", True, "false: the image nets omit no pixels")
    layers = {len(conv.banks) + len(conv.local) + len(sizes) for sizes in e.net.hidden}
    good = not conv.initial_sd or (
        layers == {len(conv.initial_sd)} and all(0 < sd < math.inf for sd in conv.initial_sd)
    )
    need(good, "conv.initial_sd", conv.initial_sd, "above 0 for each hidden layer, or empty to try variances")


def _check_pretraining(e: Experiment, p: Pretrain, need: Callable[[bool, str, Any, str], None]) -> None:
    need(e.net.units == "logistic", "net.units", e.net.units, "logistic where nets are pretrained")
    if p.model == "dbm":
        two = all(len(sizes) == 2 for sizes in e.net.hidden)
        need(two, "net.hidden", e.net.hidden, "two layers for a deep Boltzmann machine, such as 500,1000")
        need(p.visible == "bernoulli", "pretrain.visible", p.visible, "bernoulli for a deep Boltzmann machine")
    for name, least in (("epochs", 1), ("steps_every", 0)):
        counts = getattr(p, name)
        good = bool(counts) and all(least <= count < 2**31 for count in counts)
        need(good, f"pretrain.{name}", counts, f"{least} or more, for each layer or for all")
    for name, least in (("lr", 1e-30), ("decay", 0), ("initial_sd", 0)):
        values = getattr(p, name)
        good = bool(values) and all(least <= value < math.inf for value in values)
        need(good, f"pretrain.{name}", values, f"{'above' if least else 'at least'} 0, for each layer or for all")
    for name, least, most in (("steps", 1, 1000), ("batch", 1, 2**31), ("momentum_epochs", 0, 2**31)):
        count = getattr(p, name)
        need(least <= count < most, f"pretrain.{name}", count, f"from {least} to {most - 1}")
    for name in ("momentum_start", "momentum_end"):
        need(0 <= getattr(p, name) < 1, f"pretrain.{name}", getattr(p, name), "at least 0 and below 1")
    need(p.softmax_epochs >= 0, "pretrain.softmax_epochs", p.softmax_epochs, "0 or more")
    need(0 < p.softmax_lr < math.inf, "pretrain.softmax_lr", p.softmax_lr, "above 0")
    need(p.gibbs >= 0, "pretrain.gibbs", p.gibbs, "0 or more")
    j = p.joint
    for name, least in (("epochs", 1), ("sweeps", 1), ("chains", 1), ("steps", 1)):
        need(getattr(j, name) >= least, f"pretrain.joint.{name}", getattr(j, name), f"{least} or more")
    need(0 < j.lr < math.inf, "pretrain.joint.lr", j.lr, "above 0")
    need(0 < j.lr_decay <= 1, "pretrain.joint.lr_decay", j.lr_decay, "above 0 and at most 1")
    need(0 <= j.lr_least < math.inf, "pretrain.joint.lr_least", j.lr_least, "0 or more")
    need(0 <= j.decay < math.inf and 0 <= j.cost < math.inf, "pretrain.joint.decay", j.decay, "0 or more, and so cost")
    good = len(j.targets) == 2 and all(0 < target < 1 for target in j.targets)
    need(good, "pretrain.joint.targets", j.targets, "two numbers between 0 and 1")
