"""Phones in recordings of one's own: any folder of .wav files with .phn files beside them.

    RECORDINGS=my_recordings meannet run examples/own_speech.py:own_speech --out runs/mine
    meannet speech decode runs/mine new.wav

`meannet data check recordings my_recordings` says what is wrong with them. A folder in the folder is a speaker, with
all that is in it. A .phn file has a line a phone, in samples: first, the one after the last, one of TIMIT's 61 symbols.
All recordings have one sampling rate, one channel and 16 bits. Speakers take turns in being judged on by nets that have
not heard them; with fewer than five, set data.speech.folds or data.speech.apart=recordings.
"""

import math
import os

from meannet.config import Arm, Data, Dropout, Experiment, Net, Optim, Pretrain, Speech


def own_speech() -> Experiment:
    folds = 4
    return Experiment(
        recipe="own_speech",
        paper="B, on recordings of our own",
        about="Frame and phone errors on one's own recordings, with and without dropout.",
        data=Data(
            name="recordings",
            speech=Speech(folder=os.environ.get("RECORDINGS", "recordings"), frames=11, folds=folds, dev=1),
        ),
        net=Net(hidden=((256, 256),)),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=Optim(epochs=15, lr=3.0, decay=1.0, momentum_end=0.9, momentum_epochs=5, limit=math.inf),
        pretrain=Pretrain(  # B.1, with fewer epochs
            visible="gaussian",
            epochs=(2, 1),
            lr=(0.001, 0.01),
            decay=(0.001,),
            initial_sd=(0.01,),
            data_biases="upper",
            rule="a1",
            momentum_epochs=20,
            sudden=False,
            softmax_epochs=1,
        ),
        arms=(
            Arm(name="backprop"),
            Arm(name="dropout", hidden=True),
            Arm(name="dropout+input", hidden=True, visible=True),
        ),
        seeds=tuple(range(folds)),  # seed s is judged on in turn s
    )


if __name__ == "__main__":
    print(__doc__)
