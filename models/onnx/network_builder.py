"""Writes a network as an ONNX model in memory, which goes through the compiler of networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..common.errors import need_extra

if TYPE_CHECKING:
    import onnx

Tensor: TypeAlias = NDArray[np.float32]
_OPSET = 23  # the first one with RMSNormalization


class NetworkBuilder:
    """Collects nodes in execution order. Values go by name.

    Raises:
        CompileError: The package `onnx` is not installed.
    """

    def __init__(self, name: str) -> None:
        try:
            import onnx
        except ImportError:
            raise need_extra("onnx", f"compiling {name}", "onnx") from None
        self._onnx, self._name = onnx, name
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[str, NDArray[Any]] = {}

    def input(self, name: str, shape: Sequence[int], *, integer: bool = False) -> str:
        """Adds the next input, of float32 or of int32."""
        kind = self._onnx.TensorProto.INT32 if integer else self._onnx.TensorProto.FLOAT
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, array: Any) -> str:
        """A constant; floats become float32."""
        values = np.asarray(array)
        if values.dtype.kind == "f":
            values = values.astype(np.float32)
        name = f"constant_{len(self._constants)}"
        self._constants[name] = values.copy(order="C")
        return name

    def op(self, kind: str, *operands: str, result: str = "", **attributes: Any) -> str:
        """A node with one result."""
        name = result or f"{kind}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(operands), [name], name=name, **attributes))
        return name

    def linear(self, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None) -> str:
        """[.., K] -> [.., N]."""
        y = self.op("MatMul", x, self.constant(weight.T))
        return y if bias is None else self.op("Add", y, self.constant(bias))

    def part(self, x: str, axis: int, start: int, stop: int, result: str = "") -> str:
        """Elements start..stop of an axis; numbers below 0 count from its end."""
        bounds = (self.constant(np.array([number], np.int64)) for number in (start, stop, axis))
        return self.op("Slice", x, *bounds, result=result)

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64)))

    def build(self, outputs: Sequence[str], integers: Sequence[str] = ()) -> onnx.ModelProto:
        """The model; `integers` are those of the outputs that are int32."""
        onnx, helper = self._onnx, self._onnx.helper
        kinds = {name: onnx.TensorProto.INT32 if name in integers else onnx.TensorProto.FLOAT for name in outputs}
        graph = helper.make_graph(
            self._nodes,
            self._name,
            self._inputs,
            [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
            [onnx.numpy_helper.from_array(array, name) for name, array in self._constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=11)


class TensorNetwork(NetworkBuilder):
    """A network with tensors of a checkpoint, which `tensor` reads by name."""

    def __init__(self, name: str, tensor: Callable[[str], Tensor]) -> None:
        super().__init__(name)
        self.tensor = tensor

    def transposed(self, x: str) -> str:
        """[1, a, b] -> [1, b, a]."""
        return self.op("Transpose", x, perm=[0, 2, 1])

    def norm(self, x: str, name: str, epsilon: float = 1e-6) -> str:
        """A centred norm of the last axis."""
        scale, shift = (self.constant(self.tensor(f"{name}.{part}")) for part in ("weight", "bias"))
        return self.op("LayerNormalization", x, scale, shift, epsilon=epsilon)

    def widened(self, x: str, name: str, factors: str) -> str:
        """What a block of ConvNeXt does behind its convolution: [1, C, T] -> [1, C, T]; `factors` scale the result."""
        y = self.norm(self.transposed(x), f"{name}.norm")
        y = self.op("Gelu", self.linear(y, *(self.tensor(f"{name}.pwconv1.{part}") for part in ("weight", "bias"))))
        gamma = self.tensor(f"{name}.{factors}")
        weight, bias = (self.tensor(f"{name}.pwconv2.{part}") for part in ("weight", "bias"))
        return self.transposed(self.linear(y, gamma[:, None] * weight, gamma * bias))
