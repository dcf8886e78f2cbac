"""A stack of layers pretrained one after another (A.2): a deep belief net, or a deep Boltzmann machine.

The stages of a deep belief net are its layers, then the new softmax layer alone; a deep Boltzmann machine has the joint
training of its two layers in between. A stage's inputs are made from the cases as they are needed, through the layers
below, so that nothing but parameters is kept.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from meannet.config import Optim, Pretrain
from meannet.core import schedule
from meannet.core.sgd import step_size
from meannet.nn.dense import Fleet, initial_fleet
from meannet.pretrain import dbm as boltzmann
from meannet.pretrain import loop, rbm
from meannet.pretrain.dbm import DBM
from meannet.pretrain.divergence import contrastive_divergence_
from meannet.pretrain.draws import Draws, one_hot
from meannet.pretrain.loop import Rates, Updates
from meannet.pretrain.rbm import RBM
from meannet.train import Plain
from meannet.train import train as backpropagate

LOOKED_AT = 1000  # cases whose reconstruction error is told after each epoch
CHUNK_FLOATS = 1 << 25
SHOWN = 100  # samples drawn from the model for the report


class Diverged(RuntimeError):
    """A machine's parameters are not finite any more."""


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

    def restore(self, tensors: dict[str, Tensor], stage: int, epoch: int) -> None:
        """Become what a stack with this state was."""
        self.stage, self.epoch = stage, epoch
        stages = self.stages
        for one in stages[: stage + 1]:
            if not (one.number == stage and epoch == 0):
                _open(self, one)
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])


def new_stack(
    settings: Pretrain, sizes: Sequence[int], classes: int, seeds: Sequence[int], device: torch.device | str = "cpu"
) -> Stack:
    """`sizes` are the visible units and those of each hidden layer."""
    return Stack(settings, tuple(sizes), classes, torch.tensor(list(seeds), device=device))


def pretrain(
    stack: Stack,
    inputs: Tensor,
    targets: Tensor | None,
    *,
    products: torch.dtype = torch.float32,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Done]:
    """Train what is left of the stack on cases (cases, visible), in place, yielding after every epoch of every stage.

    Targets, (cases,) int64, are for labels and the softmax layer. When `stop` says so the stack is as it was at the end
    of the last whole epoch, and the generator ends; `stack.finished` tells.
    """
    while not stack.finished:
        stage = stack.stages[stack.stage]
        if stack.epoch == 0:
            _open(stack, stage, inputs)
        for done in _train(stack, stage, inputs, targets, products, stop):
            stack.epoch = done.epoch
            yield done
        if stack.epoch < stage.epochs:
            return
        stack.stage, stack.epoch = stack.stage + 1, 0


def features(stack: Stack, inputs: Tensor, layers: int) -> Tensor:
    """Means of hidden layer number `layers` of the stack as trained one by one, (nets, cases, units); 0: the inputs."""
    for layer in stack.layers[:layers]:
        inputs = rbm.hidden_means(layer, inputs)
    return inputs


@torch.no_grad()
def samples(stack: Stack, inputs: Tensor, count: int = SHOWN, steps: int | None = None) -> Tensor:
    """Visible means at the end of chains that begin at the first cases, (nets, count, visible).

    In a deep belief net the chains are those of its top layer, and what they end in is passed down layer by layer.
    """
    steps = stack.settings.gibbs if steps is None else steps
    draws = Draws(stack.seeds, 129 + len(stack.stages), 0)
    start = inputs[None, :count].expand(len(stack.seeds), -1, -1)
    if stack.dbm is not None:
        made = stack.dbm
        first, _ = boltzmann.mean_field(made, start)
        inside = torch.cat((first, first.new_zeros(*first.shape[:2], made.folded.labels)), -1)
        for step in range(steps):
            draws = Draws(stack.seeds, draws.stage, step)
            inside = rbm.sample_visible(made.folded, rbm.sample_hidden(made.folded, inside, draws), draws)
        return rbm.hidden_means(made.folded, inside)[..., : made.inputs]
    *below, top = stack.layers
    state = features(stack, start, len(below))
    for step in range(steps):
        state = rbm.gibbs(top, state, Draws(stack.seeds, draws.stage, step), 1)
    hidden = rbm.hidden_means(top, state)
    for layer in (top, *below[::-1]):
        hidden = rbm.visible_means(layer, hidden)
    return hidden


