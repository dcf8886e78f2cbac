"""A stack of layers pretrained one after another (A.2): a deep belief net, or a deep Boltzmann machine.

The stages of a deep belief net are its layers, then the new softmax layer alone; a deep Boltzmann machine has the joint
training of its two layers in between. A stage's inputs are made from the cases as they are needed, through the layers
below, so that nothing but parameters is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from meannet.config import Pretrain
from meannet.nn.dense import Fleet, initial_fleet
from meannet.nn.own import block
from meannet.nn.windows import Windows
from meannet.pretrain import dbm as boltzmann
from meannet.pretrain import rbm
from meannet.pretrain.dbm import DBM
from meannet.pretrain.draws import Draws
from meannet.pretrain.rbm import RBM

Inputs = Tensor | Windows  # (cases, visible units)
CHUNK_FLOATS = 1 << 25
SHOWN = 100  # samples drawn from the model for the report
MOST_LAYERS = 120  # with other stages fewer than 128, where the stages of draws begin that train nothing


@dataclass(frozen=True)
class Stage:
    """One training, counted from 0."""

    number: int
    name: str  # such as "layer 1 of 3, 784-500"
    kind: str  # layer, joint or softmax
    epochs: int


@dataclass(frozen=True)
class Done:
    """What one epoch of a stage came to."""

    stage: Stage
    epoch: int  # epochs done so far
    figure: str  # what the values are
    values: list[float]  # one a seed


@dataclass
class Stack:
    """What has been pretrained so far, many seeds at once, and how far it is."""

    settings: Pretrain
    sizes: tuple[int, ...]  # visible units, then those of each hidden layer
    classes: int
    seeds: Tensor  # (nets,) int64
    layers: list[RBM] = field(default_factory=list)
    dbm: DBM | None = None
    softmax: Fleet | None = None
    stage: int = 0  # the stage that is being trained, and how many of its epochs are done
    epoch: int = 0

    @property
    def device(self) -> torch.device:
        return self.seeds.device

    @property
    def stages(self) -> list[Stage]:
        chosen, depth = self.settings, len(self.sizes) - 1
        found = [
            Stage(k, f"layer {k + 1} of {depth}, {below}-{above}", "layer", chosen.of("epochs", k))
            for k, (below, above) in enumerate(zip(self.sizes, self.sizes[1:], strict=False))
        ]
        if chosen.model == "dbm":
            found.append(Stage(len(found), "both layers", "joint", chosen.joint.epochs))
        if chosen.softmax_epochs:
            found.append(
                Stage(len(found), f"softmax layer, {self.sizes[-1]}-{self.classes}", "softmax", chosen.softmax_epochs)
            )
        return found

    @property
    def finished(self) -> bool:
        return self.stage == len(self.stages)

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the rest of training and finetuning need, by name."""
        parts: dict[str, Any] = {f"layers.{k}": layer for k, layer in enumerate(self.layers)}
        parts |= {"dbm": self.dbm} if self.dbm else {}
        parts |= {"softmax": self.softmax} if self.softmax else {}
        return {f"{part}.{name}": tensor for part, held in parts.items() for name, tensor in held.state().items()}

    def restore(self, tensors: Mapping[str, Tensor], stage: int, epoch: int) -> None:
        """Become what a stack with this state was."""
        self.stage, self.epoch = stage, epoch
        stages = self.stages
        for one in stages[: stage + 1]:
            if not (one.number == stage and epoch == 0):
                open_stage(self, one)
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])


def new_stack(
    settings: Pretrain, sizes: Sequence[int], classes: int, seeds: Sequence[int], device: torch.device | str = "cpu"
) -> Stack:
    """`sizes` are the visible units and those of each hidden layer."""
    if len(sizes) - 1 > MOST_LAYERS:
        raise ValueError(f"a stack has {MOST_LAYERS} layers at most, not {len(sizes) - 1}")
    return Stack(settings, tuple(sizes), classes, torch.tensor(list(seeds), device=device))


def features(stack: Stack, inputs: Tensor, layers: int) -> Tensor:
    """Means of hidden layer number `layers` of the stack as trained one by one, (nets, cases, units); 0: the inputs."""
    for layer in stack.layers[:layers]:
        inputs = rbm.hidden_means(layer, inputs)
    return inputs


