"""Who makes and who reads each value, and how a pattern is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.profiles import Profile
from ..emit import Tensor
from ..network import Network, Node, is_float
from ..survey import Survey


@dataclass(frozen=True, slots=True)
class Fusion:
    """What takes the place of a node.

    Attributes:
        nodes: Instead of it, in order; the last makes its outputs.
        absorbed: Nodes before it that go, for nobody else may read them.
        constants: New ones, by name.
        changed: Other nodes that are exchanged; they make the same names.
    """

    nodes: Sequence[Node]
    absorbed: Sequence[Node] = ()
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    changed: Sequence[tuple[Node, Node]] = ()


Pattern = Callable[[Node, "View"], Iterator[Fusion]]


class View:
    """A network to match patterns in. Nodes of other domains, or that are not sound, are never part of one."""

    def __init__(self, network: Network, found: Survey, profile: Profile | None = None) -> None:
        self.constants = network.constants
        self.is_half = profile is not None and profile.tensor_dtype == "float16"
        self._outputs, self._found = set(network.outputs), found
        self._slots = [[node] for node in network.nodes]
        self._slot = {id(node): slot for slot, node in zip(self._slots, network.nodes, strict=True)}
        self._producer: dict[str, Node] = {}
        self._readers: dict[str, list[Node]] = {}
        self._names = {*network.constants, *(port.name for port in network.inputs)}
        self._seen: list[Node] = []  # keeps the ids of nodes that went from being given again
        for node in network.nodes:
            self._enter(node)

    def nodes(self) -> list[Node]:
        """The nodes as they are now, in execution order."""
        return [node for slot in self._slots for node in slot]

    def has(self, node: Node) -> bool:
        """Whether no pattern took the node yet."""
        return id(node) in self._slot

    def is_sound(self, node: Node) -> bool:
        """Whether a node has as many operands as its op, which a file need not heed; patterns take them for granted."""
        from onnx import defs

        if node.domain:
            return True
        try:
            schema = defs.get_schema(node.op)  # the newest: patterns make ops that the file's opset may lack
        except defs.SchemaError:
            return False
        return schema.min_input <= len(node.inputs) <= schema.max_input and any(node.outputs[:1])

    def made_by(self, name: str, *ops: str, domain: str = "") -> Node | None:
        """The node that makes `name`, if it is one of these ops."""
        node = self._producer.get(name)
        return node if node is not None and node.op in ops and node.domain == domain else None

    def producer(self, name: str) -> Node | None:
        """The node that makes `name`."""
        return self._producer.get(name)

    def readers(self, name: str) -> list[Node]:
        """The nodes that read `name`, each once."""
        return self._readers.get(name, [])

    def is_output(self, name: str) -> bool:
        """Whether `name` is an output of the network."""
        return name in self._outputs

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a value, where it is known."""
        return self._found.shape(name)

    def is_integer(self, name: str) -> bool:
        """Whether a value is known to be of integers of 32 bits or more."""
        value = self._found.values.get(name)
        return isinstance(value, Tensor) and value.kind == "int"

    def number(self, name: str) -> float | None:
        """The value of a constant of one element."""
        array = self.constants.get(name)
        if array is None or array.size != 1 or not (is_float(array) or array.dtype.kind in "iu"):
            return None
        return float(array.reshape(-1)[0])

    def is_number(self, name: str, wanted: float) -> bool:
        """Whether a constant of one element is a number, as its type rounds it."""
        return near(self.number(name), wanted, self.unit(name))

    def unit(self, name: str) -> float:
        """The largest relative error of a constant of its type."""
        array = self.constants[name] if name in self.constants else np.zeros((), np.float32)
        return {2: 2.0**-8 if array.dtype.name == "bfloat16" else 2.0**-11}.get(array.dtype.itemsize, 2.0**-24)

    def apply(self, node: Node, fusion: Fusion) -> bool:
        """Replaces `node`, unless somebody else reads what would go."""
        changed = [old for old, _ in fusion.changed]
        absorbed = {id(part): part for part in fusion.absorbed}.values()
        inside = {id(part) for part in (node, *absorbed, *changed)}
        if not all(map(self.has, (*absorbed, *changed))):
            return False
        for part in absorbed:
            for name in filter(None, part.outputs):
                if name in self._outputs or any(id(reader) not in inside for reader in self.readers(name)):
                    return False
        self.constants.update(fusion.constants)
        self._exchange(node, fusion.nodes)
        for part in absorbed:
            self._exchange(part, [])
        for old, new in fusion.changed:
            self._exchange(old, [new])
        return True

    def fresh(self, base: str) -> str:
        """A name that nothing has."""
        name = base
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def _exchange(self, old: Node, new: Sequence[Node]) -> None:
        for name in set(filter(None, old.inputs)):
            self._readers[name] = [reader for reader in self._readers[name] if reader is not old]
        for name in filter(None, old.outputs):
            if self._producer.get(name) is old:
                del self._producer[name]
        slot = self._slot.pop(id(old))
        at = next(i for i, node in enumerate(slot) if node is old)
        slot[at : at + 1] = new
        for node in new:
            self._slot[id(node)] = slot
            self._enter(node)

    def _enter(self, node: Node) -> None:
        self._seen.append(node)
        self._names.update(node.outputs)
        for name in filter(None, node.outputs if self.is_sound(node) else ()):
            self._producer[name] = node
        for name in set(filter(None, node.inputs)):
            self._readers.setdefault(name, []).append(node)


def turn_of(node: Node, rank: int) -> list[int]:
    """The order of axes of a Transpose, as the file says: it may be none."""
    return list(node.attributes.get("perm", range(rank)[::-1]))


def near(value: float | None, wanted: float, unit: float) -> bool:
    """Whether a value is `wanted`, up to some roundings of the relative size `unit`."""
    return value is not None and abs(value - wanted) <= 4 * unit * abs(wanted)


def as_vector(array: NDArray[Any], shape: Sequence[int]) -> NDArray[Any] | None:
    """A constant that repeats along all axes before the last ones, which are `shape`; None: it does not."""
    extents = tuple(array.shape)
    while len(extents) > len(shape) and extents[0] == 1:
        extents = extents[1:]
    return array.reshape(extents) if extents == tuple(shape) else None
