"""Graphs of a few ops, value by value."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from tcim_lite.hmm import Graph, Op, Value, WeightData, model_bytes, packed_bytes
from tcim_lite.hmm.graph import Attribute

Shape = Sequence[int]


class GraphMaker:
    """Values are known by their ids; an op gives the id of its result.

    Args:
        name: Of the graph.
        dtype: Of what is not said to have another.
    """

    def __init__(self, name: str, dtype: str = "float16") -> None:
        self.name, self.dtype = name, dtype
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.inputs: list[int] = []

    def value(self, name: str, kind: str, dtype: str, shape: Shape, **more: object) -> int:
        self.values.append(Value(name, kind, dtype, shape, **more))
        return len(self.values) - 1

    def input(self, name: str, shape: Shape, dtype: str | None = None, kind: str = "input") -> int:
        self.inputs.append(self.value(name, kind, dtype or self.dtype, shape))
        return self.inputs[-1]

    def weight(self, name: str, dtype: str, shape: Shape, format: str = "dense", at: int | None = None) -> int:
        """The next one of the weight table unless `at` says which."""
        at = sum(value.kind == "weight" for value in self.values) if at is None else at
        return self.value(name, "weight", dtype, shape, format=format, weight=at)

    def op(self, kind: str, inputs: Sequence[int], name: str, shape: Shape, **attributes: Attribute) -> int:
        result = self.value(name, "intermediate", self.dtype, shape)
        self.ops.append(Op(kind, inputs, [result], attributes))
        return result

    def several(
        self, kind: str, inputs: Sequence[int], results: dict[str, tuple[str, Shape]], **attributes: Attribute
    ) -> list[int]:
        """An op of several results: dtype and shape by name."""
        ids = [self.value(name, "intermediate", *looks) for name, looks in results.items()]
        self.ops.append(Op(kind, inputs, ids, attributes))
        return ids

    def ports(self, rows: Shape, cache: Shape) -> tuple[int, list[int], list[int]]:
        """The usual inputs of a layer: rows, lengths and caches."""
        x = self.input("input_1", rows)
        lengths = [self.input(f"{name}_length", [1], "int32") for name in ("valid", "current")]
        caches = [self.input(f"model_layers_0_self_attn_{name}cache_input", cache, kind="state") for name in "kv"]
        return x, lengths, caches

    def attention(
        self, heads: int, lengths: list[int], caches: list[int], name: str, shape: Shape, **attributes: Attribute
    ) -> int:
        """Of heads to themselves, as queries, keys and values."""
        held = [
            self.op("KVcache", [heads, cache, *lengths], called, self.values[cache].shape)
            for cache, called in zip(caches, ("keys", "values"), strict=True)
        ]
        return self.op("FlashAttention", [heads, *held, *lengths], name, shape, **attributes)

    def graph(self, *outputs: int, live_rows: int | None = None) -> Graph:
        return Graph(self.name, self.values, self.ops, self.inputs, outputs, live_rows=live_rows)

    def file(self, *outputs: int, **data: ArrayLike | bytes) -> bytes:
        """Of the graph and its weights: zeros where `data` does not have their names."""
        weights = []
        for value in [value for value in self.values if value.kind == "weight"]:
            zeros = bytes(packed_bytes(value.format, value.shape, value.dtype))
            held = data.get(value.name, zeros)
            weights.append(WeightData(value.name, value.dtype, value.format, value.shape, held))
        return model_bytes(self.graph(*outputs), weights)


def linear_file(x: Shape, dtype: str, shape: Shape, format: str, **data: ArrayLike | bytes) -> bytes:
    """y = w x: a product of float32 with a weight [N, K]."""
    maker = GraphMaker("linear", "float32")
    operands = [maker.input("x", x), maker.weight("w", dtype, shape, format)]
    return maker.file(maker.op("Linear", operands, "y", (*x[:-1], shape[-2])), **data)
