"""What a model leaves to the host where it ends early, as an ONNX file of its own that onnxruntime runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tcim_lite.hmm import Value

from ..common.errors import CompileError
from .emit import Tensor
from .functions import with_inner
from .network import fresh_name
from .order import read_by
from .ports import known_types
from .table import Operand

if TYPE_CHECKING:
    import onnx

_NO_INITIALISERS_AMONG_INPUTS = 4  # the version of files from which on constants need not be inputs


def rest_of(
    model: onnx.ModelProto, values: Mapping[str, Operand], ends: Sequence[Value], begins: Collection[str]
) -> onnx.ModelProto:
    """The nodes from `ends` to the outputs of a file, with what is constant among the values that they read.

    Its inputs are those of `ends` that it reads, of the types that the package gives them, then inputs of the file and
    `begins`, as the file has them. Its outputs are those of the file that are not among `ends`.

    Args:
        model: As `expanded` gives it.
        values: What is known of the whole model.
        ends: Outputs of the package.
        begins: Values that are inputs of the package.

    Raises:
        CompileError: Nothing is left.
    """
    from onnx import helper, numpy_helper

    graph, made = model.graph, {value.name: value for value in ends}
    outputs = [info for info in graph.output if info.name not in made]
    if not outputs:
        raise CompileError("--rest: nothing is left for the host, the package computes every output of the file")
    producers = {name: node for node in graph.node for name in node.output if name}
    left = [info.name for info in outputs]
    seen, kept, constants = {*left}, set(), []
    while left:
        name = left.pop()
        if name not in made and isinstance(array := values.get(name), np.ndarray):
            constants.append(numpy_helper.from_array(array, name))
        elif name in producers and name not in made and name not in begins:
            kept.add(id(node := producers[name]))
            reads = {*node.input, *read_by(node.attribute)} - {""} - seen
            seen |= reads
            left += sorted(reads)
    nodes = [node for node in graph.node if id(node) in kept]
    known = known_types(model, [*made, *begins])
    names = {*seen, *(name for node in nodes for name in node.output)}
    inputs, first, renamed = [], [], {name: name for name in made if name in seen}
    for name in renamed:
        value, operand = made[name], values.get(name)
        own, wanted = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), known[name].type.tensor_type.elem_type
        inputs.append(helper.make_tensor_value_info(name, own, value.shape))
        is_scalar = isinstance(operand, Tensor) and not operand.shape  # [1] in the package
        for needed, op, said in ((own != wanted, "Cast", {"to": wanted}), (is_scalar, "Squeeze", {})):
            if needed:
                read, renamed[name] = renamed[name], fresh_name(f"{name}_of_the_file", names)
                first.append(helper.make_node(op, [read], [renamed[name]], **said))
    inputs += [known[name] for name in begins if name in seen]
    inputs += [info for info in graph.input if info.name in seen and not isinstance(values.get(info.name), np.ndarray)]
    nodes = [*first, *(_renamed(node, renamed) for node in nodes)]
    rest = helper.make_graph(nodes, f"{graph.name} on the host", inputs, outputs, constants)
    version = max(model.ir_version, _NO_INITIALISERS_AMONG_INPUTS)
    return helper.make_model(rest, opset_imports=model.opset_import, ir_version=version)


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy that reads other values, also in its inner graphs."""
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(node)
    for inner in with_inner([copy]):
        inner.input[:] = [names.get(name, name) for name in inner.input]
        for info in (info for attribute in inner.attribute for info in attribute.g.output):
            info.name = names.get(info.name, info.name)
    return copy
