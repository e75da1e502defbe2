"""The ops of a graph that compute each element by itself."""

from __future__ import annotations

import math

import numpy as np

from .moves import GraphMoves
from .values import Ref


class GraphElements(GraphMoves):
    """A `GraphMoves` with these ops; arguments as there."""

    def add(self, name: str, a: Ref, b: Ref) -> Ref:
        """Sum of two values of equal shape."""
        assert a.shape == b.shape, (name, a.shape, b.shape)
        return self._op("Add", name, [a, b], a.shape)

    def mul(self, name: str, a: Ref, b: Ref) -> Ref:
        """Product of two values of equal shape, element by element."""
        assert a.shape == b.shape, (name, a.shape, b.shape)
        return self._op("Mul", name, [a, b], a.shape)

    def sub(self, name: str, a: Ref, b: Ref) -> Ref:
        """Difference of two values of equal shape."""
        assert a.shape == b.shape, (name, a.shape, b.shape)
        return self._op("Sub", name, [a, b], a.shape)

    def times(self, name: str, x: Ref, factors: str) -> Ref:
        """Product of a value and a weight of the tensor dtype whose shape repeats to that of `x`."""
        return self._op("Mul", name, [x, self.weight(factors)], x.shape, {"broadcast": 1})

    def where(self, name: str, condition: Ref, a: Ref, b: Ref) -> Ref:
        """`a` where the condition is not 0, else `b`; all three repeat to each other."""
        return self._op("Where", name, [condition, a, b], np.broadcast_shapes(condition.shape, a.shape, b.shape))

    def repeated(self, kind: str, name: str, a: Ref, b: Ref) -> Ref:
        """`Add`, `Mul` and so on of a and b, which repeat to each other; either may be a weight of the tensor dtype."""
        return self._op(kind, name, [a, b], np.broadcast_shapes(a.shape, b.shape), {"broadcast": 1})

    def integers(self, kind: str, name: str, a: Ref, b: Ref) -> Ref:
        """`Add`, `Sub`, `Mul`, `Div`, `Max`, `Less` or `Equal` of int32 tensors, which repeat to each other."""
        shape = tuple(max(pair) for pair in zip(a.shape, b.shape, strict=True))
        result = self._value(name, "intermediate", "int32", shape)
        self._append(kind, [a, b], [result], {"broadcast": 1})
        return result

    def function(self, kind: str, name: str, x: Ref, attributes: dict[str, int | float | str] | None = None) -> Ref:
        """A function of each element, such as `Gelu`."""
        return self._op(kind, name, [x], x.shape, attributes)

    def function_of_rows(self, kind: str, name: str, x: Ref) -> Ref:
        """[.., n] -> [.., 1]: `ReduceSum`, `ReduceMean` and so on of the last axis."""
        return self._op(kind, name, [x], (*x.shape[:-1], 1))

    def gate_mul(self, name: str, x: Ref, gate: Ref, function: str) -> Ref:
        """x * function(gate): sigmoid, silu or softplus; a gate for each element, or G that share them, [B, T, G]."""
        assert gate.shape[:2] == x.shape[:2], (name, x.shape, gate.shape)
        assert math.prod(x.shape) % math.prod(gate.shape) == 0, (name, x.shape, gate.shape)
        return self._op("GateMul", name, [x, gate], x.shape, {"function": function})
