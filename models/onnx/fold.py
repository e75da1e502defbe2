"""Nodes whose operands are all constants, evaluated by `onnx.reference`: shape arithmetic, mostly."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network import MAX_FOLDED, Node

_MAX_SLOW = 1 << 16  # operands of ops that the evaluator may compute one element at a time
_TOGETHER = 16  # products of floats that take as long as an element of other ops
# Never evaluated: random, the work is decided by attributes or numbers and not by the sizes of the operands, or the
# evaluator fails at some shapes (GatherElements).
_NEVER = frozenset(
    (
        "AffineGrid", "Attention", "AveragePool", "Bernoulli", "CenterCropPad", "Col2Im", "Conv", "ConvInteger",
        "ConvTranspose", "DFT", "DeformConv", "Dropout", "Einsum", "EyeLike", "GRU", "GatherElements", "GridSample",
        "If", "ImageDecoder", "LRN", "LSTM", "LinearAttention", "Loop", "LpPool", "MaxPool", "MaxRoiPool", "MaxUnpool",
        "Multinomial", "NonMaxSuppression", "OneHot", "Pad", "QLinearConv", "RNN", "RandomNormal", "RandomNormalLike",
        "RandomUniform", "RandomUniformLike", "RegexFullMatch", "Resize", "RoiAlign", "STFT", "Scan", "SequenceAt",
        "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
        "SplitToSequence", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Upsample",
    )
)  # fmt: skip
# Whole arrays at a time. Ops that are in neither list are evaluated for small operands.
_QUICK = frozenset(
    (
        "Abs", "Add", "And", "ArgMax", "ArgMin", "BatchNormalization", "Cast", "CastLike", "Ceil", "Clip", "Concat",
        "Constant", "ConstantOfShape", "Cos", "DequantizeLinear", "Div", "Equal", "Exp", "Expand", "Flatten", "Floor",
        "Gather", "Gemm", "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log",
        "MatMul", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "QuantizeLinear", "Range",
        "Reciprocal", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "ReduceSumSquare", "Relu", "Reshape", "Round", "Shape", "Sign", "Sin", "Size", "Slice", "Softmax", "Split",
        "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
    )
)  # fmt: skip


def can_fold(node: Node, operands: Sequence[NDArray[Any] | None]) -> bool:
    """Whether a node with these operands may be evaluated now."""
    if node.domain or node.op in _NEVER or any(not _is_plain(value) for value in node.attributes.values()):
        return False
    if node.opset < 13 and node.op in ("Softmax", "LogSoftmax", "Hardmax"):
        return False  # the evaluator computes them as they are since
    sizes = [operand.shape for operand in operands if operand is not None]
    try:
        return _work(node, operands, sizes) <= (MAX_FOLDED if node.op in _QUICK else _MAX_SLOW)
    except (TypeError, ValueError):  # text where a size should be
        return False


def fold(node: Node, operands: Sequence[NDArray[Any] | None]) -> list[NDArray[Any]]:
    """The results of a node that `can_fold`.

    Raises:
        UnsupportedNodeError: The evaluator refuses it.
    """
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    if node.op in ("QuantizeLinear", "DequantizeLinear") and len(operands) > 2:  # the evaluator repeats what is short
        scale, zero = operands[1:3]
        if scale is not None and zero is not None and scale.size != zero.size:
            raise node.unsupported(f"scales and zero points are {scale.size} and {zero.size}; expected as many of both")
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
    # The evaluator has no older form of DequantizeLinear, which computed the same.
    opset = max(node.opset, 19) if node.op == "DequantizeLinear" else node.opset
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {name: np.asarray(operand) for name, operand in zip(names, operands, strict=True) if operand is not None}
    if node.op == "CumSum" and "x1" in feeds and feeds["x1"].size == 1:  # exporters write [1], which runtimes accept
        feeds["x1"] = feeds["x1"].reshape(())
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


def _work(node: Node, operands: Sequence[NDArray[Any] | None], shapes: Sequence[tuple[int, ...]]) -> float:
    """At most how many elements are read, made, or multiplied in a product."""
    own = float(sum(math.prod(shape) for shape in shapes))
    first = operands[0] if operands else None
    second = operands[1] if len(operands) > 1 else None
    if node.op in ("DequantizeLinear", "QuantizeLinear"):
        return own  # scales along an axis do not repeat as numpy has it
    if node.op == "ConstantOfShape" and first is not None:
        return _product(first)
    if node.op == "Expand" and second is not None and first is not None:
        return math.prod(np.broadcast_shapes(first.shape, tuple(int(size) for size in second.reshape(-1))))
    if node.op in ("BlackmanWindow", "HammingWindow", "HannWindow") and first is not None:
        return _product(first)
    if node.op == "MelWeightMatrix" and first is not None and second is not None:
        return _product(first) * _product(second)
    if node.op == "Tile" and second is not None and first is not None:
        return _product(second) * first.size
    if node.op == "Range" and len(operands) == 3:
        start, limit, delta = (
            float(np.asarray(operand).reshape(-1)[0]) if operand is not None and operand.size else 0.0
            for operand in operands
        )
        return abs((limit - start) / delta) + 1 if delta else math.inf
    if node.op in ("Gather", "GatherND") and first is not None and second is not None:
        # A place says which part is taken; no part is larger than what is left without its axis.
        axis = node.attributes.get("axis", 0) if node.op == "Gather" else None
        extent = first.shape[axis] if isinstance(axis, int) and -first.ndim <= axis < first.ndim else 1
        return own + float(second.size) * first.size / max(extent, 1)
    if node.op in ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul"):
        results, products = _multiplied(node, shapes)
        floats = all(operand is None or operand.dtype.kind == "f" for operand in operands)
        return own + (max(results, products / _TOGETHER) if floats else products)
    if node.op == "NonZero":
        return own * max(len(shapes[0]) if shapes else 1, 1)
    try:
        return max(own, float(math.prod(np.broadcast_shapes(*shapes))))
    except ValueError:
        return own


def _multiplied(node: Node, shapes: Sequence[tuple[int, ...]]) -> tuple[float, float]:
    """Results of a product of matrices, and the products that they add up; inf where operands are missing."""
    matrices = [shape for shape in shapes if shape][:: 3 if node.op == "QLinearMatMul" else 1][:2]
    if len(matrices) < 2:
        return math.inf, math.inf
    left, right = matrices
    if node.op == "Gemm":
        return float(max(left)) * max(right), float(math.prod(left)) * max(right)
    batch = float(math.prod(np.broadcast_shapes(left[:-2], right[:-2])))
    columns = right[-1] if len(right) > 1 else 1
    return batch * math.prod(left[-2:-1]) * columns, batch * math.prod(left[-2:]) * columns


def _product(array: NDArray[Any]) -> float:
    """Of extents, which a damaged model may give as floats, infinity and NaN among them."""
    extents = np.asarray(array).reshape(-1)[:64].astype(np.float64)
    return float(math.prod(np.nan_to_num(np.maximum(extents, 0.0), nan=math.inf, posinf=math.inf).tolist()))
