"""Builds the graph of a network: values, ops and weights, in execution order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, Op, Value, WeightData
from tcim_lite.hmm.layout import MAX_NAME_BYTES, MAX_RANK, MAX_WEIGHT_RANK

from ..common.errors import CompileError
from ..common.profiles import Profile
from ..weights.pack_stream import to_fp16
from ..weights.packing import is_quantized, pack
from ..weights.quantize import QUANTIZERS
from .errors import UnsupportedNodeError, shown
from .network import MAX_ELEMENTS

GROUP = 64
_MAX_MOVES = 64  # ops that one value is followed through


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value that the graph computes.

    Attributes:
        id: In the graph.
        shape: As ONNX has it; a scalar's is empty, in the graph it is [1].
        kind: "float" (and bool, as 0 and 1), "int" for integers, "int8", "uint8", "int16" and "uint16" for those that
            wrap there, "state" for a KV cache, or "image".
    """

    id: int
    shape: tuple[int, ...]
    kind: str = "float"


def is_integer(kind: str) -> bool:
    """Whether tensors of a kind hold integers, which are int32 in the graph."""
    return kind not in ("float", "state", "image")


def graph_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as the container has it."""
    return tuple(shape) or (1,)


def finite(weights: NDArray[Any], fmt: str) -> tuple[NDArray[Any], int]:
    """Weights for a quantised format, with infinities as the largest fp16 number of their sign, and how many they were.

    Raises:
        CompileError: One is NaN.
    """
    if np.isfinite(weights).all():
        return weights, 0
    if np.isnan(weights).any():
        raise CompileError(f"a weight is NaN, which {fmt} cannot hold; --quant float16 and float32 can")
    beyond = np.isinf(weights)
    most = np.array(np.finfo(np.float16).max, weights.dtype)
    return np.where(beyond, np.copysign(most, weights), weights), int(np.count_nonzero(beyond))


class Emitter:
    """Collects a graph. Names are made here, except those of inputs and outputs."""

    def __init__(self, name: str, profile: Profile) -> None:
        self.profile = profile
        self._name = name
        self._values: list[Value] = []
        self._ops: list[Op] = []
        self._made: dict[int, Op] = {}  # by the value that it makes
        self._weights: list[WeightData] = []
        self._inputs: list[int] = []
        self._outputs: set[int] = set()
        self._names: set[str] = set()
        self._numbers: Counter[str] = Counter()  # of names that begin alike
        self.saturated = 0
        self.clamped_codes = 0
        self.weight_bytes = 0
        self.growth = 0  # elements of folded constants, less those of their operands

    @property
    def num_ops(self) -> int:
        """How many ops there are so far."""
        return len(self._ops)

    @property
    def dtype(self) -> str:
        """Of tensors between ops."""
        return self.profile.tensor_dtype

    def dtype_of(self, kind: str) -> str:
        """The container's dtype of a kind of tensor."""
        if kind == "image":
            return "uint8"
        return "int32" if is_integer(kind) else self.dtype

    def reserve(self, names: Sequence[str]) -> None:
        """Keeps the names of inputs and outputs from being given to anything else."""
        for name in names:
            if name in self._names:
                raise UnsupportedNodeError(f"'{shown(name)}' names two inputs or outputs")
            self._names.add(name)

    def input(self, name: str, shape: Sequence[int], kind: str) -> Tensor:
        """Adds the next graph input."""
        tensor = self._value(name, "state" if kind == "state" else "input", kind, shape)
        self._inputs.append(tensor.id)
        return tensor

    def op(
        self,
        op: str,
        operands: Sequence[Tensor | int],
        shape: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        kind: str = "float",
    ) -> Tensor:
        """Adds an op with one result; lists among the attributes become texts."""
        return self.op_many(op, operands, [(tuple(shape), kind)], attributes)[0]

    def op_many(
        self,
        op: str,
        operands: Sequence[Tensor | int],
        results: Sequence[tuple[Sequence[int], str]],
        attributes: Mapping[str, Any] | None = None,
    ) -> list[Tensor]:
        """Adds an op with several results."""
        ids = [operand if isinstance(operand, int) else operand.id for operand in operands]
        made = [self._value(self._fresh(op), "intermediate", kind, shape) for shape, kind in results]
        texts = {
            key: ",".join(str(int(item)) for item in value) if isinstance(value, (list, tuple)) else value
            for key, value in (attributes or {}).items()
        }
        self._ops.append(Op(op, ids, [tensor.id for tensor in made], texts))
        self._made.update((tensor.id, self._ops[-1]) for tensor in made)
        return made

    def name_output(self, tensor: Tensor, name: str) -> None:
        """Gives a value the name of a graph output.

        Names in a graph are unique. An output that has an input's name gets one of its own and answers to both. The
        second output of a name gets one of its own too, and the first alone answers to the name.
        """
        inputs, outputs = ({self._values[id_].name for id_ in ids} for ids in (self._inputs, self._outputs))
        aliases = (name,) if name in inputs and not any(name in self._values[i].aliases for i in self._outputs) else ()
        own = self._fresh(name[:64]) if name in inputs | outputs else name
        self._values[tensor.id] = replace(self._values[tensor.id], name=own, aliases=aliases)
        self._outputs.add(tensor.id)

    def source_of(self, tensor: Tensor) -> tuple[Tensor, NDArray[np.int64]]:
        """The tensor whose elements the ops before `tensor` only moved, and which of them each element is."""
        moved: list[Op] = []
        first = tensor.id
        while len(moved) < _MAX_MOVES and (op := self._made.get(first)) is not None:
            if op.kind not in ("Reshape", "Expand", "Transpose") or self._values[op.inputs[0]].kind == "weight":
                break
            moved.append(op)
            first = op.inputs[0]
        source = Tensor(first, tuple(self._values[first].shape), tensor.kind)
        at = np.arange(math.prod(source.shape)).reshape(source.shape)
        for op in reversed(moved):
            shape = self._values[op.outputs[0]].shape
            if op.kind == "Transpose":
                at = at.transpose([int(axis) for axis in str(op.attributes["axes"]).split(",")])
            at = np.broadcast_to(at, shape) if op.kind == "Expand" else at.reshape(shape)
        return source, at.reshape(tensor.shape)

    def sums_of(self, tensor: Tensor) -> list[tuple[Tensor | None, int]]:
        """Integers in a row, each as a computed number, if it is made of one, plus a constant."""
        return self._sums(tensor.id, 0)

    def _sums(self, id_: int, depth: int) -> list[tuple[Tensor | None, int]]:
        value, op = self._values[id_], self._made.get(id_)
        count = math.prod(value.shape)
        if count > MAX_RANK:  # bounds of axes are no more
            raise CompileError(f"{count} numbers that the network computes; expected {MAX_RANK} at most")
        if value.weight is not None and value.dtype == "int32":
            return [(None, int(number)) for number in np.asarray(self._weights[value.weight].data).reshape(-1)]
        if op is not None and op.kind == "Gather" and count == math.prod(self._values[op.inputs[0]].shape) == 1:
            return self._sums(op.inputs[0], depth + 1)  # of the only element, as torch's newer exporter writes `item()`
        parts: list[list[tuple[Tensor | None, int]]] = []
        if op is not None and op.kind in ("Reshape", "Expand", "Concat", "Add", "Sub") and depth < _MAX_MOVES:
            parts = [self._sums(operand, depth + 1) for operand in op.inputs]
            if op.kind == "Concat" and len(value.shape) == 1:
                return [term for part in parts for term in part]
            if op.kind in ("Reshape", "Expand") and count in (1, len(parts[0])):
                return parts[0]
            if op.kind in ("Add", "Sub") and count == 1:
                (one, first), (other, second) = parts[0][0], parts[1][0]
                if other is None:
                    return [(one, first + second if op.kind == "Add" else first - second)]
                if one is None and op.kind == "Add":
                    return [(other, first + second)]
        if count == 1:
            return [(Tensor(id_, (1,), "int"), 0)]
        raise CompileError("numbers that the network computes together; expected them one by one")

    def compared(self, tensor: Tensor) -> Tensor | None:
        """The integers 0 and 1 that truths were made of, if they were."""
        op = self._made.get(tensor.id)
        if op is None or op.kind != "Cast":
            return None
        before = self._made.get(op.inputs[0])
        if before is None or before.kind not in ("Equal", "Less"):
            return None
        return Tensor(op.inputs[0], tensor.shape, "int")

    def is_input(self, tensor: Tensor) -> bool:
        """Whether a value is a graph input."""
        return self._values[tensor.id].kind in ("input", "state")

    def is_output(self, tensor: Tensor) -> bool:
        """Whether a value has the name of a graph output already."""
        return tensor.id in self._outputs

    def weight(self, array: NDArray[Any], dtype: str | None = None, name: str = "w") -> int:
        """Adds a dense weight, of the tensors' dtype unless said otherwise, and returns its value."""
        dtype = dtype or self.dtype
        data = self._narrowed(np.ascontiguousarray(array), dtype)
        shape = graph_shape(data.shape)
        while len(shape) > MAX_WEIGHT_RANK and shape[0] == 1:
            shape = shape[1:]
        if len(shape) > MAX_WEIGHT_RANK:
            raise CompileError(
                f"a constant of the shape {list(shape)}: the container holds rank {MAX_WEIGHT_RANK} at most"
            )
        return self._weight(WeightData(self._fresh(name), dtype, "dense", shape, data))

    def matrix(self, array: NDArray[Any], name: str = "w") -> int:
        """Adds a packed weight [N, K] in the format of the profile; K is padded to whole groups."""
        fmt = self.profile.body_format
        if not is_quantized(fmt):
            return self.float_matrix(array, name)
        numbers, saturated = finite(array.astype(np.float32), fmt)
        self.saturated += saturated
        padded = np.pad(numbers, ((0, 0), (0, -array.shape[1] % GROUP)))
        return self.packed_matrix(fmt, *QUANTIZERS[fmt](padded), name)

    def float_matrix(self, array: NDArray[Any], name: str = "w") -> int:
        """Adds a packed weight [N, K] of the tensors' dtype."""
        fmt = "linear_f16" if self.dtype == "float16" else "linear_f32"
        data = pack(fmt, self._narrowed(np.ascontiguousarray(array), self.dtype))
        return self._weight(WeightData(self._fresh(name), self.dtype, fmt, array.shape, data))

    def packed_matrix(self, fmt: str, codes: NDArray[Any], scales: NDArray[Any], name: str = "w") -> int:
        """Adds a quantised weight from its codes [N, K] and scales [N, K / 64], as `pack` takes them."""
        data = pack(fmt, codes, scales)
        return self._weight(WeightData(self._fresh(name), "uint8", fmt, codes.shape, data))

    def build(self, outputs: Sequence[Tensor]) -> tuple[Graph, list[WeightData]]:
        """The finished graph and its weights."""
        return Graph(
            self._name, self._values, self._ops, self._inputs, [tensor.id for tensor in outputs]
        ), self._weights

    def _narrowed(self, array: NDArray[Any], dtype: str) -> NDArray[Any]:
        if dtype == "int32":
            if array.dtype.kind == "u":
                return np.minimum(array.astype(np.uint64), 2**31 - 1).astype(np.int32)
            return np.clip(array.astype(np.int64), -(2**31), 2**31 - 1).astype(np.int32)
        values = array.astype(np.float32)
        if dtype == "float32":
            return values
        half, saturated = to_fp16(values)
        self.saturated += saturated
        return half

    def _weight(self, data: WeightData) -> int:
        self._weights.append(data)
        self.weight_bytes += np.asarray(data.data).nbytes
        self._values.append(Value(data.name, "weight", data.dtype, data.shape, data.format, len(self._weights) - 1))
        return len(self._values) - 1

    def _value(self, name: str, value_kind: str, kind: str, shape: Sequence[int]) -> Tensor:
        shape = tuple(int(extent) for extent in shape)
        if len(shape) > MAX_RANK:
            raise CompileError(f"a tensor of the shape {list(shape)}: the limit is rank {MAX_RANK}")
        if math.prod(shape) > MAX_ELEMENTS:
            raise CompileError(f"a tensor of the shape {list(shape)}: the limit is 2^33 elements")
        self._values.append(Value(name, value_kind, self.dtype_of(kind), graph_shape(shape)))
        return Tensor(len(self._values) - 1, shape, kind)

    def _fresh(self, base: str) -> str:
        """A new name, numbered by its base: an op that only one format needs, as Pad, renames none but its kind."""
        name = f"{base}_{self._numbers[base]}"
        self._numbers[base] += 1
        while name in self._names or len(name.encode()) > MAX_NAME_BYTES:
            name = f"_{name}"[:MAX_NAME_BYTES]
        self._names.add(name)
        return name
