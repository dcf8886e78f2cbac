"""A mean network as an ONNX model of few, old and plain operators, which every runtime has."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from meannet import __version__, plain

OPSET, IR_VERSION = 17, 8  # of the same release, in 2022
LARGEST_FILE = 2**31 - 2**20  # bytes; protobuf takes no 2 GiB


def model(network: nn.Module, facts: Mapping[str, Any]) -> bytes:
    """`inputs`, float32 (cases, inputs), to what facts["answers"] says.

    single: `label` and `probabilities`; several: `label_0`, `probabilities_0`, `label_1`, ...; multilabel: `labels` of
    0 and 1 and `probabilities`; number and numbers: `prediction`, (cases,) or (cases, targets). Labels are the user's.
    """
    graph = _Graph(facts["sizes"][-1])
    networks = plain.networks(network)
    scaled = graph.part(networks[0][0], "inputs")
    outputs = [graph.parts(list(one)[1:], scaled) for one in networks]
    answers(graph, facts, outputs[0] if len(outputs) == 1 else graph.add("Mean", *outputs))
    if graph.bytes > LARGEST_FILE:
        raise ValueError(f"the net's {graph.bytes / 2**30:.1f} GiB do not fit into an ONNX file; choose one --seed")
    inputs = helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["cases", facts["sizes"][0]])
    made = helper.make_model(
        helper.make_graph(graph.nodes, "mean_network", [inputs], graph.outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="meannet",
        producer_version=__version__,
        doc_string=f"The mean network of {facts['of']}, from raw inputs.",
    )
    helper.set_model_props(made, {name: json.dumps(value) for name, value in facts.items()})
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString(deterministic=True)


def answers(graph: "_Graph", facts: Mapping[str, Any], outputs: str) -> None:
    """Name the outputs, and add labels to probabilities."""
    size, kind = facts["sizes"][-1], facts["answers"]
    if kind == "number":
        graph.give("prediction", graph.add("Squeeze", outputs, graph.constant(np.array([1]))), TensorProto.FLOAT)
    elif kind == "numbers":
        graph.give("prediction", outputs, TensorProto.FLOAT, size)
    elif kind == "multilabel":
        above = graph.add("Greater", outputs, graph.constant(np.array(0.5, np.float32)))
        graph.give("labels", graph.add("Cast", above, to=TensorProto.INT64), TensorProto.INT64, size)
        graph.give("probabilities", outputs, TensorProto.FLOAT, size)
    else:
        several = kind == "several"
        parts = graph.split(outputs, [len(classes) for classes in facts["classes"]]) if several else [outputs]
        for number, (classes, part) in enumerate(zip(facts["classes"], parts, strict=True)):
            ending = f"_{number}" if several else ""
            known = _labels(classes)
            most = graph.add("ArgMax", part, axis=1, keepdims=0)
            graph.give(f"label{ending}", graph.add("Gather", graph.constant(known), most), _kind(known))
            graph.give(f"probabilities{ending}", part, TensorProto.FLOAT, len(classes))


class _Graph:
    """Nodes as they are added; values have numbers for names."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.bytes = 0

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: np.ndarray | Tensor) -> str:
        if isinstance(value, Tensor):
            value = value.numpy().astype(np.float32)
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        self.bytes += value.nbytes
        return name

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        names = [f"{value}_{number}" for number in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [value, self.constant(np.array(sizes))], names, axis=1))
        return names

    def give(self, name: str, value: str, kind: int, *size: int) -> None:
        """`value` is an output of the model, (cases, *size)."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, ["cases", *size]))

    def parts(self, parts: Sequence[nn.Module], value: str) -> str:
        for part in parts:
            value = self.part(part, value)
        return value

    def drawn_in(self, z: str, reach: float) -> str:
        """z / sqrt(1 + (z / reach)²)"""
        far, near, one = (
            self.constant(np.array(number, np.float32)) for number in (plain.FARTHEST, -plain.FARTHEST, 1.0)
        )
        z = self.add("Clip", z, near, far)
        share = self.add("Div", z, self.constant(np.array(reach, np.float32)))
        return self.add("Div", z, self.add("Sqrt", self.add("Add", self.add("Mul", share, share), one)))

    def pool(self, part: plain.Pool, value: str) -> str:
        """Windows that reach over the edge are filled up before: runtimes differ in what they make of them."""
        _, right, _, below = part.over
        most = part.kind == "max"
        filler = self.constant(np.array(plain.LEAST if most else 0.0, np.float32))
        value = self.add("Pad", value, self.constant(np.array([0, 0, 0, 0, 0, 0, below, right])), filler)
        window = {"kernel_shape": list(part.window), "strides": [part.stride] * 2}
        value = self.add("MaxPool" if most else "AveragePool", value, **window)
        return value if most else self.add("Div", value, self.constant(part.inside))

    def views(self, part: plain.Views, value: str) -> str:
        axes = self.constant(np.array([2, 3]))
        patches = [
            self.add("Slice", value, self.constant(np.array(place)), self.constant(np.array(place) + part.size), axes)
            for place in part.places
        ]
        backwards = [self.constant(np.array([number])) for number in (-1, np.iinfo(np.int64).min, 3, -1)]
        reflected = [self.add("Slice", patch, *backwards) for patch in patches]
        return self.add("Concat", *patches, *reflected, axis=0)

    def mean_field(self, part: plain.MeanField, value: str) -> str:
        below = self.part(part.first, value)
        weight, bias = self.constant(part.second.weight), self.constant(part.second.bias)
        first = self.add("Sigmoid", self.add("Add", below, below))
        for _ in range(part.sweeps):
            above = self.add("Sigmoid", self.add("Gemm", first, weight, bias, transB=1))
            first = self.add("Sigmoid", self.add("Gemm", above, weight, below))
        above = self.add("Sigmoid", self.add("Gemm", first, weight, bias, transB=1))
        return self.add("Concat", value, above, axis=1)

    def part(self, part: nn.Module, value: str) -> str:
        """What a module of plain.py makes of a value."""
        match part:
            case plain.Restore():
                return self.add("Add", self.add("Mul", value, self.constant(part.scale)), self.constant(part.mean))
            case plain.Standardise():
                value = self.add("Div", self.add("Sub", value, self.constant(part.mean)), self.constant(part.scale))
                return value if part.reach is None else self.drawn_in(value, part.reach)
            case nn.Linear():
                return self.add("Gemm", value, self.constant(part.weight), self.constant(part.bias), transB=1)
            case nn.Unflatten():
                sizes = (0, *part.unflattened_size)  # 0: as many cases as there are
                return self.add("Reshape", value, self.constant(np.array(sizes)))
            case nn.Flatten():
                return self.add("Flatten", value)
            case nn.Conv2d():
                assert part.bias is not None
                steps = {"pads": [int(side) for side in part.padding] * 2, "strides": list(part.stride)}
                filters = self.constant(part.weight), self.constant(part.bias)
                return self.add("Conv", value, *filters, group=part.groups, **steps)
            case plain.Views():
                return self.views(part, value)
            case plain.ViewsMean():
                apart = self.add("Reshape", value, self.constant(np.array([plain.Views.COUNT, -1, self.classes])))
                return self.add("ReduceMean", apart, axes=[0], keepdims=0)
            case plain.Channels():
                return self.add("Gather", value, self.constant(part.order.numpy()), axis=1)
            case plain.Subsampled():
                rows = self.add("MatMul", self.constant(part.weight), value)
                return self.add("MatMul", rows, self.constant(part.weight.T.contiguous()))
            case plain.Sum():
                return self.add("Sum", *(self.parts(list(branch.children()), value) for branch in part.branches))
            case plain.Pool():
                return self.pool(part, value)
            case plain.Norm():
                adjacent = self.constant(part.adjacent[:, :, None, None])
                squares = self.add("Conv", self.add("Mul", value, value), adjacent)
                total = self.add("Add", squares, self.constant(np.array(1.0, np.float32)))
                return self.add("Mul", value, self.add("Pow", total, self.constant(np.array(-part.beta, np.float32))))
            case plain.MeanField():
                return self.mean_field(part, value)
            case nn.ReLU():
                return self.add("Relu", value)
            case nn.Sigmoid():
                return self.add("Sigmoid", value)
            case nn.Softmax():
                return self.add("Softmax", value, axis=1)
            case plain.Softmaxes():
                pieces = [self.add("Softmax", piece, axis=1) for piece in self.split(value, part.groups)]
                return self.add("Concat", *pieces, axis=1)
        raise AssertionError(f"no operator for {type(part).__name__}")


def _labels(classes: Sequence[Any]) -> np.ndarray:
    """Labels as a tensor of whole numbers, numbers, truth values or strings."""
    if all(isinstance(label, str) for label in classes):
        return np.array(classes, dtype=object)
    return np.array(classes)


def _kind(labels: np.ndarray) -> int:
    return TensorProto.STRING if labels.dtype == object else helper.np_dtype_to_tensor_dtype(labels.dtype)
