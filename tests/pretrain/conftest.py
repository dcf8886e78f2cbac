"""Without a GPU the kernel that draws states runs in Triton's interpreter, chosen before Triton is first imported."""

import os

import torch

torch.set_num_threads(1)  # tests run side by side
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
