"""A graph under construction: its values, its ops in execution order and its ports. The container: `tcim_lite.hmm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcim_lite.hmm import Graph, Op, Role, Value, WeightEntry


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the graph under construction."""

    id: int
    shape: tuple[int, ...]
    dtype: str


class GraphValues:
    """Collects values and ops in execution order; `GraphBuilder` says which ops there are.

    Args:
        name: Of the graph.
        tensor_dtype: float16 or float32; what flows between ops.
        weights: The package's weight table; weights are referred to by name.
    """

    def __init__(self, name: str, tensor_dtype: str, weights: Sequence[WeightEntry]) -> None:
        self._name, self._tensor_dtype = name, tensor_dtype
        self._entries = {entry.name: (index, entry) for index, entry in enumerate(weights)}
        self._weights: dict[str, Ref] = {}
        self._values: list[Value] = []
        self._ops: list[Op] = []
        self._inputs: list[int] = []

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str | None = None,
        *,
        role: Role | None = None,
        aliases: Sequence[str] = (),
    ) -> Ref:
        """Adds the next graph input; the tensor dtype unless said otherwise."""
        return self._port(name, "input", dtype or self._tensor_dtype, shape, role, aliases)

    def state(self, name: str, shape: Sequence[int], *, role: Role | None = None, aliases: Sequence[str] = ()) -> Ref:
        """Adds the next graph input that an op updates in place."""
        return self._port(name, "state", self._tensor_dtype, shape, role, aliases)

    def weight(self, name: str) -> Ref:
        """Returns a weight of the table as a value, the same one each time."""
        if name not in self._weights:
            index, entry = self._entries[name]
            self._weights[name] = self._value(name, "weight", entry.dtype, entry.shape, entry.format, index)
        return self._weights[name]

    def build(self, outputs: Mapping[Ref, Role | None], live_rows: Ref | None = None) -> Graph:
        """Returns the finished graph; `live_rows` is the input that says how many rows of axis 1 are real."""
        for ref, role in outputs.items():
            self._values[ref.id] = replace(self._values[ref.id], role=role)
        return Graph(
            name=self._name,
            values=self._values,
            ops=self._ops,
            inputs=self._inputs,
            outputs=[ref.id for ref in outputs],
            live_rows=None if live_rows is None else live_rows.id,
        )

    def _op(
        self,
        kind: str,
        name: str,
        operands: Sequence[Ref],
        shape: tuple[int, ...],
        attributes: dict[str, int | float | str] | None = None,
        dtype: str | None = None,
    ) -> Ref:
        result = self._value(name, "intermediate", dtype or self._tensor_dtype, shape)
        self._append(kind, operands, [result], attributes or {})
        return result

    def _append(
        self, kind: str, operands: Sequence[Ref], results: Sequence[Ref], attributes: dict[str, int | float | str]
    ) -> None:
        self._ops.append(Op(kind, [ref.id for ref in operands], [ref.id for ref in results], attributes))

    def _port(
        self, name: str, kind: str, dtype: str, shape: Sequence[int], role: Role | None, aliases: Sequence[str]
    ) -> Ref:
        ref = self._value(name, kind, dtype, shape)
        self._values[ref.id] = replace(self._values[ref.id], role=role, aliases=aliases)
        self._inputs.append(ref.id)
        return ref

    def _value(
        self,
        name: str,
        kind: str,
        dtype: str,
        shape: Sequence[int],
        format: str = "dense",
        weight: int | None = None,
    ) -> Ref:
        self._values.append(Value(name, kind, dtype, tuple(shape), format, weight))
        return Ref(len(self._values) - 1, tuple(shape), dtype)
