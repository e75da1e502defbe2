"""What ONNX itself says of its ops: how many operands a node may have, and which attributes it must have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from ..common.errors import CheckpointError
from .errors import shown
from .network import Node

if TYPE_CHECKING:
    import onnx

_SAY_IT_THEMSELVES = ("If", "Loop", "Scan")  # beside what else does not fit their graphs


def check_node(node: Node, attributes: Iterable[onnx.AttributeProto]) -> None:
    """Refuses a node whose meaning would be a guess. Too few operands are left to its lowering, which names them.

    Raises:
        CheckpointError: An attribute is there twice, one that the op must have is missing, or there is an operand more
            than it takes.
    """
    names = [attribute.name for attribute in attributes]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise CheckpointError(f"{node.label} has the attribute '{shown(twice)}' twice")
    if node.domain or node.op in _SAY_IT_THEMSELVES or (known := _schema(node.op, node.opset)) is None:
        return
    most, required = known
    if missing := sorted(required.difference(names)):
        raise CheckpointError(f"{node.label} has no attribute '{missing[0]}', which the op must have")
    given = max((place + 1 for place, name in enumerate(node.inputs) if name), default=0)
    if given > most:
        raise CheckpointError(f"{node.label} has {given} operands; the op takes {most} in opset {node.opset}")


@lru_cache(maxsize=4096)
def _schema(op: str, opset: int) -> tuple[int, frozenset[str]] | None:
    """The most operands and the attributes that must be there; None if ONNX does not have the op."""
    from onnx import defs

    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    return schema.max_input, frozenset(name for name, entry in schema.attributes.items() if entry.required)
