"""Rows of an identity matrix: OneHot, Hardmax, EyeLike."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, Constant, Operand, constant_kind, lowers
from .elementwise import binary
from .reduce import best, last, softmax_axes

_BEYOND = 1024  # so far beyond the depth an index still finds no one; farther, Gather takes the end of its table
_MAX_TABLE = 1 << 22
_MAX_FOLDED = 1 << 16


@lowers("OneHot")
def one_hot(call: Call) -> Operand:
    """Of whole numbers a Gather, of floating point numbers, which stand for whole ones, comparisons.

    Of a few constants it is a constant: PyTorch writes the repeats of a Tile so.
    """
    given, values = call.operand(0), np.asarray(call.constant(2, "the values")).reshape(-1)
    depth = int(call.scalar(1, "the depth"))
    if values.size != 2:
        raise call.node.unsupported(f"{values.size} values, expected those for off and on")
    rank = len(given.shape) + 1
    axis = call.axis(call.int_attr("axis", -1), rank)
    if not isinstance(given, Tensor) and 0 < given.size * call.places(depth) <= _MAX_FOLDED:
        places = np.arange(depth)
        hot = (given[..., None] == places) | (given[..., None] == places - depth)
        return np.moveaxis(np.where(hot, values[1], values[0]), -1, axis)
    indices = call.as_tensor(given)
    if is_integer(indices.kind):
        hot = _rows(call, indices, _table(call.places(depth), values))
    else:
        hot = _compared(call, indices, depth, values)
    order = list(range(rank - 1))
    order.insert(axis, rank - 1)
    return call.transpose(hot, order)


def _rows(call: Call, indices: Tensor, table: Constant) -> Tensor:
    """A row of a table for each index."""
    if table.size > _MAX_TABLE:
        raise call.node.unsupported(f"a table of {table.size} elements; the limit is {_MAX_TABLE}")
    call.stores(table.size)
    kind = constant_kind(table)
    weight, count = call.emit.weight(table, call.emit.dtype_of(kind)), math.prod(indices.shape)
    places = call.reshape(indices, (count,))
    flat = call.op("Gather", [weight, places], (count, table.shape[1]), {"axis": 0}, kind)
    return call.reshape(flat, (*indices.shape, table.shape[1]))


def _table(depth: int, values: Constant) -> Constant:
    """Rows for indices from 0 and from the end, and between them empty ones for what lies beyond."""
    identity = np.where(np.eye(depth, dtype=bool), values[1], values[0])
    return np.concatenate([identity, np.broadcast_to(values[0], (_BEYOND, depth)), identity])


def _compared(call: Call, indices: Tensor, depth: int, values: Constant) -> Tensor:
    places = np.arange(call.places(depth), dtype=np.float32)
    x = call.reshape(indices, (*indices.shape, 1))
    hot = binary(call, "Max", binary(call, "Equal", x, places), binary(call, "Equal", x, places - depth))
    if values.dtype.kind in "iu":
        raise call.node.unsupported("whole numbers as values for indices that are floating point numbers")
    if values[0] == 0 and values[1] == 1:
        return hot
    off, on = (np.asarray(value, np.float32).reshape(()) for value in values)
    return call.op("Where", [hot, call.source(on), call.source(off)], hot.shape)


@lowers("Hardmax")
def hardmax(call: Call) -> Tensor:
    """A one for the first of the largest."""
    x = call.floats(0)
    flat, order = last(call, x, softmax_axes(call, x))
    _, first = best(call, flat, len(flat.shape) - 1, 1, True)
    identity = np.eye(call.places(flat.shape[-1]), dtype=np.float32)
    hot = _rows(call, call.reshape(first, flat.shape[:-1]), identity)
    return call.transpose(call.reshape(hot, [x.shape[i] for i in order]), [order.index(i) for i in range(len(order))])


@lowers("EyeLike")
def eye_like(call: Call) -> Operand:
    from onnx import TensorProto, helper

    x = call.operand(0)
    if len(x.shape) != 2:
        raise call.node.unsupported(f"an operand of the shape {list(x.shape)}; expected two axes")
    rows, columns = x.shape
    call.places(rows * columns)
    default = TensorProto.FLOAT if not isinstance(x, Tensor) or x.kind == "float" else TensorProto.INT64
    dtype = helper.tensor_dtype_to_np_dtype(call.int_attr("dtype", default))
    return np.eye(rows, columns, call.int_attr("k", 0), dtype=dtype)
