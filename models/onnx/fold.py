"""Nodes whose operands are all constants, evaluated by `onnx.reference`: shape arithmetic, mostly."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network import MAX_FOLDED, Node

# Whose result can be far larger than their operands: how many elements it has, from the operands.
_GROWING = ("ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Resize", "Upsample", "OneHot", "EyeLike", "CumSum")
_RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
    "Dropout",
)


def can_fold(node: Node, operands: Sequence[NDArray[Any] | None]) -> bool:
    """Whether a node with these operands may be evaluated now."""
    if node.domain or node.op in _RANDOM or any(not _is_plain(value) for value in node.attributes.values()):
        return False
    sizes = [operand.shape for operand in operands if operand is not None]
    try:
        return _size(node, operands, sizes) <= MAX_FOLDED
    except (TypeError, ValueError):  # text where a size should be
        return False


def fold(node: Node, operands: Sequence[NDArray[Any] | None]) -> list[NDArray[Any]]:
    """The results of a node that `can_fold`.

    Raises:
        UnsupportedNodeError: The evaluator refuses it.
    """
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = [f"x{i}" if operand is not None else "" for i, operand in enumerate(operands)]
    proto = helper.make_node(node.op, names, [name or "" for name in node.outputs])
    for name, value in node.attributes.items():
        proto.attribute.append(_attribute(name, value))
    wanted = [name for name in node.outputs if name]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(operand.dtype), operand.shape)
        for name, operand in zip(names, operands, strict=True)
        if operand is not None
    ]
    outputs = [helper.make_tensor_value_info(name, 0, None) for name in wanted]
    graph = helper.make_graph([proto], "fold", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])
    feeds = {name: np.asarray(operand) for name, operand in zip(names, operands, strict=True) if operand is not None}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:
        raise node.unsupported(f"its constants cannot be evaluated: {' '.join(str(error).split())[:200]}") from None
    if not all(isinstance(result, (np.ndarray, np.generic)) for result in results):
        raise node.unsupported("it makes a sequence, and only tensors are supported")
    by_name = {name: np.asarray(result) for name, result in zip(wanted, results, strict=True)}
    return [by_name.get(name, np.zeros(0)) for name in node.outputs]


def _attribute(name: str, value: Any) -> Any:
    from onnx import helper, numpy_helper

    return helper.make_attribute(name, numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str, np.ndarray)) or (
        isinstance(value, Sequence) and len(value) > 0 and all(isinstance(item, (int, float, str)) for item in value)
    )


def _size(node: Node, operands: Sequence[NDArray[Any] | None], shapes: Sequence[tuple[int, ...]]) -> float:
    """At most how many elements the results have."""
    own = sum(math.prod(shape) for shape in shapes)
    first = operands[0] if operands else None
    second = operands[1] if len(operands) > 1 else None
    if node.op == "ConstantOfShape" and first is not None:
        return _product(first)
    if node.op == "Expand" and second is not None and first is not None:
        return _product(second) * max(first.size, 1)
    if node.op == "Tile" and second is not None and first is not None:
        return _product(second) * first.size
    if node.op == "Range" and len(operands) == 3:
        start, limit, delta = (
            float(np.asarray(operand).reshape(-1)[0]) if operand is not None and operand.size else 0.0
            for operand in operands
        )
        return abs((limit - start) / delta) + 1 if delta else math.inf
    if node.op in _GROWING or node.op in (
        "Einsum",
        "Conv",
        "ConvTranspose",
        "LSTM",
        "GRU",
        "RNN",
        "Loop",
        "If",
        "Scan",
    ):
        return own if own <= 1 << 16 and node.op == "CumSum" else math.inf
    if node.op in ("MatMul", "Gemm") and len(shapes) >= 2:
        return math.prod(shapes[0]) * max(shapes[1][-1:] or (1,))
    try:
        return max(own, math.prod(np.broadcast_shapes(*shapes)))
    except ValueError:
        return own


def _product(array: NDArray[Any]) -> float:
    return math.prod(float(max(int(extent), 0)) for extent in np.asarray(array).reshape(-1)[:64])
