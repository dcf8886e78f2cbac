"""What an experiment is: all that decides a result, in one frozen dataclass."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from meannet.config.checks import check
from meannet.config.parts import Adapt, Arm, Claim, Conv, Data, Dropout, Net, Optim, Patches, Pretrain, Source
from meannet.config.values import build, to_json

# Settings of data and arms that count in a digest only where they are used, since earlier versions did not have them.
LATER = "selection", "speech", "cases", "conv", "weight_decay", "top_decay", "hidden_rates", "visible_rate", "adapt"


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
    adapt: Adapt | None = None  # where arms adapt their rates
    pretrain: Pretrain | None = None
    conv: Conv | None = None  # for pictures
    patches: Patches | None = None  # for pictures in shards
    claims: tuple[Claim, ...] = ()  # the first is the headline
    record_every: int = 1  # epochs between two lines of the record
    samples: int = 0  # thinned networks to sample for each net at the end, beside the mean network
    quick_epochs: int = 0  # of --quick; a hundredth of the epochs where 0
    show_features: bool = False  # whether the report draws first-layer features
    sources: tuple[Source, ...] = ()
    time: str = ""  # about how long it takes, and where
    next: str = ""  # a command to try after this one

    def __post_init__(self) -> None:
        check(self)

    def pairs(self) -> list[tuple[Arm, int]]:
        """Arm and seed of each net of a fleet, in its order: net = arm * number of seeds + seed."""
        return [(arm, seed) for arm in self.arms for seed in self.seeds]

    def lr(self, arm: Arm) -> float:
        return self.optim.lr if arm.lr is None else arm.lr

    def limit(self, arm: Arm) -> float:
        return self.optim.limit if arm.limit is None else arm.limit

    def initial_bias(self, arm: Arm) -> float:
        return self.net.initial_bias if arm.initial_bias is None else arm.initial_bias

    def rates(self, arm: Arm, layers: int = 1) -> tuple[float, ...]:
        """Rates in this arm: of the visible units, then of each of so many hidden layers."""
        visible = self.dropout.visible if arm.visible_rate is None else arm.visible_rate
        hidden = arm.hidden_rates or (self.dropout.hidden,)
        each = [hidden[min(layer, len(hidden) - 1)] if arm.hidden else 0.0 for layer in range(layers)]
        return (visible if arm.visible else 0.0, *each)

    def omitting(self) -> set[str]:
        """Arms that omit units at all, by name."""
        return {arm.name for arm in self.arms if any(self.rates(arm, max(1, len(arm.hidden_rates))))}

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
        also = [name for name in ("adapt", "pretrain", "conv", "patches") if getattr(self, name) is not None]
        parts = to_json({name: getattr(self, name) for name in (*names, *also)})
        for part in (parts["data"], *parts.get("arms", ())):
            for name in LATER:
                if part.get(name) is None or part[name] is False or part[name] == []:
                    part.pop(name, None)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def quick(self) -> "Experiment":
        """A look at the same: one architecture, two seeds, few epochs, the schedule compressed into them."""
        epochs = self.quick_epochs or max(2, self.optim.epochs // 100)
        return replace(
            self,
            net=replace(self.net, hidden=self.net.hidden[:1]),
            optim=self.optim.compressed(epochs),
            adapt=self.adapt and replace(self.adapt, start=self.adapt.start * epochs // self.optim.epochs),
            pretrain=self.pretrain.quick() if self.pretrain else None,
            seeds=self.seeds[:2],
            record_every=1,
        )


def from_json(document: Any) -> Experiment:
    """The experiment that `to_json` wrote; unknown, missing or ill-typed fields are errors that name the field."""
    return build(Experiment, document, "experiment")
