"""Updates of rows along an axis, as caches of keys and values get them: no turning of the whole cache, and no elements.

torch's `index_copy` and assignments to `cache[:, :, places]` become a ScatterND between two Transposes, or a
ScatterElements whose places are repeated for all elements of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..network import OWN, Node
from .view import Fusion, View, turn_of


def turned_rows(node: Node, view: View) -> Iterator[Fusion]:
    """A ScatterND of whole rows between a Transpose and the one that turns back: ScatterRows of the axis."""
    if node.op != "Transpose" or node.domain:
        return
    scatter = view.made_by(node.inputs[0], "ScatterND")
    before = view.made_by(scatter.inputs[0], "Transpose") if scatter is not None else None
    if scatter is None or before is None or not _replaces(scatter, view):
        return
    x, places, given = map(view.shape, (before.inputs[0], *scatter.inputs[1:]))
    if x is None:
        return
    rank = len(x)
    there, back = (turn_of(part, rank) for part in (before, node))
    if sorted(there) != list(range(rank)) or [there[axis] for axis in back] != list(range(rank)):
        return
    if places is None or len(places) != 2 or places[1] != 1:
        return
    if given != (places[0], *(x[axis] for axis in there[1:])):
        return
    updates = view.fresh(f"{scatter.outputs[0]}/updates")
    turned = replace(node, inputs=[scatter.inputs[2]], outputs=[updates])
    inputs = [before.inputs[0], scatter.inputs[1], updates]
    yield Fusion([turned, _rows(scatter, inputs, node.outputs, there[0])], [scatter])


def repeated_places(node: Node, view: View) -> Iterator[Fusion]:
    """A ScatterElements whose places are one row, repeated along all other axes: ScatterRows."""
    if node.op != "ScatterElements" or node.domain or not _replaces(node, view):
        return
    repeated, x = view.made_by(node.inputs[1], "Expand"), view.shape(node.inputs[0])
    if repeated is None or x is None:
        return
    axis = node.attributes.get("axis", 0)
    if not -len(x) <= axis < len(x):
        return
    axis %= len(x)
    places, whole = view.shape(repeated.inputs[0]), view.shape(node.inputs[1])
    if places is None or whole is None or view.shape(node.inputs[2]) != whole:
        return
    others = [i for i in range(len(x)) if i != axis]
    own = (1,) * (len(x) - len(places)) + places
    if not len(own) == len(whole) == len(x) or own[axis] != whole[axis]:
        return
    if all(own[i] == 1 and whole[i] == x[i] for i in others):
        yield Fusion([_rows(node, [node.inputs[0], repeated.inputs[0], node.inputs[2]], node.outputs, axis)])


def _replaces(scatter: Node, view: View) -> bool:
    """Whether a node puts its updates at computed places; what is at constant ones, its own lowering knows better."""
    return scatter.attributes.get("reduction", "none") == "none" and scatter.inputs[1] not in view.constants


def _rows(scatter: Node, inputs: list[str], outputs: list[str], axis: int) -> Node:
    return replace(scatter, op="ScatterRows", domain=OWN, inputs=inputs, outputs=outputs, attributes={"axis": axis})
