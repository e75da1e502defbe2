"""Tensors of ONNX files as arrays, also of those whose bytes are in a file beside the model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.layout import MAX_NAME_BYTES

from ..common.errors import CheckpointError
from .errors import reason, shown
from .functions import with_inner
from .network import MAX_ELEMENTS, MAX_FOLDED
from .ports import MAX_RANK, shape_text

if TYPE_CHECKING:
    import onnx

_DATA_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def array_of(tensor: onnx.TensorProto, path: Path | None, what: str) -> NDArray[Any]:
    """The array of a tensor, external data included, which is beside the model's file, `path`."""
    import onnx
    from onnx import numpy_helper

    shape = tuple(tensor.dims)
    if len(shape) > MAX_RANK or any(extent < 0 for extent in shape):
        raise CheckpointError(
            f"{what} has the shape {shape_text(shape)}, expected at most {MAX_RANK} extents of 0 or more"
        )
    count = 1
    for extent in shape:
        count *= extent
    if count > MAX_ELEMENTS:
        raise CheckpointError(f"{what} has the shape {shape_text(shape)}, more than 2^33 elements")
    if tensor.data_type not in onnx.TensorProto.DataType.values()[1:]:  # 0 is no type
        raise CheckpointError(f"{what} has the element type {tensor.data_type}, which ONNX does not have")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, shape, count, path, what)
    fields = [name for name in _DATA_FIELDS if len(getattr(tensor, name))]
    if len(fields) > 1:
        raise CheckpointError(f"{what} has its elements twice, as {fields[0]} and as {fields[1]}; expected one of them")
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:
        raise CheckpointError(f"{what}, {shape_text(shape)}: {reason(error)}") from None


def read_attributes(model: onnx.ModelProto, path: Path | None) -> None:
    """Puts external data of attributes, and of graphs inside of nodes, into the model.

    Raises:
        CheckpointError: It is not there, or has more elements than the compiler makes.
    """
    from onnx import numpy_helper

    left = MAX_FOLDED
    for nodes in (model.graph.node, *(body.node for body in model.functions)):
        for node, tensor in _external_in(nodes):
            if (left := left - math.prod(tensor.dims)) < 0:
                raise CheckpointError(f"external data of attributes has more than {MAX_FOLDED} elements")
            made = shown(next(iter(node.output), ""))
            array = array_of(tensor, path, f"tensor '{shown(tensor.name)}' of the node that makes '{made}'")
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def _external_in(nodes: list[onnx.NodeProto]) -> Iterator[tuple[onnx.NodeProto, onnx.TensorProto]]:
    """Yields tensors of attributes, and of graphs in them, whose data is in other files, with their nodes."""
    from onnx import AttributeProto
    from onnx.external_data_helper import uses_external_data

    kinds = (AttributeProto.TENSOR, AttributeProto.TENSORS, AttributeProto.GRAPH, AttributeProto.GRAPHS)
    for node in with_inner(nodes):
        for attribute in (each for each in node.attribute if each.type in kinds):
            inside = [tensor for graph in (attribute.g, *attribute.graphs) for tensor in graph.initializer]
            tensors = (attribute.t, *attribute.tensors, *inside)
            yield from ((node, tensor) for tensor in tensors if uses_external_data(tensor))


