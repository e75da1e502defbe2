"""The ops of a graph that move data and compute nothing: their results have the dtype of what they read."""

from __future__ import annotations

from collections.abc import Sequence

from .values import GraphValues, Ref


class GraphMoves(GraphValues):
    """A `GraphValues` with these ops; arguments as there."""

    def slice(self, name: str, x: Ref, start: int, stop: int) -> Ref:
        """Elements start..stop of the last axis."""
        assert 0 <= start < stop <= x.shape[-1]
        return self._op("Slice", name, [x], (*x.shape[:-1], stop - start), {"start": start, "stop": stop}, x.dtype)

    def part(self, name: str, x: Ref, axis: int, start: int, stop: int) -> Ref:
        """Elements start..stop of any axis, copied."""
        assert 0 <= start < stop <= x.shape[axis], (name, x.shape, start, stop)
        starts, steps = [start if at == axis else 0 for at in range(len(x.shape))], [1] * len(x.shape)
        shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
        attributes: dict[str, int | float | str] = {
            "starts": ",".join(map(str, starts)),
            "steps": ",".join(map(str, steps)),
        }
        return self._op("StridedSlice", name, [x], shape, attributes, x.dtype)

    def reshape(self, name: str, x: Ref, shape: Sequence[int]) -> Ref:
        """The same elements in another shape."""
        return self._op("Reshape", name, [x], tuple(shape), dtype=x.dtype)

    def gather(self, name: str, x: Ref, indices: Ref, axis: int) -> Ref:
        """x[indices] along an axis; `indices` is int32 [n]."""
        shape = (*x.shape[:axis], indices.shape[0], *x.shape[axis + 1 :])
        return self._op("Gather", name, [x, indices], shape, {"axis": axis}, x.dtype)

    def concat(self, name: str, parts: Sequence[Ref], axis: int) -> Ref:
        """Tensors side by side along an axis."""
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self._op("Concat", name, parts, tuple(shape), {"axis": axis}, parts[0].dtype)

    def transpose(self, name: str, x: Ref, axes: Sequence[int]) -> Ref:
        """Axis i of the result is axis `axes[i]` of x."""
        text = ",".join(map(str, axes))
        return self._op("Transpose", name, [x], tuple(x.shape[axis] for axis in axes), {"axes": text}, x.dtype)

    def all_gather(self, name: str, x: Ref, offset: int, width: int) -> Ref:
        """[.., n] -> [.., width]: this device's columns from `offset` on, and those of the others."""
        assert 0 <= offset <= width - x.shape[-1], (name, x.shape, offset, width)
        return self._op("AllGather", name, [x], (*x.shape[:-1], width), {"offset": offset}, x.dtype)
