"""Bits of integers, with ops that know none: four at a time go through a table; shifts are products and quotients."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, Operand, lowers
from .elementwise import binary
from .integers import as_kind, int32, kind_of, rest, whole, wrapped

_FUNCTIONS = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}
_WIDTHS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16}  # others are int32 here


def _kind(call: Call, *operands: Operand) -> str:
    kinds = {kind_of(operand) for operand in operands if isinstance(operand, Tensor)}
    if len(kinds) != 1 or not all(is_integer(kind_of(operand)) for operand in operands):
        raise call.node.unsupported(f"operands of {' and '.join(sorted(kinds))}s; expected integers of one type")
    return kinds.pop()


@lowers(*_FUNCTIONS)
def bitwise(call: Call) -> Tensor:
    a, b = call.operand(0), call.operand(1)
    kind, digits = _kind(call, a, b), np.arange(16)
    table = call.emit.weight(_FUNCTIONS[call.node.op](digits[:, None], digits).reshape(-1), "int32")
    total: Tensor | None = None
    for shift in range(0, _WIDTHS.get(kind, 32), 4):
        (low, a), (other, b) = _digit(call, a), _digit(call, b)
        places = int32(call, "Add", int32(call, "Mul", low, whole(16)), other)
        flat = (math.prod(places.shape),)
        found = call.op("Gather", [table, call.reshape(places, flat)], flat, {"axis": 0}, "int")
        part = int32(call, "Mul", call.reshape(found, places.shape), whole(1 << shift))
        total = part if total is None else int32(call, "Add", total, part)
    assert total is not None
    return wrapped(call, total, kind)


def _digit(call: Call, x: Operand) -> tuple[Operand, Operand]:
    """The last four bits, and what is left without them."""
    if not isinstance(x, Tensor):
        numbers = x.astype(np.int64)
        return numbers & 15, numbers >> 4
    low = rest(call, x, whole(16), False)
    return low, int32(call, "Div", int32(call, "Sub", x, low), whole(16))


@lowers("BitwiseNot")
def bitwise_not(call: Call) -> Tensor:
    x = call.tensor(0)
    kind = _kind(call, x)
    return binary(call, "Sub", whole((1 << _WIDTHS[kind]) - 1 if kind in ("uint8", "uint16") else -1), x)


@lowers("BitShift")
def bit_shift(call: Call) -> Tensor:
    """By more bits than there are, all go; to the right the sign stays."""
    x, bits = call.tensor(0), call.constant(1, "the number of bits")
    kind, direction, count = _kind(call, x, bits), call.attr("direction"), np.asarray(bits).astype(np.int64)
    beyond = (count < 0) | (count >= _WIDTHS.get(kind, 32))
    if direction == "LEFT":
        factor = np.where(beyond, 0, 1 << np.where(beyond, 0, count))
        return wrapped(call, int32(call, "Mul", x, np.where(factor == 1 << 31, -(1 << 31), factor)), kind)
    if direction != "RIGHT":
        raise call.node.unsupported(f"direction {direction!r:.40}; expected LEFT or RIGHT")
    count = np.where(beyond, 31, count)
    for part in (np.minimum(count, 30), np.maximum(count - 30, 0)):  # 2^31 is no int32
        if part.any():
            x = int32(call, "Div", int32(call, "Sub", x, rest(call, x, 1 << part, False)), 1 << part)
    return as_kind(x, kind)