def _open(stack: Stack, stage: Stage, inputs: Tensor | None = None) -> None:
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


def _train(
    stack: Stack,
    stage: Stage,
    inputs: Tensor,
    targets: Tensor | None,
    products: torch.dtype,
    stop: Callable[[], bool],
) -> Iterator[Done]:
    if stage.kind == "softmax":
        yield from _train_softmax(stack, stage, inputs, targets, stop)
        return
    trained = stack.dbm if stage.kind == "joint" else stack.layers[-1]
    assert trained is not None
    machine = trained.folded if isinstance(trained, DBM) else trained
    rbm.rounded_(machine, products)
    changed = [*trained.state().values(), *([machine.rounded] if machine.rounded is not None else [])]
    if isinstance(trained, DBM):
        update, rates = _joint(stack, trained, inputs, targets), _joint_rates
    else:
        update, rates = _divergence(stack, trained, inputs, targets), _layer_rates
    batch = stack.settings.batch
    updates = Updates(update, stack.seeds, len(inputs), batch, stage.number, changed, machine.weights.dtype)
    epochs = loop.train(
        updates, stage.epochs, lambda epoch: rates(stack.settings, stage, epoch), start=stack.epoch, stop=stop
    )
    for epoch in epochs:
        yield Done(stage, epoch, "reconstruction error", _look(stack, stage, epoch, inputs, targets))
    rbm.rounded_(machine, machine.weights.dtype)


def _divergence(stack: Stack, layer: RBM, inputs: Tensor, targets: Tensor | None) -> loop.Update:
    chosen, number = stack.settings, len(stack.layers) - 1

    def update(cases: Tensor, draws: Draws, step: Tensor, momentum: Tensor, steps: int) -> None:
        visible = features(stack, _states(stack, taken(inputs, cases), draws, 0), number)
        if number:
            visible = _states(stack, visible, draws, number)
        if layer.labels:
            assert targets is not None
            visible = torch.cat((visible, one_hot(targets[cases], layer.labels, visible.dtype)), -1)
        contrastive_divergence_(
            layer,
            visible,
            draws,
            step=step,
            momentum=momentum,
            decay=chosen.of("decay", number),
            steps=steps,
            states=chosen.states,
            chains=layer.chains,
        )

    return update


def _joint(stack: Stack, dbm: DBM, inputs: Tensor, targets: Tensor | None) -> loop.Update:
    chosen = stack.settings.joint

    def update(cases: Tensor, draws: Draws, step: Tensor, momentum: Tensor, steps: int) -> None:
        visible = _states(stack, taken(inputs, cases), draws, 0)
        labels = None
        if dbm.folded.labels:
            assert targets is not None
            labels = one_hot(targets[cases], dbm.folded.labels, visible.dtype)
        boltzmann.joint_update_(
            dbm,
            visible,
            labels,
            draws,
            step=step,
            momentum=momentum,
            decay=chosen.decay,
            sweeps=chosen.sweeps,
            steps=steps,
            targets=(chosen.targets[0], chosen.targets[1]),
            cost=chosen.cost,
        )

    return update


def _states(stack: Stack, inputs: Tensor, draws: Draws, layer: int) -> Tensor:
    """The inputs of a layer, or binary states drawn from them."""
    sampled = stack.settings.sample_inputs and not (layer == 0 and stack.settings.visible == "gaussian")
    return draws.on(inputs) if sampled else inputs


def _layer_rates(chosen: Pretrain, stage: Stage, epoch: int) -> Rates:
    momentum = _momentum(chosen, epoch)
    every = chosen.of("steps_every", stage.number)
    more = epoch // every if every else 0
    lr = chosen.of("lr", stage.number) / (1 + more)
    return Rates(step_size(chosen.rule, lr, momentum), momentum, chosen.steps + more)


def _joint_rates(chosen: Pretrain, stage: Stage, epoch: int) -> Rates:
    momentum, joint = _momentum(chosen, epoch), chosen.joint
    lr = max(joint.lr_least, schedule.learning_rate(epoch, start=joint.lr, decay=joint.lr_decay))
    return Rates(step_size(chosen.rule, lr, momentum), momentum, joint.steps)


def _momentum(chosen: Pretrain, epoch: int) -> float:
    return schedule.momentum(
        epoch,
        start=chosen.momentum_start,
        end=chosen.momentum_end,
        ramp=chosen.momentum_epochs,
        sudden=chosen.sudden,
    )


