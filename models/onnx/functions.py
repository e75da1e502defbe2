"""Functions that an ONNX file defines for itself, and ops that ONNX defines by others, as their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..common.errors import CheckpointError
from .errors import shown
from .network import Node

if TYPE_CHECKING:
    import onnx

_MAX_DEPTH = 64  # of functions that call functions
# Ops of ONNX without a lowering, which its own definition computes.
WRITTEN_OUT = ("Attention", "CenterCropPad", "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SoftmaxCrossEntropyLoss")


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
                sizes[called] = size(with_inner(bodies[called].node), depth + 1)
            count += sizes.get(called, 1)
            if count > most:
                raise CheckpointError(f"the graph has more than {most} nodes with those of its functions")
        return count

    size(with_inner(model.graph.node), 0)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the checker's own
        raise CheckpointError(f"the functions of the file: {shown(' '.join(str(error).split()))}") from None


def written_out(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with the nodes by which ONNX defines `WRITTEN_OUT`.

    Raises:
        UnsupportedNodeError: A node has attributes that its definition of that opset does not know, or the types of its
            operands cannot be inferred, or it leaves out an operand before another.
    """
    nodes = [proto for proto in model.graph.node if proto.domain in ("", "ai.onnx") and proto.op_type in WRITTEN_OUT]
    if not nodes:
        return model
    import onnx
    from onnx import helper, inliner

    for proto in nodes:
        node = Node(proto.op_type, "", list(proto.input), list(proto.output), {}, proto.name, opset)
        try:
            known = onnx.defs.get_schema(proto.op_type, opset, "").attributes
        except onnx.defs.SchemaError:
            raise node.unsupported(f"opset {opset} has no such op") from None
        if unknown := sorted({attribute.name for attribute in proto.attribute} - set(known)):
            raise node.unsupported(f"opset {opset} does not know its attribute '{shown(unknown[0])}'")
        if "" in proto.input:
            raise node.unsupported("it leaves out an operand before another, which is not supported")
    named = {info.name for info in model.graph.input}
    weights = [tensor for tensor in model.graph.initializer if tensor.name not in named]
    # The inliner knows the types of inputs only.
    added = [helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in weights]
    try:
        model.graph.input.extend(added)
        # All of them, because the nodes of one may be others.
        return inliner.inline_selected_functions(model, [("", op) for op in WRITTEN_OUT], inline_schema_functions=True)
    except Exception as error:
        reason = shown(" ".join(str(error).split()))
        raise node.unsupported(f"ONNX cannot write it out in other ops: {reason}") from None
    finally:
        if added:
            del model.graph.input[-len(added) :]


def with_inner(nodes: list[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs among their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from with_inner(graph.node)
