"""What an experiment is: frozen dataclasses, changed by path (`net.hidden=1200,1200`), to and from JSON."""

from meannet.config.experiment import Experiment, from_json
from meannet.config.parts import (
    MOST_STEPS,
    PERCENT,
    PHONES,
    Adapt,
    Arm,
    Claim,
    Conv,
    Data,
    Dropout,
    Joint,
    Net,
    Optim,
    Patches,
    Pretrain,
    Selection,
    Source,
    Speech,
)
from meannet.config.paths import override, settings
from meannet.config.values import nearest, none_of, text_of, to_json

__all__ = [
    "MOST_STEPS",
    "PERCENT",
    "PHONES",
    "Adapt",
    "Arm",
    "Claim",
    "Conv",
    "Data",
    "Dropout",
    "Experiment",
    "Joint",
    "Net",
    "Optim",
    "Patches",
    "Pretrain",
    "Selection",
    "Source",
    "Speech",
    "from_json",
    "nearest",
    "none_of",
    "override",
    "settings",
    "text_of",
    "to_json",
]
