"""A `Network` to a graph: constants are folded, every other node goes through the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightData
from tcim_lite.hmm.layout import MAX_OPS

from ..common.errors import CompileError
from ..common.profiles import Profile
from . import (
    hmonnx,
    lower,  # noqa: F401  (fills the table)
)
from .emit import Emitter, Tensor
from .errors import UnsupportedNodeError, shown
from .fold import can_fold, fold
from .lower import classical, microsoft
from .lower.hmonnx_ops import DOMAIN
from .network import MAX_GROWTH, Network, Node
from .resizer import CROP_NUMBERS, ImageInput, crop_name, lower_image
from .resizer import check as check_image
from .table import LOWERINGS, Call, Operand, Parts

INPUT_KINDS = {
    "float16": "float", "float32": "float", "float64": "float", "bfloat16": "float", "bool": "float",
    "int32": "int", "int64": "int", "uint32": "int", "uint64": "int",
    "int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16",
}  # fmt: skip


_SIZED = ("ConstantOfShape", "Range")  # as their operands say
_OPEN_ENDED = (*_SIZED, "NonMaxSuppression", "NonZero", "Unique")
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_REASONS = dict.fromkeys(_OPEN_ENDED, "the number of its results depends on the data")
_REASONS |= dict.fromkeys(_RANDOM, "its result is random; make it an input with --begin-at, or a constant") | {
    "If": "its condition is not known",
    "Loop": "its number of iterations is computed by the network, or 0 with results to collect; expected a constant "
    "number, or at most 8,192 where the condition is computed, with nothing to collect",
    "Scan": "its body does not fit its operands, or the number of its steps is not known",
}


def lower_network(
    network: Network,
    profile: Profile,
    images: Mapping[str, ImageInput] | None = None,
    emitter: type[Emitter] = Emitter,
) -> tuple[Graph, list[WeightData], Emitter]:
    """The graph and its weights; `images` are inputs that are fed with uint8 YUV, by name.

    Raises:
        CompileError: An image for an input that there is not, or that cannot be one.
        UnsupportedNodeError: A node that is not supported, named.
    """
    hmonnx.check_version(network)
    emit = emitter(network.name or "network", profile)
    emit.growth = network.growth
    names = [port.name for port in network.inputs]
    for unknown in (images or {}).keys() - set(names):
        known = ", ".join(map(shown, names)) or "none"
        raise CompileError(
            f"an image names the input '{shown(unknown)}', which the model does not have; it has {known}"
        )
    emit.reserve([*names, *sorted({*network.outputs} - {*names})])
    values: dict[str, Operand] = dict(network.constants)
    states, images = hmonnx.caches(network), images or {}
    emit.reserve([crop_name(name) for name, image in images.items() if image.dynamic])
    for port in network.inputs:
        kind = INPUT_KINDS.get(port.dtype)
        if kind is None:
            held = "text" if port.dtype == "object" else port.dtype  # as numpy calls it
            raise UnsupportedNodeError(
                f"input '{shown(port.name)}' is {held}; supported are floating point, bool and integers"
            )
        if (image := images.get(port.name)) is not None:
            check_image(image, port)
            values[port.name] = emit.input(port.name, (port.shape[0] // image.parts, image.nbytes), "image")
        else:
            values[port.name] = emit.input(port.name, port.shape, "state" if port.name in states else kind)
    _add_images(network, images, values, emit)
    for node in network.nodes:
        for name, result in zip(node.outputs, results_of(node, values, emit), strict=False):
            if name and result is not None:
                values[name] = result
    if emit.num_ops > MAX_OPS:
        raise CompileError(f"the network becomes {emit.num_ops} ops; a package holds at most {MAX_OPS}")
    if missing := [name for name in network.outputs if isinstance(values.get(name, Parts([])), Parts)]:
        node = next(node for node in network.nodes if missing[0] in node.outputs)
        raise node.unsupported(f"its output '{shown(missing[0])}' is not supported")
    outputs = [_output(name, values[name], emit) for name in network.outputs]
    graph, weights = emit.build(outputs)
    return graph, weights, emit


def _add_images(network: Network, images: Mapping[str, ImageInput], values: dict[str, Operand], emit: Emitter) -> None:
    """What networks read instead of their images. The crops of dynamic ones are the last inputs."""
    ports = [port for port in network.inputs if port.name in images]
    crops = {
        port.name: emit.input(crop_name(port.name), (port.shape[0], CROP_NUMBERS), "int")
        for port in ports
        if images[port.name].dynamic
    }
    for port in ports:
        pixels = values[port.name]
        assert isinstance(pixels, Tensor)
        values[port.name] = lower_image(images[port.name], port, pixels, crops.get(port.name), emit)


def results_of(node: Node, values: dict[str, Operand], emit: Emitter) -> Sequence[Operand | None]:
    """What a node makes: constants where its operands are constants, else values of the graph."""
    names = list(node.inputs)
    while names and not names[-1]:
        names.pop()
    missing = [name for name in names if name and name not in values]
    if missing:
        raise node.unsupported(f"'{shown(missing[0])}' is an output that the node before does not make")
    operands = [values[name] if name else None for name in names]
    constants: list[NDArray[Any] | None] = [operand for operand in operands if not isinstance(operand, (Tensor, Parts))]
    lowering = LOWERINGS.get((node.domain, node.op))
    is_constant = len(constants) == len(operands) and not node.domain
    if is_constant and can_fold(node, constants):
        results = fold(node, constants)
        _count(node, emit, results, constants)
        return results
    if lowering is None and is_constant and (node.op in _SIZED or not why_not(node)):
        raise node.unsupported("all its operands are constants, and it cannot be evaluated or its result is too large")
    if (reason := why_not(node)) is not None:
        reason = reason or "the op is not supported"
        raise node.unsupported(f"{reason}; `tcim-lite compile --check` lists what is missing")
    assert lowering is not None
    try:
        result = lowering(Call(node, operands, emit))
    except UnsupportedNodeError:
        raise
    except MemoryError as error:
        raise node.unsupported("this machine has too little memory for its operands") from error
    except CompileError as error:
        raise node.unsupported(str(error)) from None
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # A file may put anything into operands and attributes.
        raise node.unsupported(
            f"its operands or attributes make no sense ({type(error).__name__}: {shown(str(error))})"
        ) from error
    made: Sequence[Any] = [result] if isinstance(result, (Tensor, np.ndarray, Parts)) else result
    _count(node, emit, [array for array in made if isinstance(array, np.ndarray) and any(array.strides)], constants)
    return made


def _count(
    node: Node, emit: Emitter, made: Sequence[NDArray[Any] | None], operands: Sequence[NDArray[Any] | None]
) -> None:
    emit.growth += max(0, _elements(made) - _elements(operands))
    if emit.growth > MAX_GROWTH:
        raise node.unsupported(f"with it, constants of constants have more than {MAX_GROWTH} elements")


def _elements(arrays: Sequence[NDArray[Any] | None]) -> int:
    return sum(array.size for array in arrays if array is not None)


def _output(name: str, operand: Operand, emit: Emitter) -> Tensor:
    """A value of its own with the name of an output."""
    node = Node("Identity", "", [], [name], {}, "", 0)
    tensor = Call(node, [operand], emit).tensor(0)
    if emit.is_input(tensor) or emit.is_output(tensor):
        tensor = emit.op("Reshape", [tensor], tensor.shape, kind=tensor.kind)
    emit.name_output(tensor, name)
    return tensor


def why_not(node: Node) -> str | None:
    """Why a node has no lowering, "" where there is no more to say; None: it has one."""
    if node.domain == DOMAIN:
        return hmonnx.why_not(node)
    if (node.domain, node.op) in LOWERINGS:
        return None
    if node.domain in ("com.ms.internal.nhwc", "com.microsoft.nchwc"):
        return (
            "onnxruntime writes it for one processor; expected the model that it read, or one saved with "
            "ORT_ENABLE_EXTENDED"
        )
    if node.domain == microsoft.DOMAIN:
        return "tools of onnxruntime write it; expected the model that they read"
    if (node.domain, node.op) == (classical.DOMAIN, "ZipMap"):
        return "its result is a dictionary; expected a model that was converted with zipmap=False"
    return "" if node.domain else _REASONS.get(node.op, "")
