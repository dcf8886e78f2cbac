"""States from a trained net (B): phones keep their hand-labelled frames, and a net divides these among their states.

The net is one of a finished run on the same recordings. In each turn it is one that learned from the same speakers, so
that nothing of those who are judged on is used. Test cases keep equal parts: errors are counted by class alone.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from meannet import data, recognition
from meannet.config import Experiment
from meannet.data import Cases, Dataset
from meannet.fleets import trained_fleet
from meannet.lots import Lot, lots, turns_of
from meannet.runlog import RunFolder
from meannet.speech.decoding import align_within, together
from meannet.speech.hmm import estimate


def realigned(experiment: Experiment, dataset: Dataset, where: torch.device, say: Callable[[str], None]) -> Dataset:
    """The data set with states of training frames from the run that `data.speech.aligned_by` names."""
    assert experiment.data.speech is not None
    folder = RunFolder.open(Path(experiment.data.speech.aligned_by).expanduser())
    theirs, result = folder.experiment(), folder.found()
    _check(experiment, theirs, folder)
    if result["data"].get("read", dataset.facts["read"]) != dataset.facts["read"]:  # earlier versions left none
        raise ValueError(
            f"data.speech.aligned_by: the {dataset.name} data changed since {folder.path} was run, so its nets may "
            "have heard those who are judged on now; run it again"
        )
    arm = theirs.arms[-1].name
    good = {seed for row in result["arms"] if row["name"] == arm for seed in row["seeds"]}
    of = {lot.folder.fold: lot for lot in lots(theirs, folder) if lot.hidden == theirs.net.hidden[0]}
    folds = list(dataset.folds or (dataset,))
    for turn, _ in turns_of(experiment):
        lot, fold = of.get(turn), folds[turn or 0]
        seed = next((seed for seed in lot.experiment.seeds if seed in good), None) if lot else None
        if lot is None or seed is None:
            which = "" if turn is None else f" for turn {turn + 1}; run it with the same seeds"
            raise ValueError(f"data.speech.aligned_by: {folder.path} has no net of arm {arm}{which}")
        folds[turn or 0] = _fold(lot, seed, fold, where)
        changed = (folds[turn or 0].train.targets != fold.train.targets).double().mean().item()
        said = "" if turn is None else f"turn {turn + 1}, "
        say(f"{said}arm {arm}, seed {seed} of {folder.path}: {100 * changed:.1f} % of training frames change state")
    if not dataset.folds:
        return folds[0]
    return replace(folds[0], folds=tuple(folds), digest=data.digest_of(folds), facts=dataset.facts)


def _check(experiment: Experiment, theirs: Experiment, folder: RunFolder) -> None:
    ours, other = experiment.data, theirs.data
    assert ours.speech is not None
    plain = {"aligned_by": "", "decode": True}
    if other.speech is None or replace(other.speech, **plain) != replace(ours.speech, **plain):
        raise ValueError(
            f"data.speech.aligned_by: {folder.path} has other settings of data.speech; they must be the same"
        )
    if (other.name, other.held_out) != (ours.name, ours.held_out):
        raise ValueError(f"data.speech.aligned_by: {folder.path} learned from other cases, {other.name}")


def _fold(lot: Lot, seed: int, fold: Dataset, where: torch.device) -> Dataset:
    spoken = fold.spoken
    assert spoken is not None
    last = lot.experiment.pairs().index((lot.experiment.arms[-1], seed))
    net = trained_fleet(lot.experiment, lot.folder, lot.hidden).pick([last], where)
    counts = [one.bounds[-1].stop for one in spoken.train]
    model = estimate(fold.train.targets.split(counts), [one.phones for one in spoken.train]).to(where)
    heard = recognition.log_probabilities(net, fold.train.inputs.to(where)).split(counts)
    states: dict[int, torch.Tensor] = {}
    for some in together(counts):
        posteriors = pad_sequence([heard[k] for k in some], batch_first=True)
        states |= zip(some, align_within(model, posteriors, [spoken.train[k].bounds for k in some]), strict=True)
    train = Cases(fold.train.inputs, torch.cat([states[k] for k in range(len(counts))]))
    digest = hashlib.sha256(fold.digest.encode())  # of the net, since other processors may put a frame elsewhere
    for part in (*net.weights, *net.biases):
        digest.update(part.cpu().contiguous().numpy().data)
    return replace(fold, train=train, digest=digest.hexdigest())
