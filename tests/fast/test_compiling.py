"""The GPU kernels through Triton's compiler, on machines without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: there is no compiler")


def test_every_kernel_compiles_for_an_h200(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    script = Path(__file__).with_name("compiling.py")
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = "logistic_layer, turn_on, draw, gather, forward_layer, output_layer, backward_layer, gradient_step, search"
    assert done.stdout.endswith(f"compiled: {names}\n")
