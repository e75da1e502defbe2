"""ONNX files to `Network`. Trusts nothing: names, sizes and order are checked, and a fault names its node."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tcim_lite.hmm.layout import MAX_NAME_BYTES, MAX_OPS

from ..common.errors import CheckpointError, CompileError, need_extra
from .channels_last import channels_first
from .errors import UnsupportedNodeError, reason, shown
from .functions import ONNX, inlined, with_inner, written_out
from .masked import without_places
from .network import Network, Node
from .old_opsets import modernised
from .order import in_order, read_inside
from .ports import begun, fixed_inputs, named_extents, port_of
from .schema import check_node
from .tensors import array_of, make_dense, read_attributes

if TYPE_CHECKING:
    import onnx

OPSETS = range(7, 29)
MAX_NODES = MAX_OPS
# Of onnxruntime's domain, the same as ONNX's since opset 21, which have codes of 16 bits too.
_WIDER = (("com.microsoft", "QuantizeLinear"), ("com.microsoft", "DequantizeLinear"))


def load(path: Path) -> onnx.ModelProto:
    """Parses a file, without its external data.

    Raises:
        CheckpointError: It is no ONNX file.
        CompileError: The package `onnx` is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise need_extra("onnx", f"compiling {path.name}", "onnx") from None
    try:
        model = onnx.load(os.fspath(path), load_external_data=False)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}; expected an ONNX file") from error
    except Exception as error:  # protobuf's own
        raise CheckpointError(f"{path} is no ONNX file: {reason(error)}") from None
    if not model.HasField("graph"):
        raise CheckpointError(f"{path} is no ONNX file: it has no graph")
    return model


def read(
    model: onnx.ModelProto,
    path: Path | None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    batch: int | None = None,
    ends: Sequence[str] = (),
    begins: Sequence[str] = (),
    fixed: Mapping[str, tuple[float, ...]] | None = None,
) -> Network:
    """Checks a model and returns it.

    Args:
        model: As `load` gives it.
        path: Its file, beside which its external data is; None: it may have none.
        shapes: Of inputs whose file leaves extents open.
        batch: Extent of axis 0 of every input whose file leaves it open.
        ends: Values that are the outputs instead of the file's.
        begins: Values that are inputs instead of those that they are made of, before the other inputs. With `ends` or
            `begins`, inputs that nothing reads any more are left out.
        fixed: Numbers of inputs of the file that are constants instead; one number fills an input.

    Raises:
        CheckpointError: The file contradicts itself.
        UnsupportedNodeError: An opset, a domain's version or a dtype that is not supported.
        CompileError: An input's shape is not known, or `shapes`, `batch` or `fixed` fit no input, or `ends` or `begins`
            name no value that a node makes.
    """
    model, opset, foreign = expanded(model, path)
    graph = model.graph
    nodes = [node_of(proto, opset, foreign) for proto in graph.node]
    if len(nodes) > MAX_NODES:
        raise CheckpointError(f"the graph has {len(nodes)} nodes, the limit is {MAX_NODES}")
    constants = _initialisers(graph, path)
    free = [info for info in graph.input if info.name not in constants]
    constants |= fixed_inputs(free, fixed or {}, shapes or {}, batch)
    constants |= modernised(nodes, opset, constants.keys() | {info.name for info in graph.input})
    nodes = channels_first(without_places(nodes, constants), constants)
    _check_values("--begin-at", begins, nodes)
    _check_values("--end-at", ends, nodes)
    given = [*begun(model, begins), *(info for info in free if info.name not in constants)]
    for node in nodes:
        node.outputs = ["" if name in begins else name for name in node.outputs]
    names = {info.name for info in given}
    _check_inputs({*(shapes or {})} - {*(fixed or {})}, names)
    outputs = list(ends) or [info.name for info in graph.output]
    if not outputs:
        raise CheckpointError("the graph has no outputs")
    ordered = in_order(nodes, names | constants.keys(), outputs)
    if ends or begins:
        needed = {name for node in ordered for name in (*node.inputs, *read_inside(node))} | {*outputs}
        given = [info for info in given if info.name in needed]
    named = named_extents(given, shapes or {})
    inputs = [port_of(info, shapes or {}, batch, named) for info in given]
    if batch is not None and batch > 1 and not any(port.shape[:1] == (batch,) for port in inputs):
        raise CompileError(f"--batch {batch}: no input of the file leaves axis 0 open, or --shape gives another extent")
    for name in (*outputs, *(port.name for port in inputs)):
        _check_name(name, "an input or output")
    if graph.name:
        _check_name(graph.name, "the graph")
    return Network(graph.name, ordered, constants, inputs, outputs, opset, foreign)


def expanded(model: onnx.ModelProto, path: Path | None) -> tuple[onnx.ModelProto, int, dict[str, int]]:
    """A model without functions, sparse constants and external attributes; its opset, and versions of other domains."""
    _check_texts(model)
    read_attributes(model, path)
    make_dense(model, path)
    model = inlined(model, MAX_NODES)
    opset, foreign = _opsets(model)
    return written_out(model, opset), opset, foreign


