"""Integers that the network gets or computes. They are int32; those of 8 and 16 bits wrap as their types do."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, Operand, constant_kind

# The least number of a type and how many it has; int32 and what is wider wrap by themselves.
_NARROW = {"int8": (-128, 256), "uint8": (0, 256), "int16": (-32768, 65536), "uint16": (0, 65536)}
_GROWING = ("Add", "Sub", "Mul", "Div")
_COMPARISONS = ("Equal", "Less")


def kind_of(operand: Operand) -> str:
    """The kind of a tensor, or of the one that a constant becomes."""
    return operand.kind if isinstance(operand, Tensor) else constant_kind(operand)


def whole(value: int) -> np.ndarray:
    """A constant operand of one integer."""
    return np.asarray(value, np.int64)


def int32(call: Call, op: str, a: Operand, b: Operand) -> Tensor:
    """Add, Sub, Mul, Div, Max, Min, or 0 and 1 for Equal and Less, of integers, with numpy's rules for shapes."""
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise call.node.unsupported(f"operands {list(a.shape)} and {list(b.shape)} do not fit each other") from None
    return call.op(op, [call.source(a), call.source(b)], shape, {"broadcast": 1}, "int")


def of_integers(call: Call, op: str, a: Operand, b: Operand) -> Tensor:
    """One of our elementwise ops of two operands of integers; comparisons give truths."""
    if op == "Div" and not isinstance(b, Tensor) and not b.all():
        raise call.node.unsupported("a division by 0")
    y = int32(call, op, a, b)
    if op in _COMPARISONS:
        return to_floats(call, y)
    kind = kind_of(a) if isinstance(a, Tensor) else kind_of(b)
    return wrapped(call, y, kind) if op in _GROWING else as_kind(y, kind)


def as_kind(x: Tensor, kind: str) -> Tensor:
    """The same integers, known to be of another type."""
    return Tensor(x.id, x.shape, kind)


def wrapped(call: Call, x: Tensor, kind: str) -> Tensor:
    """Any integers as those of a type: what is beyond its ends comes in at the other."""
    if kind not in _NARROW:
        return as_kind(x, "int")
    least, count = _NARROW[kind]
    if least:
        x = int32(call, "Sub", x, whole(least))
    x = rest(call, x, whole(count), False)
    return as_kind(int32(call, "Add", x, whole(least)) if least else x, kind)


def rest(call: Call, a: Operand, b: Operand, fmod: bool) -> Tensor:
    """What a division leaves: of the sign of the divisor, with `fmod` of that of the number divided."""
    if not isinstance(b, Tensor) and not b.all():
        raise call.node.unsupported("a division by 0")
    left = int32(call, "Sub", a, int32(call, "Mul", int32(call, "Div", a, b), b))
    if fmod:
        return left
    negative = int32(call, "Less", left, whole(0))
    if not isinstance(b, Tensor) and b.min() > 0:
        return int32(call, "Add", left, int32(call, "Mul", negative, b))
    same = int32(call, "Equal", negative, int32(call, "Less", b, whole(0)))
    fits = int32(call, "Max", same, int32(call, "Equal", left, whole(0)))
    return int32(call, "Add", left, int32(call, "Mul", int32(call, "Sub", whole(1), fits), b))


def to_floats(call: Call, x: Tensor) -> Tensor:
    """The nearest numbers of the graph's type; floating point numbers as they are."""
    return call.op("Cast", [x], x.shape) if is_integer(x.kind) else x


def to_integers(call: Call, x: Operand, kind: str = "int") -> Tensor:
    """Floating point numbers without their fractions, truths as 0 and 1, or integers, as those of a type."""
    x = call.as_tensor(x)
    if is_integer(x.kind):
        return wrapped(call, x, kind)
    if (compared := call.emit.compared(x)) is not None:
        return as_kind(compared, kind)
    return wrapped(call, call.op("Cast", [x], x.shape, result="int"), kind)


def powers(call: Call, x: Tensor, exponent: Operand) -> Tensor:
    """Products of integers, for a constant exponent."""
    count = None if isinstance(exponent, Tensor) or exponent.size != 1 else float(exponent.reshape(-1)[0])
    if count is None or not 1 <= count <= 31 or count != math.floor(count):
        raise call.node.unsupported("a power of integers; the exponent is not one constant whole number from 1 to 31")
    assert not isinstance(exponent, Tensor)
    shape = np.broadcast_shapes(x.shape, exponent.shape)
    y, square, left = None, x, int(count)
    while left:
        if left % 2:
            y = square if y is None else int32(call, "Mul", y, square)
        left //= 2
        square = int32(call, "Mul", square, square) if left else square
    assert y is not None
    return call.reshape(wrapped(call, y, x.kind), shape)


def running(call: Call, op: str, x: Tensor, backwards: bool, exclusive: bool) -> Tensor:
    """Sums or products (Add, Mul) of all up to each element of the last axis: of two, of four, .. neighbours."""
    count, start = x.shape[-1], 0 if op == "Add" else 1
    rows = call.reshape(x, (math.prod(x.shape[:-1]), count))
    if exclusive:
        rows = _moved(call, rows, 1, backwards, start)
    step = 1
    while step < count:
        moved = _moved(call, rows, step, backwards, start)
        rows = int32(call, op, rows, moved) if is_integer(x.kind) else call.op(op, [rows, moved], rows.shape)
        step *= 2
    return call.reshape(wrapped(call, rows, x.kind) if is_integer(x.kind) else rows, x.shape)


def _moved(call: Call, x: Tensor, step: int, backwards: bool, start: int) -> Tensor:
    """[rows, count], `step` columns later or, backwards, earlier; `start` comes in."""
    rows, count = x.shape
    one = call.source(np.full(1, start, np.int32 if is_integer(x.kind) else np.float32))
    news = call.op("Expand", [one], (rows, min(step, count)), result=x.kind)
    if step >= count:
        return news
    begin = [0, step if backwards else 0]
    kept = call.op("StridedSlice", [x], (rows, count - step), {"starts": begin, "steps": [1, 1]}, x.kind)
    return call.op("Concat", [kept, news] if backwards else [news, kept], x.shape, {"axis": 1}, x.kind)
