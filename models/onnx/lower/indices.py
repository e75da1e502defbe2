"""Integers that the network gets or computes: a table has the results of an index whose values are known; others become
floating point numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, Constant, Operand

Values = NDArray[Any]


def _quotient(a: Values, b: Values) -> Values:
    """Without its fraction, as ONNX divides whole numbers."""
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


# Our ops of two operands, with the kind of their results.
_FUNCTIONS: dict[str, tuple[Callable[[Values, Values], Values], str]] = {
    "Add": (np.add, "int"),
    "Sub": (np.subtract, "int"),
    "Mul": (np.multiply, "int"),
    "Div": (_quotient, "int"),
    "Max": (np.maximum, "int"),
    "Min": (np.minimum, "int"),
    "Equal": (np.equal, "float"),
    "Less": (np.less, "float"),
}


def _integer_and_constant(a: Operand, b: Operand) -> tuple[Tensor, Constant] | None:
    """Two operands, the one that the network computes first; None unless both are integers and the other a constant."""
    x, constant = (a, b) if isinstance(a, Tensor) else (b, a)
    if not isinstance(x, Tensor) or isinstance(constant, Tensor) or x.kind != "int" or constant.dtype.kind not in "iu":
        return None
    return x, constant


def arithmetic(call: Call, op: str, a: Operand, b: Operand) -> Tensor | None:
    """One of our ops of an index and a constant; None where the values of the index are not known."""
    if op not in _FUNCTIONS:
        return None
    function, kind = _FUNCTIONS[op]
    return of_two(call, function, a, b, kind)


def of_two(
    call: Call, function: Callable[[Values, Values], Values], a: Operand, b: Operand, kind: str
) -> Tensor | None:
    """function(a, b) of an index and a constant that is one number, or a row for an index of one column."""
    pair = _integer_and_constant(a, b)
    if pair is None:
        return None
    x, constant = pair
    if function in (_quotient, np.mod, np.fmod) and b is constant and not constant.all():
        raise call.node.unsupported("a division by 0")
    row = constant.astype(np.int64).reshape(-1)
    if constant.size == 1:
        shape = np.broadcast_shapes(x.shape, constant.shape)
    elif constant.ndim == 1 and x.shape and x.shape[-1] == 1:
        shape = (*x.shape[:-1], constant.size)
    else:
        return None
    y = by_table(call, x, lambda v: function(v[:, None], row) if x is a else function(row, v[:, None]), kind, row.size)
    return None if y is None else call.reshape(y, shape)


def as_floats(call: Call, x: Tensor) -> Tensor:
    """The nearest numbers of the graph's type."""
    return call.op("Cast", [x], x.shape)


def comparable(call: Call, a: Operand, b: Operand) -> tuple[Operand, Operand] | None:
    """An integer and a constant as numbers that compare in the same way; None for other operands.

    Rounding keeps order, and the type has every integer from -limit to limit: no other integer becomes one of those
    between.
    """
    limit = 2**11 if call.emit.dtype == "float16" else 2**24
    pair = _integer_and_constant(a, b)
    if pair is None:
        return None
    x, constant = pair
    if constant.size and not -limit < int(constant.min()) <= int(constant.max()) < limit:
        raise call.node.unsupported(
            f"an integer that the network computes is compared with one beyond {limit - 1}, the last that "
            f"{call.emit.dtype} tells from its neighbours"
        )
    numbers = as_floats(call, x), constant.astype(np.float32)
    return numbers if x is a else numbers[::-1]


def by_table(call: Call, x: Tensor, function: Callable[[Values], Values], kind: str, columns: int = 1) -> Tensor | None:
    """[count, columns]: the row that `function` makes of each value of an index, if its values are known."""
    most = call.emit.most(x)
    if most is None:
        return None
    call.places((most + 1) * columns)
    with np.errstate(all="ignore"):  # an index may have fewer values than the table has rows
        table = function(np.arange(most + 1))
    count = math.prod(x.shape)
    weight = call.emit.weight(table, call.emit.dtype_of(kind))
    return call.op("Gather", [weight, call.reshape(x, (count,))], (count, *table.shape[1:]), {"axis": 0}, kind)
