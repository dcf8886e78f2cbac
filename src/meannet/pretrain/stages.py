"""How each stage of a stack is trained (A.2): contrastive divergence, joint training, the softmax layer alone."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from meannet.config import Optim, Pretrain
from meannet.core import schedule
from meannet.core.sgd import step_size
from meannet.nn.own import block
from meannet.pretrain import dbm as boltzmann
from meannet.pretrain import loop, rbm
from meannet.pretrain.dbm import DBM
from meannet.pretrain.divergence import contrastive_divergence_
from meannet.pretrain.draws import Draws, one_hot
from meannet.pretrain.loop import Rates, Updates
from meannet.pretrain.rbm import RBM
from meannet.pretrain.stack import Done, Inputs, Stack, Stage, features, open_stage, taken, top_means
from meannet.train import Plain
from meannet.train import train as backpropagate

LOOKED_AT = 1000  # cases whose reconstruction error is told after each epoch


class Diverged(RuntimeError):
    """A machine's parameters are not finite any more."""

    def __init__(self, stack: Stack, stage: Stage, epoch: int, net: int, setting: str):
        seed = stack.seeds[net].item()
        self.what = f"pretraining diverged: {stage.name}, epoch {epoch}, seed {seed}: weights are not finite"
        self.setting = setting  # to lower, by its path
        super().__init__(f"{self.what}; lower {setting}")


def pretrain(
    stack: Stack,
    inputs: Inputs,
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
            open_stage(stack, stage, inputs)
        for done in _train(stack, stage, inputs, targets, products, stop):
            stack.epoch = done.epoch
            yield done
        if stack.epoch < stage.epochs:
            return
        stack.stage, stack.epoch = stack.stage + 1, 0


def _train(
    stack: Stack,
    stage: Stage,
    inputs: Inputs,
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


def _divergence(stack: Stack, layer: RBM, inputs: Inputs, targets: Tensor | None) -> loop.Update:
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


def _joint(stack: Stack, dbm: DBM, inputs: Inputs, targets: Tensor | None) -> loop.Update:
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
            states=chosen.states,
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
    stack: Stack, stage: Stage, inputs: Inputs, targets: Tensor | None, stop: Callable[[], bool]
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
            raise Diverged(stack, stage, epoch.epoch, fault.net, "pretrain.softmax_lr")
        yield Done(stage, epoch.epoch, "training error", epoch.train_error)


class _Top:
    """Cases as the softmax layer sees them, made as they are asked for."""

    def __init__(self, stack: Stack, inputs: Inputs):
        self.stack, self.inputs = stack, inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, chosen: Tensor) -> Tensor:
        return top_means(self.stack, taken(self.inputs, chosen))


@torch.no_grad()
def _look(stack: Stack, stage: Stage, epoch: int, inputs: Inputs, targets: Tensor | None) -> list[float]:
    """The reconstruction error of the first cases, by seed; an error where a machine has diverged."""
    looked_at = block(inputs, range(min(LOOKED_AT, len(inputs))))
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
        raise Diverged(stack, stage, epoch, finite.tolist().index(False), path)
    return error.tolist()
