"""What cannot be run is refused, naming the setting, its value and what is allowed."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meannet.config.parts import MOST_STEPS, Adapt, Arm, Conv, Patches, Pretrain, Speech
from meannet.config.values import text_of

if TYPE_CHECKING:
    from meannet.config.experiment import Experiment


def check(e: "Experiment") -> None:
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
        good = bool(sizes or e.conv or e.patches) and all(1 <= n <= 1_000_000 for n in sizes)
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
    need(all(arm.name.strip() for arm in e.arms), "arms", "without a name", "named")
    need(len({arm.name for arm in e.arms}) == len(e.arms), "arms", ",".join(a.name for a in e.arms), "named apart")
    for arm in e.arms:
        need(arm.lr is None or 0 < arm.lr < math.inf, f"arms.{arm.name}.lr", arm.lr, "above 0")
        need(arm.limit is None or arm.limit > 0, f"arms.{arm.name}.limit", arm.limit, "above 0, or inf for no bound")
        bias = arm.initial_bias
        need(bias is None or math.isfinite(bias), f"arms.{arm.name}.initial_bias", bias, "finite")
        _check_rates(e, arm, need)
    if e.adapt is not None:
        _check_adapting(e, e.adapt, need)
    need(bool(e.seeds), "seeds", "empty", "at least one seed")
    need(all(0 <= seed < 2**63 for seed in e.seeds), "seeds", e.seeds, "from 0 to 2^63 - 1")
    need(len(set(e.seeds)) == len(e.seeds), "seeds", e.seeds, "seeds that differ")
    need(e.record_every >= 1, "record_every", e.record_every, "1 or more")
    need(e.samples >= 0, "samples", e.samples, "0 or more")
    need(e.data.cases is None or e.data.cases >= 1, "data.cases", e.data.cases, "1 or more, or none for all")
    shown = "false" if e.data.name == "imagenet" else "true"
    need((e.data.name == "imagenet") == (e.patches is not None), "patches", shown, "set for imagenet and nothing else")
    if e.patches is not None:
        _check_patches(e, e.patches, need)
    if e.conv is not None:
        _check_conv(e, e.conv, need)
    else:
        for arm in e.arms:
            need(not arm.conv, f"arms.{arm.name}.conv", True, "false: these nets have no convolutional layers")
            need(arm.top_decay is None, f"arms.{arm.name}.top_decay", arm.top_decay, "none outside image nets")
            decay = arm.weight_decay
            need(decay is None or 0 <= decay < math.inf, f"arms.{arm.name}.weight_decay", decay, "0 or more")
            own = e.patches is not None and decay is not None
            need(not own, f"arms.{arm.name}.weight_decay", decay, "none: such nets have patches.weight_decay")


def _check_rates(e: "Experiment", arm: Arm, need: Callable[[bool, str, Any, str], None]) -> None:
    path, rates, visible = f"arms.{arm.name}", arm.hidden_rates, arm.visible_rate
    allowed = "probabilities of omission, at least 0 and below 1"
    need(all(0 <= rate < 1 for rate in rates), f"{path}.hidden_rates", rates, allowed)
    need(visible is None or 0 <= visible < 1, f"{path}.visible_rate", visible, allowed)
    need(arm.hidden or not rates, f"{path}.hidden_rates", rates, "empty where the arm omits no hidden units")
    need(arm.visible or visible is None, f"{path}.visible_rate", visible, "none where the arm omits no visible units")
    layers, pictures = max(map(len, e.net.hidden)), e.conv is not None or e.patches is not None
    need(not (rates and pictures), f"{path}.hidden_rates", rates, "empty in image nets, which have one rate")
    need(not arm.adapt or e.adapt is not None, f"{path}.adapt", True, "false where the experiment has no adapt")
    need(not arm.adapt or arm.hidden or arm.visible, f"{path}.adapt", True, "false where the arm omits no units")
    need(len(rates) <= layers, f"{path}.hidden_rates", rates, f"no more than the hidden layers, {layers}")


def _check_adapting(e: "Experiment", a: Adapt, need: Callable[[bool, str, Any, str], None]) -> None:
    plain = e.conv is None and e.patches is None and e.pretrain is None and e.data.speech is None
    need(plain, "adapt", "true", "for dense nets without pretraining")
    for name, least in (("cases", 1), ("samples", 1), ("start", 0)):
        need(least <= getattr(a, name) < 2**31, f"adapt.{name}", getattr(a, name), f"from {least} to {2**31 - 1}")
    need(0 < a.pace < math.inf, "adapt.pace", a.pace, "above 0")
    need(0 < a.most < 1, "adapt.most", a.most, "above 0 and below 1")
    need(0 < a.least <= a.most, "adapt.least", a.least, "above 0 and at most adapt.most")
    need(-math.inf < a.worst < 0, "adapt.worst", a.worst, "a log probability, below 0")


def _check_speech(e: "Experiment", speech: Speech, need: Callable[[bool, str, Any, str], None]) -> None:
    odd = 1 <= speech.frames <= 999 and speech.frames % 2 == 1
    need(odd, "data.speech.frames", speech.frames, "odd, so that one frame is in the middle, such as 15")
    need(3 <= speech.bins <= 200, "data.speech.bins", speech.bins, "from 3 to 200")
    need(0 <= speech.deltas <= 4, "data.speech.deltas", speech.deltas, "from 0 to 4")
    need(speech.folds == 0 or speech.folds > 1, "data.speech.folds", speech.folds, "2 or more, or 0")
    need(speech.dev >= 0, "data.speech.dev", speech.dev, "0 or more")
    for name, of in (("folder", "recordings"), ("judged", "timit")):  # elsewhere they would change nothing
        value = getattr(speech, name)
        good = value == getattr(Speech(), name) or e.data.name == of
        need(good, f"data.speech.{name}", value, f"left as it is where data.name is {e.data.name}; it is for {of}")
    need(e.data.cases is None, "data.cases", e.data.cases, "none where cases are frames of recordings")


def _check_conv(e: "Experiment", conv: Conv, need: Callable[[bool, str, Any, str], None]) -> None:
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
    layers = min(len(conv.banks) + len(conv.local) + len(sizes) for sizes in e.net.hidden)
    good = len(conv.initial_sd) <= layers and all(0 < sd < math.inf for sd in conv.initial_sd)
    need(good, "conv.initial_sd", conv.initial_sd, f"at most {layers} values above 0, or empty to try variances")


def _check_patches(e: "Experiment", p: Patches, need: Callable[[bool, str, Any, str], None]) -> None:
    one = len(e.arms) == len(e.seeds) == len(e.net.hidden) == 1
    need(one, "seeds", e.seeds, "one, with one arm and one architecture: nets that read shards train one a run")
    need(e.conv is None and e.pretrain is None, "patches", "true", "without conv and pretrain")
    need(e.data.cases is None, "data.cases", e.data.cases, "none: shards are learned from whole")
    need(e.samples == 0, "samples", e.samples, "0 where shards are learned from")
    need(e.optim.rule == "plain", "optim.rule", e.optim.rule, "plain")
    layers = len(p.banks)
    need(layers >= 2 and min(p.banks) >= 1, "patches.banks", p.banks, "numbers of filters of two or more layers")
    good = len(p.filters) == layers and all(size >= 1 and size % 2 == 1 for size in p.filters)
    need(good, "patches.filters", p.filters, "odd, for each of patches.banks")
    wide = p.filters[0] >= p.stride - 1
    need(wide, "patches.filters", p.filters, f"at least {p.stride - 1} in the first layer, whose stride is {p.stride}")
    below = (1, *p.banks)
    good = len(p.groups) == layers and p.groups[0] == 1 and min(p.groups) >= 1
    good = good and all(b % g == 0 == c % g for b, c, g in zip(p.banks, below, p.groups, strict=False))
    need(good, "patches.groups", p.groups, "1 and then divisors of the layer's banks and of those below")
    for name in ("pooled", "normalised"):
        numbers = getattr(p, name)
        need(all(1 <= k <= layers for k in numbers), f"patches.{name}", numbers, f"layers from 1 to {layers}")
    need(1 in p.pooled, "patches.pooled", p.pooled, "with 1: the second layer's two inputs must have the same size")
    need(p.stride >= 1 and p.size % (2 * p.stride) == 0, "patches.size", p.size, "a multiple of twice the stride")
    for name in ("pool_size", "pool_stride", "norm_size"):
        need(getattr(p, name) >= 1, f"patches.{name}", getattr(p, name), "1 or more")
    for name in ("norm_alpha", "norm_beta", "weight_decay", "search"):
        need(0 <= getattr(p, name) < math.inf, f"patches.{name}", getattr(p, name), "0 or more")
    need(0 < p.scale < math.inf, "patches.scale", p.scale, "above 0")
    good = not p.initial_sd or len(p.initial_sd) == layers + len(e.net.hidden[0])
    good = good and all(0 < sd < math.inf for sd in p.initial_sd)
    need(good, "patches.initial_sd", p.initial_sd, "above 0 for each hidden layer, or empty to try variances")
    need(not e.arms[0].visible, f"arms.{e.arms[0].name}.visible", True, "false: the image nets omit no pixels")


def _check_pretraining(e: "Experiment", p: Pretrain, need: Callable[[bool, str, Any, str], None]) -> None:
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
    for name, least, most in (("steps", 1, MOST_STEPS), ("batch", 1, 2**31 - 1), ("momentum_epochs", 0, 2**31 - 1)):
        count = getattr(p, name)
        need(least <= count <= most, f"pretrain.{name}", count, f"from {least} to {most}")
    layers = range(max(len(p.epochs), len(p.steps_every)))
    grown = max((p.of("epochs", k) - 1) // (p.of("steps_every", k) or math.inf) for k in layers)
    few = p.steps + grown <= MOST_STEPS
    need(few, "pretrain.steps_every", p.steps_every, f"so large that Gibbs steps end at {MOST_STEPS} or fewer")
    for name in ("momentum_start", "momentum_end"):
        need(0 <= getattr(p, name) < 1, f"pretrain.{name}", getattr(p, name), "at least 0 and below 1")
    need(p.softmax_epochs >= 0, "pretrain.softmax_epochs", p.softmax_epochs, "0 or more")
    need(0 < p.softmax_lr < math.inf, "pretrain.softmax_lr", p.softmax_lr, "above 0")
    need(p.gibbs >= 0, "pretrain.gibbs", p.gibbs, "0 or more")
    j = p.joint
    for name, least in (("epochs", 1), ("sweeps", 1), ("chains", 1), ("steps", 1)):
        need(getattr(j, name) >= least, f"pretrain.joint.{name}", getattr(j, name), f"{least} or more")
    need(j.steps <= MOST_STEPS, "pretrain.joint.steps", j.steps, f"{MOST_STEPS} or fewer")
    need(0 < j.lr < math.inf, "pretrain.joint.lr", j.lr, "above 0")
    need(0 < j.lr_decay <= 1, "pretrain.joint.lr_decay", j.lr_decay, "above 0 and at most 1")
    need(0 <= j.lr_least < math.inf, "pretrain.joint.lr_least", j.lr_least, "0 or more")
    need(0 <= j.decay < math.inf and 0 <= j.cost < math.inf, "pretrain.joint.decay", j.decay, "0 or more, and so cost")
    good = len(j.targets) == 2 and all(0 < target < 1 for target in j.targets)
    need(good, "pretrain.joint.targets", j.targets, "two numbers between 0 and 1")
