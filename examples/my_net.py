"""An experiment of one's own: what do dropout and the bound on incoming weights do for a small net on few digits?

    meannet run examples/my_net.py:my_net

Change what my_net returns; `meannet show examples/my_net.py:my_net` lists every setting.
"""

import math

from meannet.config import Arm, Data, Dropout, Experiment, Net, Optim


def my_net() -> Experiment:
    return Experiment(
        recipe="my_net",
        paper="body, on a net of our own",
        about="Test errors on 1,000 handwritten digits of a net trained on 300, with and without the norm bound.",
        data=Data(name="digits"),
        net=Net(hidden=((200, 200),), units="rectified", initial_sd=0.1),
        dropout=Dropout(hidden=0.5, visible=0.2),  # probabilities of omission
        optim=Optim(epochs=60, batch=50, lr=1.0, decay=0.97, momentum_end=0.9, momentum_epochs=20),
        arms=(
            # The first arm is the one that the others are compared with, seed by seed.
            Arm(name="backprop", limit=math.inf),
            Arm(name="dropout, no bound", hidden=True, limit=math.inf),
            Arm(name="dropout, l 3", hidden=True, limit=3.0),  # a squared length
        ),
        seeds=(0, 1, 2, 3, 4),
        record_every=5,
    )
