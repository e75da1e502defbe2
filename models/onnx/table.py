"""(domain, op) -> lowering. A lowering takes a `Call` and returns the node's results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.layout import MAX_WEIGHT_RANK

from .emit import Emitter, Tensor
from .errors import shown
from .network import MAX_FOLDED, MAX_GROWTH, Node, is_float

Constant = NDArray[Any]
Operand = Tensor | Constant


@dataclass(frozen=True, slots=True)
class Parts:
    """A sequence of tensors, as a value of a network."""

    items: Sequence[Operand]


Lowering = Callable[["Call"], "Operand | Parts | Sequence[Operand | None]"]
_Function = TypeVar("_Function", bound=Lowering)

_MAX_LIST = 1 << 16
_MAX_INDICES = 1 << 20  # no axis of a real network comes near, and a file may ask for any extent

LOWERINGS: dict[tuple[str, str], Lowering] = {}


def within_float32(value: float) -> float:
    """An infinity as the largest finite number of its sign: ops hold finite numbers only."""
    limit = float(np.finfo(np.float32).max)
    return min(max(value, -limit), limit) if not math.isnan(value) else value


def lowers(*ops: str, domain: str = "") -> Callable[[_Function], _Function]:
    """Enters a function into the table for one or more ops."""

    def enter(function: _Function) -> _Function:
        for op in ops:
            assert (domain, op) not in LOWERINGS, op
            LOWERINGS[domain, op] = function
        return function

    return enter


def constant_kind(array: Constant) -> str:
    """The kind of the tensor that a constant becomes."""
    if is_float(array) or array.dtype == bool:
        return "float"
    return array.dtype.name if array.dtype.itemsize < 4 else "int"


def along(numbers: Constant, codes: Constant, axis: int) -> Constant | None:
    """One number, or one for each place of an axis of `codes`, in a shape that repeats along the others; else None."""
    if numbers.size == 1:
        return numbers.reshape(())
    shape = [1] * codes.ndim
    shape[axis] = codes.shape[axis]
    return numbers.reshape(shape) if numbers.size == shape[axis] else None


def _has_more_axes(operand: Constant) -> bool:
    """Whether a constant has more axes than a weight, without those of 1 before the others."""
    return operand.ndim > MAX_WEIGHT_RANK and any(extent > 1 for extent in operand.shape[:-MAX_WEIGHT_RANK])


def constant_dtype(kind: str) -> Any:
    """Of a constant that becomes a tensor of a kind."""
    return {"float": np.float32, "int": np.int64}.get(kind, kind)


class Call:
    """A node to lower: its operands as tensors or constants, its attributes, and where ops go."""

    def __init__(self, node: Node, operands: Sequence[Operand | None], emit: Emitter) -> None:
        self.node, self.emit, self._operands = node, emit, operands

    @property
    def count(self) -> int:
        """How many operands are given or left out before the last given one."""
        return len(self._operands)

    def get(self, index: int) -> Operand | None:
        """An operand, or None where it is left out."""
        return self._operands[index] if index < len(self._operands) else None

    def has(self, index: int) -> bool:
        """Whether an optional operand is given."""
        return self.get(index) is not None

    def operand(self, index: int) -> Operand:
        """An operand that must be there, and is no KV cache."""
        operand = self.get(index)
        if operand is None:
            raise self.node.unsupported(f"operand {index} is missing")
        if isinstance(operand, Parts):
            raise self.node.unsupported(f"operand {index} is a sequence of tensors; expected a tensor")
        if isinstance(operand, Tensor) and operand.kind == "state":
            raise self.node.unsupported(f"operand {index} is a KV cache, which only KVcache and FlashAttention read")
        if not isinstance(operand, Tensor) and operand.size > MAX_FOLDED and not any(operand.strides):
            return self._repeated(operand)
        return operand

    def _repeated(self, operand: Constant) -> Tensor:
        """One element that fills a large shape: computed by the network instead of stored in the package."""
        kind = constant_kind(operand)
        weight = self.emit.weight(np.asarray(operand.flat[0]).reshape(1), self.emit.dtype_of(kind))
        return self.op("Expand", [weight], operand.shape, result=kind)

    def parts(self, index: int) -> Parts:
        """An operand that is a sequence."""
        operand: Any = self.get(index)
        if not isinstance(operand, Parts):
            raise self.node.unsupported(f"operand {index} is no sequence of tensors")
        return operand

    def state(self, index: int) -> Tensor:
        """An operand that is a KV cache, as the input or updated."""
        operand = self.get(index)
        if not isinstance(operand, Tensor) or operand.kind != "state":
            raise self.node.unsupported(f"operand {index} is no KV cache: expected an input or KVcache's result")
        return operand

    def tensor(self, index: int) -> Tensor:
        """A computed operand; a constant becomes one."""
        return self.as_tensor(self.operand(index))

    def floats(self, index: int) -> Tensor:
        """A computed operand of floating point numbers."""
        return self.as_floats(self.operand(index), f"operand {index}")

    def as_floats(self, operand: Operand, what: str = "an operand") -> Tensor:
        """As `as_tensor`, of floating point numbers."""
        tensor = self.as_tensor(operand)
        if tensor.kind != "float":
            raise self.node.unsupported(
                f"{what} holds integers; {shown(self.node.op)} takes floating point numbers only"
            )
        return tensor

    def as_tensor(self, operand: Operand) -> Tensor:
        """A constant as a value that ops may read as they read results."""
        if isinstance(operand, Tensor):
            return operand
        self._check_size(operand)
        kind = constant_kind(operand)
        shape = operand.shape or (1,)
        if _has_more_axes(operand):
            return self.reshape(self.as_tensor(operand.reshape(-1)), shape)
        weight = self.emit.weight(operand, self.emit.dtype_of(kind))
        return Tensor(self.emit.op("Expand", [weight], shape, kind=kind).id, operand.shape, kind)

    def source(self, operand: Operand) -> int:
        """The value of an operand that may be a weight."""
        if isinstance(operand, Tensor) or _has_more_axes(operand):
            return self.as_tensor(operand).id
        self._check_size(operand)
        kind = constant_kind(operand)
        return self.emit.weight(operand, self.emit.dtype_of(kind))

    def constant(self, index: int, what: str) -> Constant:
        """An operand that must be a constant."""
        operand = self.operand(index)
        if isinstance(operand, Tensor):
            raise self.node.unsupported(f"{what} is computed by the network; only constants are supported")
        return operand

    def ints(self, index: int, what: str) -> list[int]:
        """A constant operand as a list of whole numbers: one or two for each axis, or the sizes of a Split."""
        array = np.asarray(self.constant(index, what)).reshape(-1)
        if array.size > _MAX_LIST:
            raise self.node.unsupported(f"{what}: {array.size} numbers, the limit is {_MAX_LIST}")
        if array.dtype.kind not in "iub":
            raise self.node.unsupported(f"{what}: {array.dtype.name}, expected whole numbers")
        return [int(value) for value in array]

    def sums(self, index: int, what: str) -> list[tuple[Tensor | None, int]]:
        """An operand of a few whole numbers: for each the computed number that it is a sum of, and the constant."""
        operand = self.operand(index)
        if isinstance(operand, Tensor):
            return self.emit.sums_of(operand)
        return [(None, value) for value in self.ints(index, what)]

    def scalar(self, index: int, what: str) -> float:
        """A constant operand of one element."""
        array = np.asarray(self.constant(index, what)).reshape(-1)
        if array.size != 1:
            raise self.node.unsupported(f"{what} has {array.size} elements, expected 1")
        return float(array[0])

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.node.attributes.get(name, default)

    def int_attr(self, name: str, default: int) -> int:
        """An attribute that is a whole number."""
        value = self.attr(name, default)
        if not isinstance(value, int):
            raise self.node.unsupported(f"attribute '{name}' is no whole number")
        return value

    def places(self, count: int) -> int:
        """A number of elements for which the lowering makes a table."""
        if not 0 < count <= _MAX_INDICES:
            raise self.node.unsupported(f"an axis of {count} elements; expected 1 to {_MAX_INDICES}")
        self.stores(count)
        return count

    def stores(self, count: int) -> None:
        """Counts the elements of a table that the lowering makes, beside those of the network's other ones."""
        self.emit.growth += count
        if self.emit.growth > MAX_GROWTH:
            raise self.node.unsupported(f"with its table, those of the network have more than {MAX_GROWTH} elements")

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= value < max(rank, 1):
            raise self.node.unsupported(f"axis {value} of a tensor of rank {rank}")
        return value % rank if rank else 0

    def op(
        self,
        kind: str,
        operands: Sequence[Tensor | int],
        shape: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        result: str = "float",
    ) -> Tensor:
        """Emits an op."""
        for extent in shape:
            if extent < 1:
                raise self.node.unsupported(f"a result of the shape {list(shape)}: empty tensors are not supported")
        for name, value in (attributes or {}).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise self.node.unsupported(f"{name} is {value}, expected a finite number")
        return self.emit.op(kind, operands, shape, attributes, result)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements in another shape."""
        if tuple(shape) == x.shape:
            return x
        return self.op("Reshape", [x], shape, result=x.kind)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Another order of the axes; one that moves no element is a Reshape."""
        shape = [x.shape[axis] for axis in axes]
        if list(axes) == list(range(len(axes))):
            return x
        if [axis for axis in axes if x.shape[axis] > 1] == [axis for axis in range(len(axes)) if x.shape[axis] > 1]:
            return self.reshape(x, shape)
        return self.op("Transpose", [x], shape, {"axes": list(axes)}, x.kind)

    def _check_size(self, operand: Constant) -> None:
        if operand.size == 0:
            raise self.node.unsupported("an operand is empty, which is not supported")
        if operand.dtype.kind in "OSUcM":
            raise self.node.unsupported(f"an operand of {operand.dtype.name}, which is not supported")
