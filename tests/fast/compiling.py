"""Run as a program: compile, for an H200 that need not be there, every kernel that engines and pretraining launch.

Kernels are replaced by a stand-in that takes the same arguments and compiles instead of running. Triton's interpreter,
which runs them in the other tests, does not see what the compiler would refuse.
"""

from typing import ClassVar

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from meannet.fast import kernels
from meannet.fast import viterbi as paths
from meannet.fast.cuda import Captured
from meannet.fast.units import logistic, logistic_states
from meannet.nn import dense
from meannet.nn.windows import Windows
from meannet.pretrain.draws import launched, launched_draws
from meannet.speech import phones, viterbi

POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.uint8: "*u8",
}
OPTIONS = ("num_warps", "num_stages", "maxnreg")
H200 = GPUTarget("cuda", 90, 32)
SHARED = 232_448  # bytes that a block of threads can have there


def typed(value):
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


class Compiling:
    """Stands in for a kernel."""

    made: ClassVar[dict[tuple, int]] = {}

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *given, **named):
        asked = {name: named.pop(name, None) for name in OPTIONS}
        options = {name: value for name, value in asked.items() if value is not None}
        values = dict(zip(self.kernel.arg_names, given, strict=False)) | named
        constants = {p.name: values[p.name] for p in self.kernel.params if p.is_constexpr}
        types = {name: "constexpr" if name in constants else typed(value) for name, value in values.items()}
        key = self.kernel.fn.__name__, *types.items(), *constants.items(), *options.items()
        if key not in self.made:
            places = {(self.kernel.arg_names.index(name),): value for name, value in constants.items()}
            source = ASTSource(fn=self.kernel, signature=types, constexprs=places)
            self.made[key] = compile(source, target=H200, options=options).metadata.shared


def main():
    names = [name for name in vars(kernels) if hasattr(getattr(kernels, name), "arg_names") and name[0] != "_"]
    for name in names:
        setattr(kernels, name, Compiling(getattr(kernels, name)))
    for units, precision, nets in (
        ("logistic", "bfloat16", 12),
        ("rectified", "bfloat16", 1),
        ("logistic", "tf32", 12),
        ("rectified", "float32", 1),
    ):
        rates = [torch.full((nets, 1), rate, dtype=torch.float64) for rate in (0.2, 0.5, 0.5)]
        fleet = dense.initial_fleet((784, 1200, 1200, 10), range(nets), rates, units=units)
        inputs, targets = torch.zeros(100, 784), torch.zeros(100, dtype=torch.int64)
        engine = Captured(fleet, inputs, targets, 100, [15.0] * nets, precision)
        engine.epoch(0, [1.0] * nets, 0.5, lambda: False)
    rates = [torch.full((2, 1), rate, dtype=torch.float64) for rate in (0.2, 0.5)]
    fleet = dense.initial_fleet((2520, 64, 185), range(2), rates, units="logistic")
    windows = Windows(torch.zeros(300, 120), torch.arange(200), 21)
    engine = Captured(fleet, windows, torch.zeros(200, dtype=torch.int64), 100, [15.0] * 2)
    engine.epoch(0, [1.0] * 2, 0.5, lambda: False)
    seeds, update = torch.zeros(2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    launched(torch.zeros(2, 100, 500), seeds, update, 4 << 24)
    launched_draws(100, seeds, update, 4 << 24)
    given, weights = torch.zeros(2, 100, 500), torch.zeros(2, 1784, 510)[:, 784:, :500]
    logistic(given, weights.mT, torch.zeros(2, 100, 1000))
    logistic_states(given[:1], weights.mT, torch.zeros(2, 1, 1000), 2.0, (seeds, update, 4 << 24))
    names.append("search")
    paths.search = Compiling(paths.search)
    for count in (len(phones.PHONES), paths.MOST_PHONES, 1):  # all phones; alignment of many and of one
        states = [3] * count
        parts = (torch.zeros(sum(states)), torch.zeros(count), torch.zeros(count, count), torch.zeros(count))
        paths.best_paths(torch.zeros(2, 9, sum(states)), [9, 5], viterbi.one_graph(states, *parts))
    assert {key[0] for key in Compiling.made} == set(names), "not every kernel was launched"
    assert max(Compiling.made.values()) <= SHARED, "a block wants more shared memory than there is"
    print(len(Compiling.made), "compiled:", ", ".join(names))


if __name__ == "__main__":
    main()
