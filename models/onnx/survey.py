"""Shapes and constants of a network, found by lowering it without its weights; then what they make needless goes.

Patterns of nodes (`fuse`) can only be told apart by shapes, axes and constants, and exporters write many constants as
nodes. The lowerings know them all, so they are asked, and there is no second set of shape rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import WeightData
from tcim_lite.hmm.layout import MAX_RANK

from ..common.profiles import Profile, profile_for
from ..weights.packing import is_quantized
from .control import ControlFlow
from .emit import Emitter, Tensor, finite
from .errors import UnsupportedNodeError
from .lower import classical, microsoft
from .lowering import INPUT_KINDS, results_of, why_not
from .network import OWN, Network, Node
from .table import Operand, Parts

_MOST_COMPARED = 64  # elements of a constant that may be told to be equal to another


@dataclass(slots=True)
class Survey:
    """What is known of a network.

    Attributes:
        values: By name: constants, and what nodes make, as far as it is known.
        refused: Nodes that cannot be lowered, by `id`, with the reason; "" where the op is unknown. What only reads
            the results of such nodes is not among them.
    """

    values: dict[str, Operand]
    refused: dict[int, str] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a value."""
        value = self.values.get(name)
        return None if value is None or isinstance(value, Parts) else tuple(value.shape)


class ShapesOnly(Emitter):
    """Keeps no weights but a few integers."""

    def matrix(self, array: NDArray[Any], name: str = "w") -> int:
        return self._weight(WeightData(self._fresh(name), self.dtype, "dense", array.shape, np.zeros(0)))

    def _narrowed(self, array: NDArray[Any], dtype: str) -> NDArray[Any]:
        if dtype == "int32" and array.size <= MAX_RANK:  # bounds of a Slice are told by what is added to them
            return super()._narrowed(array, dtype)
        return np.broadcast_to(np.zeros((), np.int8), array.shape)


class WeightsRead(ShapesOnly):
    """Also refuses weights that the profile cannot hold, for which it reads them."""

    def matrix(self, array: NDArray[Any], name: str = "w") -> int:
        if is_quantized(self.profile.body_format):
            finite(array, self.profile.body_format)
        return super().matrix(array, name)


def survey(
    network: Network, profile: Profile | None = None, emitter: Callable[[str, Profile], Emitter] = ShapesOnly
) -> Survey:
    """Goes through the nodes; those of an If or Loop take its place where a constant says which.

    The profile, float32 if there is none, says which casts change something.

    Nodes of other domains are left out, with all that is made from their results.
    """
    emit = emitter("survey", profile or profile_for("float32"))
    found = Survey(dict(network.constants))
    for port in network.inputs:
        if (kind := INPUT_KINDS.get(port.dtype)) is not None:
            found.values[port.name] = emit.input(port.name, port.shape, kind)
    flow, left, done = ControlFlow(network, found.values), list(network.nodes)[::-1], []
    while left:
        node = left.pop()
        try:
            unfolded = flow.unfolded(node)
        except UnsupportedNodeError as error:
            found.refused[id(node)] = str(error).removeprefix(f"{node.label}: ")
            done.append(node)
            continue
        if unfolded is not None:
            left += unfolded[::-1]
            continue
        done.append(node)
        reason = why_not(node)
        if node.domain not in ("", microsoft.DOMAIN, classical.DOMAIN, OWN) or not all(
            not name or name in found.values for name in node.inputs
        ):
            if reason is not None:
                found.refused[id(node)] = reason
            continue
        try:
            results = results_of(node, found.values, emit)
        except UnsupportedNodeError as error:
            said = str(error).removeprefix(f"{node.label}: ")
            found.refused[id(node)] = said if reason is None else reason
            continue
        for name, result in zip(node.outputs, results, strict=False):
            if name and result is not None:
                found.values[name] = result
    network.nodes, network.growth = done, emit.growth
    return found


def simplify(network: Network, found: Survey) -> None:
    """Nodes with constant results become constants; nodes that change nothing, and second ones, go."""
    kept: list[Node] = []
    same: dict[str, str] = {}  # names that stand for another
    first: dict[Any, Node] = {}
    for node in network.nodes:
        node.inputs = [same.get(name, name) for name in node.inputs]
        wanted = [name for name in node.outputs if name]
        if all(isinstance(found.values.get(name), np.ndarray) for name in wanted):
            network.constants.update((name, np.asarray(found.values[name])) for name in wanted)
            continue
        for name in wanted:
            source = next((read for read in node.inputs if _is_same(read, name, found)), None)
            if source is not None:
                same[name] = source
        if all(name in same for name in wanted) and not set(wanted) & set(network.outputs):
            continue
        twin = first.setdefault(_key(node, network.constants), node)
        if twin is not node and not set(wanted) & set(network.outputs):
            same.update(zip(node.outputs, twin.outputs, strict=True))
            continue
        kept.append(node)
    network.nodes = kept


def drop_unused(network: Network) -> None:
    """Nodes that no output needs go."""
    needed, kept = set(network.outputs), []
    for node in reversed(network.nodes):
        if needed.intersection(filter(None, node.outputs)):
            needed.update(node.inputs)
            kept.append(node)
    network.nodes = kept[::-1]


def _is_same(read: str, made: str, found: Survey) -> bool:
    """Whether a node passes a value on."""
    one, other = found.values.get(read), found.values.get(made)
    return isinstance(one, Tensor) and isinstance(other, Tensor) and one == other


def _key(node: Node, constants: Mapping[str, NDArray[Any]]) -> Any:
    """Equal for nodes that compute the same; what has attributes or results that cannot be compared equals nothing."""
    if node.domain or any(not _is_plain(value) for value in node.attributes.values()):
        return id(node)
    reads = tuple(_content(name, constants) for name in node.inputs)
    given = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
    return node.op, reads, given, tuple(bool(name) for name in node.outputs)


def _content(name: str, constants: Mapping[str, NDArray[Any]]) -> Any:
    array = constants.get(name)
    if array is None or array.size > _MOST_COMPARED or array.dtype.kind not in "biuf":
        return name
    return array.dtype.str, array.shape, array.tobytes()


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str)) or (
        isinstance(value, Sequence) and all(isinstance(item, (int, float, str)) for item in value)
    )
