"""Which nets of an experiment train side by side: those of an architecture and, where cases take turns, of a turn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from meannet.config import Experiment
from meannet.data import Dataset
from meannet.outcome import net_name
from meannet.runlog import RunFolder


@dataclass(frozen=True)
class Lot:
    """One fleet of a run."""

    experiment: Experiment  # with the seeds of this lot
    folder: RunFolder  # that knows where this lot's state is
    hidden: tuple[int, ...]

    def cases(self, dataset: Dataset) -> Dataset:
        """Those that this lot learns from and is judged on."""
        return dataset if self.folder.fold is None else dataset.folds[self.folder.fold]

    def nets(self, dataset: Dataset) -> Iterator[tuple[str, int]]:
        """Name and seed, as in the record."""
        return ((net_name(self.experiment, self.hidden, dataset), seed) for seed in self.experiment.seeds)


def lots(experiment: Experiment, folder: RunFolder) -> list[Lot]:
    """All lots of a run, in the order in which they are trained."""
    turns = turns_of(experiment)
    return [
        Lot(experiment if fold is None else replace(experiment, seeds=seeds), folder.turn(fold), hidden)
        for hidden in experiment.net.hidden
        for fold, seeds in turns
    ]


def turns_of(experiment: Experiment) -> Sequence[tuple[int | None, tuple[int, ...]]]:
    """The turns that have seeds, with these; one that is None where cases take no turns."""
    folds = experiment.data.speech.folds if experiment.data.speech else 0
    if not folds:
        return [(None, experiment.seeds)]
    seeds = [tuple(seed for seed in experiment.seeds if seed % folds == fold) for fold in range(folds)]
    return [(fold, some) for fold, some in enumerate(seeds) if some]
