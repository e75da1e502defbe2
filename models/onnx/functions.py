"""Functions that an ONNX file defines for itself, and ops that ONNX defines by others, as their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..common.errors import CheckpointError
from .errors import UnsupportedNodeError, shown
from .network import Node

if TYPE_CHECKING:
    import onnx

_MAX_DEPTH = 64  # of functions that call functions
# Ops of ONNX without a lowering, which its own definition computes.
WRITTEN_OUT = (
    "Attention", "CenterCropPad", "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU",
)  # fmt: skip
_OWN = "tcim_lite.written_out"
ONNX = ("", "ai.onnx")  # both name its own domain


def inlined(model: onnx.ModelProto, most: int) -> onnx.ModelProto:
    """The model with the nodes of its functions instead of calls.

    Raises:
        CheckpointError: A function calls itself, or the nodes would be more than `most`.
        UnsupportedNodeError: A function is of another opset, in which one of its ops is another.
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
    for called in sizes:
        _adopt(bodies[called], model)
    for nodes in (model.graph.node, *(body.node for body in model.functions)):
        for node in with_inner(nodes):
            if body := bodies.get((node.domain, node.op_type, node.overload)):  # the inliner forgets defaults
                given = {attribute.name for attribute in node.attribute}
                node.attribute.extend(default for default in body.attribute_proto if default.name not in given)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the checker's own
        raise CheckpointError(f"the functions of the file: {shown(' '.join(str(error).split()))}") from None


def _adopt(body: onnx.FunctionProto, model: onnx.ModelProto) -> None:
    """Gives a function the opset of the model, which the inliner wants, where its ops are the same in both."""
    versions = {entry.domain: entry.version for entry in model.opset_import if entry.domain in ONNX}
    opset = next(iter(versions.values()), None)
    for entry in body.opset_import:
        if opset is None or entry.domain not in ONNX or entry.version == opset:
            continue
        own = [node.op_type for node in with_inner(body.node) if node.domain in ONNX]
        if changed := next((op for op in own if _since(op, entry.version) != _since(op, opset)), None):
            raise UnsupportedNodeError(
                f"the function '{shown(body.name)}' of the file is of opset {entry.version}, in which "
                f"{shown(changed)} is not that of the model's opset {opset}; expected one opset, as "
                "onnx.version_converter or onnx.inliner with convert_version=True makes it"
            )
        entry.version = opset


def _since(op: str, opset: int) -> int | None:
    from onnx import defs

    try:
        return defs.get_schema(op, opset, "").since_version
    except defs.SchemaError:
        return None


def written_out(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with the nodes by which ONNX defines `WRITTEN_OUT`.

    Raises:
        UnsupportedNodeError: A node has attributes that its definition of that opset does not know, or the types of its
            operands cannot be inferred.
    """
    nodes = [proto for proto in model.graph.node if proto.domain in ONNX and proto.op_type in WRITTEN_OUT]
    if not nodes:
        return model
    import onnx
    from onnx import inliner

    for proto in nodes:
        node = Node(proto.op_type, "", list(proto.input), list(proto.output), {}, proto.name, opset)
        try:
            known = onnx.defs.get_schema(proto.op_type, opset, "").attributes
        except onnx.defs.SchemaError:
            raise node.unsupported(f"opset {opset} has no such op") from None
        if unknown := sorted({attribute.name for attribute in proto.attribute} - set(known)):
            raise node.unsupported(f"opset {opset} does not know its attribute '{shown(unknown[0])}'")
    light = without_weights(model)
    try:
        light = _with_left_out(light, opset)
        # All of them, because the nodes of one may be others.
        light = inliner.inline_selected_functions(light, [("", op) for op in WRITTEN_OUT], inline_schema_functions=True)
    except Exception as error:
        reason = shown(" ".join(str(error).split()))
        raise node.unsupported(f"ONNX cannot write it out in other ops: {reason}") from None
    del light.graph.input[:]
    light.graph.input.extend(model.graph.input)
    light.graph.initializer.extend(model.graph.initializer)
    light.graph.sparse_initializer.extend(model.graph.sparse_initializer)
    return light


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with the types of the weights as inputs, since what infers types knows those of inputs only."""
    import onnx

    light, graph = onnx.ModelProto(ir_version=model.ir_version), model.graph
    light.opset_import.extend(model.opset_import)
    light.graph.name = graph.name
    for own, given in ((light.graph.node, graph.node), (light.graph.value_info, graph.value_info)):
        own.extend(given)
    light.graph.input.extend(graph.input)
    light.graph.output.extend(graph.output)
    named = {info.name for info in graph.input}
    weights = [tensor for tensor in graph.initializer if tensor.name not in named]
    light.graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in weights
    )
    return light


def _with_left_out(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with those nodes written out that leave out an operand before another, for which the inliner fails."""
    import onnx
    from onnx import inliner, shape_inference

    nodes = [proto for proto in model.graph.node if proto.op_type in WRITTEN_OUT and "" in proto.input]
    if not nodes:
        return model
    typed = shape_inference.infer_shapes(model).graph
    types = {info.name: info.type for info in (*typed.input, *typed.value_info, *typed.output)}
    for index, proto in enumerate(nodes):
        schema = onnx.defs.get_schema(proto.op_type, opset, "")
        operands = [types.get(name, onnx.TypeProto()).SerializeToString() for name in proto.input]
        body = onnx.FunctionProto.FromString(
            schema.get_context_dependent_function_with_opset_version(
                schema.since_version, proto.SerializeToString(), operands
            )
        )
        body.domain, body.name = _OWN, f"{proto.op_type}{index}"
        proto.domain, proto.op_type = body.domain, body.name
        model.functions.append(body)
    model.opset_import.append(onnx.helper.make_opsetid(_OWN, 1))
    return inliner.inline_local_functions(model)


def with_inner(nodes: list[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs among their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from with_inner(graph.node)