def make_dense(model: onnx.ModelProto, path: Path | None) -> None:
    """Writes sparse initialisers, and those of Constant, as dense ones, in graphs and functions.

    Raises:
        CheckpointError: Places that do not fit, or more elements than the compiler makes.
    """
    from onnx import AttributeProto, numpy_helper

    left = MAX_FOLDED

    def dense(tensor: onnx.SparseTensorProto, what: str) -> onnx.TensorProto:
        nonlocal left
        shape, count = tuple(tensor.dims), math.prod(tensor.dims)
        if len(shape) > MAX_RANK or any(extent < 0 for extent in shape) or count > left:
            raise CheckpointError(
                f"{what} has the shape {shape_text(shape)}, expected at most {MAX_RANK} extents of 0 or more, and at "
                f"most {MAX_FOLDED} elements of all sparse tensors"
            )
        left -= count
        values, at = (array_of(part, path, what) for part in (tensor.values, tensor.indices))
        fits = at.dtype == np.int64 and values.ndim == 1 and at.shape in (values.shape, (*values.shape, len(shape)))
        if fits and at.ndim == 2:
            fits = bool(((at >= 0) & (at < shape)).all())
            at = at @ np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))], np.int64)
        if not fits or (at < 0).any() or (at >= count).any():
            raise CheckpointError(
                f"{what} has values {shape_text(values.shape)} and {at.dtype} places "
                f"{shape_text(tensor.indices.dims)}; expected an int64 place inside {shape_text(shape)} for each value"
            )
        result = np.zeros(count, values.dtype)
        result[at] = values
        return numpy_helper.from_array(result.reshape(shape), tensor.values.name)

    def of_graph(graph: onnx.GraphProto) -> None:
        for tensor in graph.sparse_initializer:
            graph.initializer.append(dense(tensor, f"sparse initialiser '{shown(tensor.values.name)}'"))
        if graph.sparse_initializer:  # else this would make a graph of an attribute that has none
            del graph.sparse_initializer[:]

    of_graph(model.graph)
    for nodes in (model.graph.node, *(body.node for body in model.functions)):
        for node in with_inner(nodes):
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    of_graph(graph)
                if node.op_type == "Constant" and attribute.type == AttributeProto.SPARSE_TENSOR:
                    tensor = dense(
                        attribute.sparse_tensor, f"sparse_value that makes '{shown(next(iter(node.output), ''))}'"
                    )
                    attribute.Clear()
                    attribute.name, attribute.type = "value", AttributeProto.TENSOR
                    attribute.t.CopyFrom(tensor)


def _external(
    tensor: onnx.TensorProto, shape: tuple[int, ...], count: int, model: Path | None, what: str
) -> NDArray[Any]:
    """Maps the bytes of a tensor that lie in a file beside the model.

    The file is in the model's folder. Where the model is a link, as in the cache of Hugging Face's hub, it may instead
    be a link into the folder of the model's own file.
    """
    from onnx import helper

    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    path = Path(location)
    too_long = len(location.encode()) > MAX_NAME_BYTES or any(len(part.encode()) > 255 for part in path.parts)
    if not location or path.is_absolute() or ".." in path.parts or "\0" in location or too_long:
        raise CheckpointError(f"{what} is in the file '{shown(location)}'; expected a path inside the model's folder")
    if model is None:
        raise CheckpointError(f"{what} is in the file '{shown(location)}', and a model in memory has no folder")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    nbytes = count * dtype.itemsize
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", nbytes))
    except ValueError:
        raise CheckpointError(f"{what}: its offset or length in '{shown(location)}' is no whole number") from None
    file = model.parent / path
    try:
        homes = (model.parent.resolve(), model.resolve().parent)
        inside = any(file.resolve().is_relative_to(home) for home in homes)
        size = file.stat().st_size if file.is_file() else None
    except (OSError, RuntimeError) as error:  # a folder that may not be read; links in a circle
        raise CheckpointError(f"{what} is in the file '{shown(location)}': {reason(error)}") from None
    if not inside:
        raise CheckpointError(f"{what} is in the file '{shown(location)}', which leads out of the model's folder")
    if size is None:
        raise CheckpointError(f"{what} is in the file '{shown(location)}', which is not there")
    if offset < 0 or length != nbytes or offset > size - nbytes:
        raise CheckpointError(
            f"{what} is bytes {offset}..{offset + length} of '{shown(location)}', which has {size}; "
            f"{shape_text(shape)} {dtype} takes {nbytes}"
        )
    if count == 0:
        return np.zeros(shape, dtype)
    try:
        return np.memmap(file, dtype, "r", offset, shape or (1,)).reshape(shape)
    except OSError as error:
        raise CheckpointError(f"{what} is in the file '{shown(location)}': {reason(error)}") from None
