"""Tests run side by side, so each takes one core."""

import torch

torch.set_num_threads(1)