def _train_softmax(
    stack: Stack, stage: Stage, inputs: Tensor, targets: Tensor | None, stop: Callable[[], bool]
) -> Iterator[Done]:
    """The new softmax layer alone, by backpropagation without dropout, on top of the pretrained layers."""
    assert stack.softmax is not None
    if targets is None:
        raise ValueError("the softmax layer needs targets; set softmax_epochs to 0 to pretrain without")
    chosen = stack.settings
    optim = Optim(
        epochs=stage.epochs,
        batch=chosen.batch,
        lr=chosen.softmax_lr,
        decay=1.0,
        momentum_end=0.9,
        momentum_epochs=min(5, stage.epochs),
        limit=math.inf,
    )
    nets = len(stack.seeds)
    engine = Plain(stack.softmax, _Top(stack, inputs), targets, chosen.batch, [math.inf] * nets)
    lr = [chosen.softmax_lr] * nets
    for epoch in backpropagate(stack.softmax, engine, len(inputs), optim, lr, start=stack.epoch, stop=stop):
        for fault in epoch.faults:
            raise Diverged(_diverged(stack, stage, epoch.epoch, fault.net, "pretrain.softmax_lr"))
        yield Done(stage, epoch.epoch, "training error", epoch.train_error)


class _Top:
    """Cases as the softmax layer sees them, made as they are asked for."""

    def __init__(self, stack: Stack, inputs: Tensor):
        self.stack, self.inputs = stack, inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, chosen: Tensor) -> Tensor:
        return top_means(self.stack, taken(self.inputs, chosen))


def top_means(stack: Stack, inputs: Tensor) -> Tensor:
    """Activities of the unrolled net's last hidden layer with all units, (nets, cases, units)."""
    if stack.dbm is None:
        return features(stack, inputs, len(stack.layers))
    # The unrolled net's two layers are one more sweep after those that made its extra inputs.
    return boltzmann.mean_field(stack.dbm, inputs, sweeps=stack.settings.joint.sweeps + 1)[1]


@torch.no_grad()
def _look(stack: Stack, stage: Stage, epoch: int, inputs: Tensor, targets: Tensor | None) -> list[float]:
    """The reconstruction error of the first cases, by seed; an error where a machine has diverged."""
    looked_at = inputs[None, :LOOKED_AT]
    if stage.kind == "joint":
        assert stack.dbm is not None
        error, machine = boltzmann.reconstruction_error(stack.dbm, looked_at), stack.dbm.folded
    else:
        machine = stack.layers[-1]
        visible = features(stack, looked_at, stage.number)
        if machine.labels:
            assert targets is not None
            labels = one_hot(targets[:LOOKED_AT], machine.labels, visible.dtype)
            visible = torch.cat((visible, labels.expand(len(visible), -1, -1)), -1)
        error = rbm.reconstruction_error(machine, visible)
    finite = error.isfinite() & machine.weights.isfinite().all(2).all(1)
    if not finite.all():
        path = "pretrain.joint.lr" if stage.kind == "joint" else "pretrain.lr"
        raise Diverged(_diverged(stack, stage, epoch, finite.tolist().index(False), path))
    return error.tolist()


def _diverged(stack: Stack, stage: Stage, epoch: int, net: int, path: str) -> str:
    seed = stack.seeds[net].item()
    return f"pretraining diverged: {stage.name}, epoch {epoch}, seed {seed}: weights are not finite; lower {path}"


@torch.no_grad()
def _mean_features(stack: Stack, inputs: Tensor, layers: int) -> Tensor:
    """Mean activity of each unit of a layer over all cases, (nets, units)."""
    total: Any = 0.0
    for part in inputs.split(chunk(stack)):
        total = total + features(stack, part[None], layers).sum(1).expand(len(stack.seeds), -1).double()
    return total / len(inputs)


def taken(inputs: Tensor, cases: Tensor) -> Tensor:
    """The inputs of cases (nets, cases), as (nets, cases, inputs)."""
    return inputs.index_select(0, cases.reshape(-1)).view(*cases.shape, -1)


def chunk(stack: Stack) -> int:
    """How many cases to take through all nets at a time."""
    return max(1, CHUNK_FLOATS // (len(stack.seeds) * sum(stack.sizes)))