def _check_inputs(wanted: Set[str], names: Set[str]) -> None:
    """Refuses shapes of inputs that a model does not have."""
    if unknown := wanted - names:
        known = ", ".join(shown(name) for name in sorted(names)) or "none"
        raise CompileError(
            f"a shape names the input '{shown(min(unknown))}', which the model does not have; it has {known}"
        )


def _initialisers(graph: onnx.GraphProto, path: Path | None) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for tensor in graph.initializer:
        _check_name(tensor.name, "an initialiser")
        if tensor.name in found:
            raise CheckpointError(f"two initialisers are called '{shown(tensor.name)}'")
        found[tensor.name] = array_of(tensor, path, f"initialiser '{shown(tensor.name)}'")
    return found


def _opsets(model: onnx.ModelProto) -> tuple[int, dict[str, int]]:
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in ONNX else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise CheckpointError(
                f"the model names two versions of the ops of '{shown(domain or 'ai.onnx')}': {versions[domain]} and "
                f"{entry.version} (opset_import)"
            )
    opset = versions.pop("", None)
    if opset is None and versions and all(node.domain not in ONNX for node in with_inner(model.graph.node)):
        opset = OPSETS[-1]  # of no node
    if opset is None:
        raise CheckpointError("the model names no version of ONNX's operators (opset_import)")
    if opset not in OPSETS:
        raise UnsupportedNodeError(
            f"the model uses opset {opset}, supported are {OPSETS.start} to {OPSETS.stop - 1}; convert it with "
            "onnx.version_converter"
        )
    return opset, versions


def node_of(proto: onnx.NodeProto, opset: int, foreign: Mapping[str, int]) -> Node:
    """A node as this compiler sees it."""
    domain = "" if proto.domain in ONNX else proto.domain
    node = Node(proto.op_type, domain, list(proto.input), list(proto.output), {}, proto.name, opset)
    for name in (*proto.input, *proto.output):
        if len(name.encode()) > MAX_NAME_BYTES:
            raise CheckpointError(f"{node.label}: a value's name has more than {MAX_NAME_BYTES} bytes")
    if (domain, proto.op_type) in _WIDER:
        node.domain, node.opset = "", max(opset, 21)
    elif domain:
        node.opset = foreign.get(domain, 0)
    check_node(node, proto.attribute)
    node.attributes = {attribute.name: _attribute(attribute, node) for attribute in proto.attribute}
    return node


def _attribute(proto: onnx.AttributeProto, node: Node) -> Any:
    from onnx import AttributeProto, helper

    if proto.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return proto  # control flow: its lowering refuses it, or does not exist
    if proto.type == AttributeProto.TENSOR:
        return array_of(proto.t, None, f"{node.label}: attribute '{shown(proto.name)}'")
    try:
        value = helper.get_attribute_value(proto)
    except Exception as error:
        raise CheckpointError(f"{node.label}: attribute '{shown(proto.name)}': {reason(error)}") from None
    if isinstance(value, list):
        return [_text(item) for item in value]
    return _text(value)


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _check_values(option: str, names: Sequence[str], nodes: Sequence[Node]) -> None:
    """Refuses what no node makes, for an option that names values."""
    made = {name for node in nodes for name in node.outputs if name}
    for name in names:
        if names.count(name) > 1:
            raise CompileError(f"{option} names '{shown(name)}' twice")
        if name not in made:
            near = difflib.get_close_matches(name[:200], made, 1)
            hint = f"; do you mean '{shown(near[0])}'?" if near else ""
            raise CompileError(f"{option} names '{shown(name)}', which no node of the file makes{hint}")


def _check_texts(model: onnx.ModelProto) -> None:
    """Names must be UTF-8; protobuf gives others as bytes."""

    def check(texts: Iterable[Any], what: str) -> None:
        for text in texts:
            if not isinstance(text, str):
                raise CheckpointError(f"{what}: the name {shown(repr(text))} is no UTF-8")

    graph = model.graph
    check((entry.domain for entry in model.opset_import), "opset_import")
    check([graph.name], "the graph")
    sparse = [part for tensor in graph.sparse_initializer for part in (tensor.values, tensor.indices)]
    for tensor in (*graph.initializer, *sparse):
        check([tensor.name], "an initialiser")
        texts = (text for entry in tensor.external_data for text in (entry.key, entry.value))
        check(texts, "external data of an initialiser")
    for info in (*graph.input, *graph.output):
        check([info.name, *(dim.dim_param for dim in info.type.tensor_type.shape.dim)], "an input or output")
    for index, node in enumerate(with_inner(graph.node)):
        names = (attribute.name for attribute in node.attribute)
        check([node.name, node.op_type, node.domain, *node.input, *node.output, *names], f"node {index}")
        for inner in (attribute.g for attribute in node.attribute):
            infos = (
                info.name
                for info in (
                    *inner.input,
                    *inner.output,
                    *inner.initializer,
                    *(t.values for t in inner.sparse_initializer),
                )
            )
            check(infos, f"a graph of node {index}")


def _check_name(name: str, what: str) -> None:
    if not name:
        raise CheckpointError(f"{what} has no name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise CheckpointError(f"the name of {what}, '{shown(name)}', has more than {MAX_NAME_BYTES} bytes")
    if "\0" in name:
        raise CheckpointError(f"the name of {what}, '{shown(name)}', has a NUL")
