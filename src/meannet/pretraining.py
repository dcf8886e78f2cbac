"""Pretraining within a run: a stack is trained, or goes on being trained, in a file of its own, and is kept there."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from meannet import checkpoint, fast
from meannet.checkpoint import Saving, check_settings, check_unchanged, decided_by
from meannet.config import Experiment
from meannet.data import Dataset
from meannet.lots import Lot
from meannet.outcome import net_name
from meannet.pretrain.stack import Done, Stack, new_stack, samples
from meannet.pretrain.stages import pretrain
from meannet.pretrain.unrolled import layers
from meannet.runlog import RunFolder


def prepare(experiment: Experiment, hidden: Sequence[int], dataset: Dataset, where: torch.device) -> Stack:
    """A stack for all seeds of one architecture, with nothing trained yet."""
    assert experiment.pretrain is not None
    sizes = (dataset.train.inputs.shape[1], *hidden)
    return new_stack(experiment.pretrain, sizes, len(dataset.classes), experiment.seeds, where)


def run(
    stack: Stack,
    experiment: Experiment,
    folder: RunFolder,
    dataset: Dataset,
    saving: Saving,
    seconds: Callable[[], float],
    say: Callable[[str], None],
    *,
    path: str = "auto",
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Done]:
    """Train what is left of a stack, saving and recording; at the end samples from the model are saved with it.

    When `stop` says so before that, what was trained is saved, and going on draws them. `seconds` count from when the
    run began.
    """
    hidden = stack.sizes[1:]
    name, file = net_name(experiment, hidden, dataset), folder.pretrained(hidden, len(experiment.net.hidden))
    facts = restore(stack, experiment, folder, hidden, dataset)
    if facts.get("complete"):
        say(f"{name}: pretrained already")
        return
    if file.exists():
        say(f"{name}: pretraining goes on from epoch {stack.epoch} of stage {stack.stage + 1} of {len(stack.stages)}")
    inputs, targets = dataset.train.inputs.to(stack.device), dataset.train.targets.to(stack.device)

    def save(**more: torch.Tensor) -> None:
        facts = {
            "stage": stack.stage,
            "epoch": stack.epoch,
            "complete": bool(more),
            **decided_by(experiment, experiment.pretrain_digest(), dataset),
        }
        checkpoint.save(file, stack.state() | more, facts)
        saving.saved()

    products = fast.products(stack.device, path)
    for done in pretrain(stack, inputs, targets, products=products, stop=stop):
        folder.append(_lines(name, done, stack, seconds()), folder.pretraining)
        if saving.due():
            save()
        yield done
    if saving.since:
        save()
    drawn = samples(stack, inputs, stop=stop) if stack.finished else None
    if drawn is not None:
        save(samples=drawn.cpu())


def restore(
    stack: Stack,
    experiment: Experiment,
    folder: RunFolder,
    hidden: Sequence[int],
    dataset: Dataset,
    *,
    whole: bool = False,
) -> dict[str, Any]:
    """Bring the stack to where the run last saved it, if it did; returns what was saved beside it.

    With `whole` it must be there, pretrained to the end.
    """
    file = folder.pretrained(hidden, len(experiment.net.hidden))
    if not whole and not file.exists():
        return {}
    tensors, facts = checkpoint.read_state(file)
    if whole and not facts.get("complete"):
        raise checkpoint.Damaged(file, "is not pretrained to the end")
    check_unchanged(facts, experiment, experiment.pretrain_digest(), file, dataset)
    stack.restore(tensors, facts["stage"], facts["epoch"])
    return facts


def trained_machines(
    experiment: Experiment, folder: RunFolder, hidden: Sequence[int], visible: int, classes: int
) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Weights and biases of both layers of each seed's deep Boltzmann machine, for which no data is needed."""
    assert experiment.pretrain is not None
    file = folder.pretrained(hidden, len(experiment.net.hidden))
    tensors, facts = checkpoint.read_state(file)
    check_settings(facts, experiment, experiment.pretrain_digest(), file)
    stack = new_stack(experiment.pretrain, (visible, *hidden), classes, experiment.seeds)
    stack.restore(tensors, facts["stage"], facts["epoch"])
    (first, first_biases), (second, second_biases) = layers(stack)[:2]
    both = (
        (first[..., :visible], first_biases),
        (second, second_biases),
    )  # not what the unrolled net has as extra inputs
    return [[(weights[net], biases[net]) for weights, biases in both] for net in range(len(experiment.seeds))]


def recover(every: Sequence[Lot], folder: RunFolder, dataset: Dataset, say: Callable[[str], None]) -> float:
    """Drop records later than the saved stacks; returns the seconds trained up to there."""
    saved = {}
    for lot in every:
        file = lot.folder.pretrained(lot.hidden, len(lot.experiment.net.hidden))
        if lot.experiment.pretrain and checkpoint.exists(file):
            facts = checkpoint.recover(file, say)
            saved |= dict.fromkeys(lot.nets(dataset), (facts["stage"], facts["epoch"]))
    return folder.forget_pretraining_after(saved)


def summary(folder: RunFolder) -> list[dict[str, Any]]:
    """What result.json says of pretraining: of each net and stage the epochs, and its figure at the end by seed."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for line in folder.records(folder.pretraining):
        entry = found.setdefault(
            (line["net"], line["stage"]),
            {"net": line["net"], "stage": line["name"], "figure": line["figure"], "values": {}},
        )
        entry["epochs"] = line["epoch"]
        entry["values"][line["seed"]] = line["value"]  # the last holds
    return [one | {"seeds": list(one["values"]), "values": list(one["values"].values())} for one in found.values()]


def _lines(name: str, done: Done, stack: Stack, seconds: float) -> list[dict[str, Any]]:
    return [
        {
            "net": name,
            "stage": done.stage.number,
            "name": done.stage.name,
            "epoch": done.epoch,
            "seed": seed,
            "figure": done.figure,
            "value": round(value, 6),
            "seconds": round(seconds, 2),
        }
        for seed, value in zip(stack.seeds.tolist(), done.values, strict=True)
    ]
