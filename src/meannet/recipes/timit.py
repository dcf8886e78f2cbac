"""Speech (body, B): frames of TIMIT classified by pretrained nets, and phones recognised."""

import math
from dataclasses import replace

from meannet.config import PHONES, Arm, Claim, Data, Dropout, Experiment, Net, Optim, Pretrain, Source, Speech

BACKPROP = Arm(name="backprop", lr=0.1)
DROPOUT = Arm(name="dropout", hidden=True)
DROPOUT_INPUT = Arm(name="dropout+input", hidden=True, visible=True)
ARMS = (BACKPROP, DROPOUT, DROPOUT_INPUT)


def sample() -> Experiment:
    return Experiment(
        recipe="timit.sample",
        paper="B, on 16 speakers",
        about="x",
        data=Data(name="timit-sample", speech=Speech(folds=8, frames=15)),
        net=Net(hidden=((512, 512, 512),)),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=Optim(epochs=10, lr=1.0, decay=1.0, momentum_end=0.9, momentum_epochs=10, limit=math.inf),
        pretrain=Pretrain(
            visible="gaussian",
            epochs=(3, 2),
            lr=(0.001, 0.01),
            decay=(0.001,),
            initial_sd=(0.01,),
            data_biases="upper",
            rule="a1",
            momentum_epochs=20,
            sudden=False,
            softmax_epochs=1,
        ),
        arms=ARMS,
        seeds=(0, 1, 2, 3, 4, 5, 6, 7),
    )
