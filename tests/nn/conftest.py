"""Tests run side by side, so each takes one core: threads that wait for each other cost tenfold on small nets."""

import torch

torch.set_num_threads(1)
