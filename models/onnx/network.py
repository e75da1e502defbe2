"""An ONNX model as this compiler sees it: nodes in execution order, constants, inputs of fixed shape, outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UnsupportedNodeError, shown

OWN = "tcim_lite"  # the domain of nodes that only this compiler makes
_MADE_OF = {"Chosen": "If or Loop", "ScatterRows": "ScatterND or ScatterElements"}  # what messages call such a node
MAX_ELEMENTS = 1 << 33  # of one tensor; a file that asks for more is broken or hostile
MAX_FOLDED = 1 << 26  # of a constant that the compiler makes; what is larger would bloat the package
MAX_GROWTH = 1 << 28  # of all constants that it makes together, beyond those that they are made from


@dataclass(slots=True)
class Node:
    """One operation.

    Attributes:
        op: Its type, such as "Conv".
        domain: "" for ONNX's own.
        inputs: Names of values; "" where an optional one is left out.
        outputs: Names of values; "" where an optional one is not wanted.
        attributes: By name; numbers, strings, lists of them, arrays.
        name: What messages call it.
        opset: The version of its domain.
    """

    op: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    attributes: Mapping[str, Any]
    name: str
    opset: int

    @property
    def label(self) -> str:
        """Names the node in messages."""
        kind = shown(self.kind)
        return f"node '{shown(self.name)}' ({kind})" if self.name else f"node ({kind}) that makes '{self.first_output}'"

    @property
    def kind(self) -> str:
        """What messages call its op."""
        if self.domain == OWN and self.op in _MADE_OF:
            return _MADE_OF[self.op]
        return f"{self.domain}.{self.op}" if self.domain else self.op

    @property
    def first_output(self) -> str:
        """The name of its first output, for messages."""
        return shown(next((name for name in self.outputs if name), "nothing"))

    def unsupported(self, reason: str) -> UnsupportedNodeError:
        """The error that says why the node cannot be lowered."""
        return UnsupportedNodeError(f"{self.label}: {shown(reason, 400)}")


@dataclass(frozen=True, slots=True)
class Port:
    """A graph input: its name, shape and element type (numpy's spelling)."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(slots=True)
class Network:
    """A model.

    Attributes:
        nodes: In execution order.
        constants: Initialisers by name.
        inputs: In the order of the file.
        outputs: Names, in the order of the file.
        opset: Of ONNX's own domain.
    """

    name: str
    nodes: list[Node]
    constants: dict[str, NDArray[Any]]
    inputs: Sequence[Port]
    outputs: Sequence[str]
    opset: int
    foreign: dict[str, int] = field(default_factory=dict)  # the other domains it names, with their versions
    growth: int = 0  # elements of the constants that were made so far of constants, less those of their operands


def fresh_name(name: str, names: set[str]) -> str:
    """Returns `name`, longer if `names` has it, and adds it to them."""
    while name in names:
        name += "_"
    names.add(name)
    return name


def is_float(array: NDArray[Any]) -> bool:
    """Whether an array holds floating point numbers, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype.name in ("bfloat16",) or np.issubdtype(array.dtype, np.floating)
