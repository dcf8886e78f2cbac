"""What torchrun starts in test_ranks: some updates of a toy net; each rank leaves its weights and what it omitted."""

import math
import sys
from pathlib import Path

import photographs
import torch
from safetensors.torch import save_file

from meannet import patches, ranks
from meannet.data.stream import Stream

BATCH, UPDATES = 8, 7


def main(out: Path) -> None:
    torch.set_num_threads(1)
    data, experiment = patches.open_prepared(held_out=False), photographs.toy()
    with ranks.joined(torch.device("cpu")) as found:
        fleet = patches.make_fleet(experiment, data, torch.device("cpu"))
        engine = patches.Plain(fleet, BATCH, 0.5, found)
        engine.begin(0, 0.05, 0.9)
        seen: list[torch.Tensor] = []
        omitting = fleet.nets[0].dropouts()[0]
        omitting.register_forward_pre_hook(lambda module, inputs: seen.append(module.mask(inputs[0]).clone()))
        with Stream(data.folder, "train", BATCH // found.world, 0) as stream:
            plan = patches.plan(0, data.cases, BATCH, math.ceil(UPDATES / 5), found)
            for update, (pixels, targets) in zip(range(UPDATES), patches.batches(stream, plan), strict=False):
                engine.take(pixels, targets, min(BATCH, data.cases - BATCH * (update % 5)))
                engine.update_()
        tally = engine.tally()
        kept = {"loss": tally.loss, "errors": tally.errors, "masks": torch.stack(seen)}
        state = {name: tensor.contiguous() for name, tensor in fleet.state().items()}
        save_file(state | kept, out / f"{found.world}-{found.rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    ranks.leave(0)
