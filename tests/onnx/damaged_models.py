"""Node cases of onnx.backend.test with random damage: in their bytes, or in the fields of their models."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable

import numpy as np
import onnx
from node_cases import baked, cases
from onnx import numpy_helper

_NUMBERS = (
    -(2**63), -(2**31) - 1, -(2**31), -65537, -9, -3, -2, -1, 0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 255, 4096, 65536,
    2**24 + 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**62, 2**63 - 1,
)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-38, 1e38, 65504.0, -7.5, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "", "x", "../x", "/etc/passwd", "\0", "\x1b[31m", "ä" * 600, "a" * 5000, "com.example", "SAME_UPPER", "linear",
)  # fmt: skip


@functools.cache
def seeds() -> list[bytes]:
    """The models that inputs are made of: node cases of at most 20 kB, their constants baked in."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases():
            for inputs, _ in case.data_sets[:1]:
                try:
                    data = baked(case.model, inputs)[0].SerializeToString()
                except (AttributeError, NotImplementedError, TypeError, ValueError):  # sequences
                    data = case.model.SerializeToString()
                if len(data) <= 20_000:
                    found.append(data)
    return found


def mutated(number: int) -> onnx.ModelProto | bytes:
    """The input with this number."""
    rng = random.Random(number)
    data = rng.choice(seeds())
    if rng.random() < 0.15:
        raw = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            raw[rng.randrange(len(raw))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        return bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.2 else raw)
    model = onnx.load_from_string(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        rng.choice(_CHANGES)(rng, model)
    return model


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    return rng.choice(model.graph.node) if model.graph.node else model.graph.node.add()


def _names(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    named = [*graph.initializer, *graph.input, *graph.output]
    return ["", *(part.name for part in named), *(name for node in graph.node for name in (*node.input, *node.output))]


def _change_op(rng: random.Random, model: onnx.ModelProto) -> None:
    other = onnx.load_from_string(rng.choice(seeds()))
    node, source = _node(rng, model), _node(rng, other)
    node.op_type = source.op_type if rng.random() < 0.9 else rng.choice(_TEXTS)
    if rng.random() < 0.5:
        del node.attribute[:]
        node.attribute.extend(source.attribute)


def _change_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if not node.attribute:
        return
    index = rng.randrange(len(node.attribute))
    attribute = node.attribute[index]
    kind = rng.random()
    if kind < 0.15:
        del node.attribute[index]
    elif kind < 0.3:
        node.attribute.append(onnx.helper.make_attribute(attribute.name, rng.choice((1, 1.5, "x", [1, 2], [0.5]))))
        del node.attribute[index]
    elif attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(_NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(_FLOATS)
    else:
        attribute.s = rng.choice(_TEXTS).encode()


def _change_shape(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.input:
        return
    tensor = rng.choice(model.graph.input).type.tensor_type
    if tensor.shape.dim and rng.random() < 0.8:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(_NUMBERS)
    else:
        tensor.shape.dim.add().dim_value = rng.choice((1, 2, 3))
    if rng.random() < 0.2:
        tensor.elem_type = rng.randrange(30)


def _change_constant(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    kind = rng.random()
    if kind < 0.3 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
    elif kind < 0.4:
        tensor.data_type = rng.randrange(30)
    elif kind < 0.5:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", rng.choice(_TEXTS)), ("offset", str(rng.choice(_NUMBERS)))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
    else:
        try:
            array = np.array(numpy_helper.to_array(tensor))
            numbers = _NUMBERS if array.dtype.kind in "iu" else _FLOATS
            with np.errstate(all="ignore"):
                array.reshape(-1)[rng.randrange(array.size)] = rng.choice(numbers)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, onnx.checker.ValidationError):
            tensor.raw_data = tensor.raw_data[:-1]


def _change_wires(rng: random.Random, model: onnx.ModelProto) -> None:
    node, names = _node(rng, model), _names(model)
    ends = node.input if rng.random() < 0.7 else node.output
    kind = rng.random()
    if ends and kind < 0.6:
        ends[rng.randrange(len(ends))] = rng.choice(names) if kind < 0.5 else rng.choice(_TEXTS)
    elif ends and kind < 0.8:
        del ends[rng.randrange(len(ends))]
    else:
        ends.append(rng.choice(names))


def _change_nodes(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = model.graph
    kind = rng.random()
    if graph.node and kind < 0.3:
        del graph.node[rng.randrange(len(graph.node))]
    elif kind < 0.6:  # another node behind an output
        other = onnx.load_from_string(rng.choice(seeds())).graph
        if other.node and graph.output:
            node = graph.node.add()
            node.CopyFrom(rng.choice(other.node))
            graph.initializer.extend(other.initializer)
            if node.input and node.output:
                node.input[0], node.output[0] = graph.output[0].name, "behind"
                graph.output[0].name = "behind"
    elif kind < 0.8:
        _node(rng, model).domain = rng.choice(_TEXTS)
    elif graph.output:
        rng.choice(graph.output).name = rng.choice(_names(model))


def _change_opset(rng: random.Random, model: onnx.ModelProto) -> None:
    if model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((0, 6, 7, 9, 11, 12, 13, 17, 18, 21, 24, 25, 2**40))


_CHANGES: tuple[Callable[[random.Random, onnx.ModelProto], None], ...] = (
    *[_change_op] * 2, *[_change_attribute] * 4, *[_change_shape] * 2, *[_change_constant] * 4, *[_change_wires] * 2,
    _change_nodes, _change_opset,
)  # fmt: skip
