"""Functions that an ONNX file defines for itself, as their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..common.errors import CheckpointError
from .errors import shown

if TYPE_CHECKING:
    import onnx

_MAX_DEPTH = 64  # of functions that call functions


def inlined(model: onnx.ModelProto, most: int) -> onnx.ModelProto:
    """The model with the nodes of its functions instead of calls.

    Raises:
        CheckpointError: A function calls itself, or the nodes would be more than `most`.
    """
    if not model.functions:
        return model
    from onnx import inliner

    bodies = {(body.domain, body.name, body.overload): body for body in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}

    def size(nodes: Iterator[onnx.NodeProto], depth: int) -> int:
        if depth > _MAX_DEPTH:
            raise CheckpointError(f"functions call each other to a depth of more than {_MAX_DEPTH}, or in a circle")
        count = 0
        for node in nodes:
            called = (node.domain, node.op_type, node.overload)
            if called in bodies and called not in sizes:
                sizes[called] = size(_with_inner(bodies[called].node), depth + 1)
            count += sizes.get(called, 1)
            if count > most:
                raise CheckpointError(f"the graph has more than {most} nodes with those of its functions")
        return count

    size(_with_inner(model.graph.node), 0)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the checker's own
        raise CheckpointError(f"the functions of the file: {shown(' '.join(str(error).split()))}") from None


def _with_inner(nodes: list[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs among their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _with_inner(graph.node)
