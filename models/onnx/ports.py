"""Graph inputs of ONNX files: dtypes, and shapes, of which options give what the file leaves open.

An option also makes inputs constants: switches and sizes that a caller never changes, such as `use_cache_branch`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError, CompileError
from .errors import UnsupportedNodeError, shown
from .functions import without_weights
from .network import MAX_ELEMENTS, Port

if TYPE_CHECKING:
    import onnx

MAX_RANK = 8


def named_extents(infos: Iterable[onnx.ValueInfoProto], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """What `shapes` say of the open axes that the file gives names, such as "batch"; of two different ones, nothing."""
    found: dict[str, set[int]] = {}
    for info in infos:
        for dim, extent in zip(info.type.tensor_type.shape.dim, shapes.get(info.name, ()), strict=False):
            if dim.dim_param:
                found.setdefault(dim.dim_param, set()).add(extent)
    return {name: extents.pop() for name, extents in found.items() if len(extents) == 1}


def port_of(
    info: onnx.ValueInfoProto, shapes: Mapping[str, tuple[int, ...]], batch: int | None, named: Mapping[str, int] = {}
) -> Port:
    """An input with its shape: of `shapes`, or of the file, with `named` axes, and `batch` in an open axis 0.

    Raises:
        CheckpointError: An element type that ONNX does not have, or a shape beyond the limits.
        CompileError: The shape stays open, or `shapes` contradicts the file.
        UnsupportedNodeError: An input that is no tensor.
    """
    from onnx import helper

    what = f"input '{shown(info.name)}'"
    if not info.type.HasField("tensor_type"):
        raise UnsupportedNodeError(f"{what} is no tensor")
    elements = info.type.tensor_type.elem_type
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(elements)).name
    except (KeyError, TypeError):
        raise CheckpointError(f"{what} has the element type {elements}, which ONNX does not have") from None
    dims, given = _dims(info), shapes.get(info.name)
    if given is not None:
        if dims is not None and (
            len(given) != len(dims) or any(said not in (extent, 0) for said, extent in zip(dims, given, strict=True))
        ):
            text = ",".join(map(str, given))
            batch = len(given) == len(dims) and given[1:] == (*dims[1:],)
            advice = "; for a batch export the network with an open axis 0" if batch else ""
            found = f"the shape {shown(info.name)}={text} does not fit {_open_text(info, dims)} of the file{advice}"
            raise CompileError(found)
        shape = tuple(given)
    else:
        if dims is None:
            raise CompileError(f"{what} has no shape; give it with --shape {shown(info.name)}=1,3,224,224")
        names = [dim.dim_param for dim in info.type.tensor_type.shape.dim]
        dims = [extent or named.get(name, 0) for extent, name in zip(dims, names, strict=True)]
        if dims[:1] == [0] and batch is not None:
            dims[0] = batch
        if not all(dims):
            usual = [1, *[224 if len(dims) == 4 else 128] * len(dims)]
            example = ",".join(str(extent or other) for extent, other in zip(dims, usual, strict=False))
            option = f"--shape such as {shown(info.name)}={example}"
            if any(dim.HasField("dim_value") and not dim.dim_value for dim in info.type.tensor_type.shape.dim):
                text = f"{what} has the shape {_open_text(info, dims)} in the file: empty tensors are not supported"
                raise CompileError(f"{text}; if its 0 stands for any extent, give the shape with {option}")
            raise CompileError(f"{what} has the open shape {_open_text(info, dims)}; give it with {option}")
        shape = tuple(dims)
    count = 1
    for extent in shape:
        count *= extent
    if 0 in shape:
        raise CheckpointError(f"{what} has the shape {shape_text(shape)}: empty tensors are not supported")
    if len(shape) > MAX_RANK or any(extent < 1 for extent in shape) or count > MAX_ELEMENTS:
        raise CheckpointError(
            f"{what} has the shape {shape_text(shape)}, expected at most {MAX_RANK} extents and 2^33 elements"
        )
    return Port(info.name, shape, dtype)


def fixed_inputs(
    infos: Iterable[onnx.ValueInfoProto],
    numbers: Mapping[str, tuple[float, ...]],
    shapes: Mapping[str, tuple[int, ...]],
    batch: int | None,
) -> dict[str, NDArray[Any]]:
    """The inputs that `numbers` names, as arrays of the file's types; one number fills a shape.

    Raises:
        CompileError: No such input, or numbers that it cannot have.
    """
    known, arrays = {info.name: info for info in infos}, {}
    for name, values in numbers.items():
        option = f"--constant {shown(name)}={shown(','.join(f'{value:.17g}' for value in values))}"
        if name not in known:
            names = ", ".join(map(shown, sorted(known))) or "none"
            raise CompileError(f"{option} names an input that the model does not have; it has {names}")
        port = port_of(known[name], shapes, batch)
        what = f"{option}: the input is {port.dtype} {shape_text(port.shape)}"
        count = math.prod(port.shape)
        if port.dtype == "object":
            raise CompileError(f"{what}, expected numbers")
        if len(values) not in (1, count):
            raise CompileError(f"{what}, expected 1 number{f', which fills it, or {count}' * (count > 1)}")
        dtype = np.dtype(port.dtype if port.dtype != "bfloat16" else "float32")
        with np.errstate(all="ignore"):
            array = np.asarray(values, np.float64).astype(dtype)
        if dtype.kind in "biu" and not np.array_equal(array.astype(np.float64), values):
            raise CompileError(f"{what}, expected {'0 or 1' if dtype.kind == 'b' else 'whole numbers that it can be'}")
        if dtype.kind == "f" and not np.isfinite(array).all():  # as a run refuses an input
            raise CompileError(f"{what}, expected finite numbers of its range")
        arrays[name] = np.full(port.shape, array[0]) if len(values) == 1 else array.reshape(port.shape)
    return arrays


def begun(model: onnx.ModelProto, begins: Sequence[str]) -> list[onnx.ValueInfoProto]:
    """Values as inputs, as `known_types` has them."""
    known = known_types(model, begins)
    return [known[name] for name in begins]


def known_types(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, onnx.ValueInfoProto]:
    """Values with the type and shape that the file has for them or that follow; else float32 of any shape."""
    from onnx import TensorProto, helper, shape_inference

    graph = model.graph
    known = {info.name: info for info in (*graph.value_info, *graph.output)}
    if any(name not in known for name in names):
        try:
            known |= {info.name: info for info in shape_inference.infer_shapes(without_weights(model)).graph.value_info}
        except Exception:  # its own; the user may say the shape
            known = dict(known)
    return {name: known.get(name) or helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names}


def shape_text(shape: Iterable[int]) -> str:
    """A shape as messages write it."""
    return f"[{', '.join(map(str, shape))}]"


def _dims(info: onnx.ValueInfoProto) -> list[int] | None:
    """The extents that the file gives, 0 for open ones; None if it gives no shape."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [max(dim.dim_value, 0) if dim.HasField("dim_value") else 0 for dim in tensor.shape.dim]


def _open_text(info: onnx.ValueInfoProto, dims: list[int]) -> str:
    """`dims` with the file's names of open axes."""
    given = info.type.tensor_type.shape.dim
    names = ("0" if dim.HasField("dim_value") else shown(dim.dim_param) or "?" for dim in given)
    extents = (str(extent or name) for extent, name in zip(dims, names, strict=True))
    return f"[{','.join(extents)}]"
