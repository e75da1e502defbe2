"""Ops of encoders beside those of `GraphBuilder`: products of computed matrices, and what moves data."""

from __future__ import annotations

from collections.abc import Sequence

from .builder import GraphBuilder
from .values import Ref


class EncoderBuilder(GraphBuilder):
    """A `GraphBuilder` for networks that see all their tokens at once."""

    def softmax(self, name: str, x: Ref) -> Ref:
        """Over the last axis."""
        return self._op("Softmax", name, [x], x.shape)

    def mean(self, name: str, x: Ref) -> Ref:
        """Of the last axis, which stays as one of 1."""
        return self._op("ReduceMean", name, [x], (*x.shape[:-1], 1))

    def mat_mul(self, name: str, a: Ref, b: Ref) -> Ref:
        """[.., m, k], [.., k, n] -> [.., m, n]; leading axes are equal."""
        assert a.shape[:-2] == b.shape[:-2], (name, a.shape, b.shape)
        assert a.shape[-1] == b.shape[-2], (name, a.shape, b.shape)
        return self._op("MatMul", name, [a, b], (*a.shape[:-1], b.shape[-1]))

    def patches(self, name: str, x: Ref, weight: str, bias: str | None, side: int) -> Ref:
        """Convolution of [B, C, H, W] with a kernel that is as large as its strides -> [B, N, H / side, W / side]."""
        operands = [x, self.weight(weight)] + ([self.weight(bias)] if bias else [])
        number, _, height, width = x.shape
        attributes: dict[str, int | float | str] = {key: f"{side},{side}" for key in ("kernel", "strides")}
        attributes |= {"pads": "0,0", "dilations": "1,1", "upsample": "1,1", "groups": 1}
        return self._op(
            "Conv", name, operands, (number, operands[1].shape[0], height // side, width // side), attributes
        )

    def expand(self, name: str, x: Ref, shape: Sequence[int]) -> Ref:
        """x repeated along its axes of 1."""
        return self._op("Expand", name, [x], tuple(shape), dtype=x.dtype)

    def order(self, name: str, x: Ref) -> Ref:
        """int32 [n] -> where the smallest, the next and so on are: the inverse of a permutation."""
        values = self._value(f"{name}_sorted", "intermediate", x.dtype, x.shape)
        places = self._value(name, "intermediate", "int32", x.shape)
        self._append("TopK", [x], [values, places], {"k": x.shape[-1], "largest": 0})
        return places