@torch.no_grad()
def samples(
    stack: Stack,
    inputs: Inputs,
    count: int = SHOWN,
    steps: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Tensor | None:
    """Visible means at the end of chains that begin at the first cases, (nets, count, visible); None when stopped.

    They are means given drawn states of the first hidden layer, so that they average to what the model expects. In a
    deep belief net the chains are those of its top layer, and states that end them are drawn down layer by layer.
    """
    steps = stack.settings.gibbs if steps is None else steps
    start = block(inputs, range(min(count, len(inputs)))).expand(len(stack.seeds), -1, -1)

    def draws(step: int) -> Draws:
        return Draws(stack.seeds, 129 + len(stack.stages), step)

    if stack.dbm is not None:
        made = stack.dbm
        first, _ = boltzmann.mean_field(made, start)
        inside = torch.cat((first, first.new_zeros(*first.shape[:2], made.folded.labels)), -1)
        for step in range(steps):
            if stop():
                return None
            own = draws(step)
            inside = rbm.sample_visible(made.folded, rbm.sample_hidden(made.folded, inside, own), own)
        return rbm.hidden_means(made.folded, inside)[..., : made.inputs]
    *below, top = stack.layers
    state = features(stack, start, len(below))
    for step in range(steps):
        if stop():
            return None
        state = rbm.gibbs(top, state, draws(step), 1)
    last = draws(steps)
    state = rbm.sample_hidden(top, state, last)
    for layer in stack.layers[:0:-1]:
        state = rbm.sample_visible(layer, state, last)
    return rbm.visible_means(stack.layers[0], state)


def open_stage(stack: Stack, stage: Stage, inputs: Inputs | None = None) -> None:
    """What a stage trains, as it is before its first epoch; biases from the data where there are inputs."""
    chosen, seeds, depth = stack.settings, stack.seeds.tolist(), len(stack.sizes) - 1
    if stage.kind == "layer":
        k = stage.number
        boltzmann_machine, top = chosen.model == "dbm", stage.number == depth - 1
        labels = stack.classes if boltzmann_machine and top and chosen.labels else 0
        layer = rbm.initial_rbm(
            stack.sizes[k] + labels,
            stack.sizes[k + 1],
            seeds,
            layer=k,
            kind=chosen.visible if k == 0 else "bernoulli",
            labels=labels,
            sd=chosen.of("initial_sd", k),
            up=2.0 if boltzmann_machine and k == 0 else 1.0,
            down=2.0 if boltzmann_machine and k > 0 else 1.0,
            device=stack.device,
        )
        if inputs is not None and (chosen.data_biases == "all" or (chosen.data_biases == "upper" and k > 0)):
            classes = layer.weights.new_full((len(seeds), labels), 1 / stack.classes)
            rbm.data_biases_(layer, torch.cat((_mean_features(stack, inputs, k), classes), 1), len(inputs))
        if chosen.persistent:  # chains begin as the visible biases alone have it
            nothing = layer.weights.new_zeros(len(seeds), chosen.batch, stack.sizes[k + 1])
            layer.chains = rbm.sample_visible(layer, nothing, Draws(stack.seeds, 128 + k, 0))
        stack.layers.append(layer)
    elif stage.kind == "joint":
        first, second = stack.layers
        targets = (chosen.joint.targets[0], chosen.joint.targets[1])
        stack.dbm = boltzmann.composed(first, second, chosen.joint.chains, stage.number, targets)
    else:
        stack.softmax = initial_fleet(
            (stack.sizes[-1], stack.classes),
            seeds,
            [torch.zeros(len(seeds), 1)],
            units="logistic",
            first_layer=depth,
            device=stack.device,
        )


def top_means(stack: Stack, inputs: Tensor) -> Tensor:
    """Activities of the unrolled net's last hidden layer with all units, (nets, cases, units)."""
    if stack.dbm is None:
        return features(stack, inputs, len(stack.layers))
    # The unrolled net's two layers are one more sweep after those that made its extra inputs.
    return boltzmann.mean_field(stack.dbm, inputs, sweeps=stack.settings.joint.sweeps + 1)[1]


@torch.no_grad()
def _mean_features(stack: Stack, inputs: Inputs, layers: int) -> Tensor:
    """Mean activity of each unit of a layer over all cases, (nets, units)."""
    total: Any = 0.0
    size = chunk(stack)
    for start in range(0, len(inputs), size):
        part = block(inputs, range(start, min(start + size, len(inputs))))
        total = total + features(stack, part, layers).sum(1).expand(len(stack.seeds), -1).double()
    return total / len(inputs)


def taken(inputs: Inputs, cases: Tensor) -> Tensor:
    """The inputs of cases (nets, cases), as (nets, cases, inputs)."""
    if isinstance(inputs, Windows):
        return inputs[cases]
    return inputs.index_select(0, cases.reshape(-1)).view(*cases.shape, -1)


def chunk(stack: Stack) -> int:
    """How many cases to take through all nets at a time."""
    return max(1, CHUNK_FLOATS // (len(stack.seeds) * sum(stack.sizes)))
