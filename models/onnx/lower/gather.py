"""Gather, and what is one behind other words: GatherND, GatherElements, Compress, ReverseSequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor, is_integer
from ..table import Call, Operand, lowers
from .box import box_of, boxed
from .integers import int32, kind_of, whole
from .shape import strided, take


@lowers("Gather")
def gather(call: Call) -> Tensor:
    x, indices = call.operand(0), call.operand(1)
    axis = call.axis(call.int_attr("axis", 0), len(x.shape))
    if isinstance(indices, Tensor):
        if not is_integer(indices.kind):
            raise call.node.unsupported("indices that are no integers")
        places: Tensor | int = call.reshape(indices, (math.prod(indices.shape),))
    else:
        flat = np.asarray(indices).reshape(-1)
        if flat.dtype.kind not in "iu":
            raise call.node.unsupported(f"indices that are {flat.dtype.name}, no integers")
        if flat.size == 0 or flat.min() < -x.shape[axis] or flat.max() >= x.shape[axis]:
            raise call.node.unsupported(f"indices beyond axis {axis} of {list(x.shape)}, or none")
        places = call.emit.weight(flat, "int32")
    kind = kind_of(x)
    count = math.prod(indices.shape)
    y = call.op(
        "Gather", [call.source(x), places], (*x.shape[:axis], count, *x.shape[axis + 1 :]), {"axis": axis}, kind
    )
    return call.reshape(y, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@lowers("GatherND")
def gather_nd(call: Call) -> Tensor:
    x, indices = call.tensor(0), call.operand(1)
    lead = call.int_attr("batch_dims", 0)
    if isinstance(indices, Tensor):
        return _computed_rows(call, x, indices, lead)
    indices = checked_rows(call, x, np.asarray(indices), lead)
    depth = indices.shape[-1]
    rest = x.shape[lead + depth :]
    if not lead and (box := box_of(indices)):
        return call.reshape(boxed(call, x, box), (*indices.shape[:-1], *rest))
    places = row_places(call, x, indices, lead)
    rows = call.reshape(x, (math.prod(x.shape[: lead + depth]), *rest))
    return call.reshape(take(call, rows, places.reshape(-1), 0), (*indices.shape[:-1], *rest))


def _computed_rows(call: Call, x: Tensor, indices: Tensor, lead: int) -> Tensor:
    """Rows that a Gather takes from counted axes that are one."""
    places = computed_places(call, x, indices, lead)
    shape = (math.prod(indices.shape[:-1]), *x.shape[lead + indices.shape[-1] :])
    rows = call.reshape(x, (math.prod(x.shape) // math.prod(shape[1:]), *shape[1:]))
    return call.reshape(_taken(call, rows, places, shape, 0), (*indices.shape[:-1], *shape[1:]))


def computed_places(call: Call, x: Tensor, indices: Tensor, lead: int) -> Tensor:
    """Places on all counted axes, and the `lead` before them, as one."""
    depth = indices.shape[-1] if indices.shape else 0
    if not is_integer(indices.kind):
        raise call.node.unsupported("indices that are no integers")
    if not 0 < depth + lead <= len(x.shape) or depth < 1 or lead < 0 or indices.shape[:lead] != x.shape[:lead]:
        raise call.node.unsupported(f"indices {list(indices.shape)} with {lead} batch_dims for {list(x.shape)}")
    batch, counted = math.prod(x.shape[:lead]), x.shape[lead : lead + depth]
    count = math.prod(indices.shape[:-1])
    places = call.reshape(indices, (count, depth))
    if depth > 1 or batch > 1:
        check_places(call, batch * math.prod(counted))
        places = int32(call, "Mul", from_front(call, places, counted), _steps(counted))
        if depth > 1:
            places = call.op("ReduceSum", [places], (count, 1), result="int")
        if batch > 1:
            of_batch = np.arange(call.places(batch))[:, None] * math.prod(counted)
            places = int32(call, "Add", call.reshape(places, (batch, count // batch)), of_batch)
    return places


def check_places(call: Call, count: int) -> None:
    """Refuses more places than int32 counts."""
    if count >= 1 << 31:
        raise call.node.unsupported(f"computed places among {count}; int32 counts up to 2^31 - 1")


def _steps(extents: tuple[int, ...]) -> NDArray[np.int64]:
    """Elements from one index of each axis to the next."""
    return np.array([math.prod(extents[i + 1 :]) for i in range(len(extents))])


def from_front(call: Call, indices: Tensor, extents: Sequence[int]) -> Tensor:
    """Indices of axes, which are columns here, counted from the front; one beyond either end is the end."""
    row = np.asarray(extents)
    behind = int32(call, "Mul", int32(call, "Less", indices, whole(0)), row)
    indices = int32(call, "Max", int32(call, "Add", indices, behind), whole(0))
    return int32(call, "Min", indices, row - 1)


def checked_rows(call: Call, x: Tensor, indices: NDArray[Any], lead: int) -> NDArray[np.int64]:
    """Indices [..., axes] of the axes of x behind `lead`, counted from the front.

    Raises:
        UnsupportedNodeError: They do not fit x, or one is beyond it.
    """
    depth = indices.shape[-1] if indices.ndim else 0
    counted = x.shape[lead : lead + depth]
    if (
        not 0 <= lead < indices.ndim
        or not 0 < depth <= len(x.shape) - lead
        or indices.shape[:lead] != x.shape[:lead]
        or indices.dtype.kind not in "iu"
    ):
        raise call.node.unsupported(f"indices {list(indices.shape)} with {lead} batch_dims for {list(x.shape)}")
    if indices.size == 0 or (indices < np.negative(counted)).any() or (indices >= counted).any():
        raise call.node.unsupported(f"indices beyond axes {lead} to {lead + depth - 1} of {list(x.shape)}, or none")
    return np.asarray(indices.astype(np.int64) % counted)


def row_places(call: Call, x: Tensor, indices: NDArray[np.int64], lead: int) -> NDArray[np.int64]:
    """The axes that `checked_rows` count become one, with the `lead` before them: every index a place on it."""
    depth = indices.shape[-1]
    counted = x.shape[lead : lead + depth]
    call.places(indices.size)
    places = indices @ _steps(counted)
    batches = np.arange(math.prod(x.shape[:lead])).reshape((*x.shape[:lead], *[1] * (places.ndim - lead)))
    return np.asarray(places + batches * math.prod(counted))


@lowers("GatherElements")
def gather_elements(call: Call) -> Operand:
    x, indices = call.operand(0), call.operand(1)
    if isinstance(indices, Tensor):
        return _computed_elements(call, call.as_tensor(x), indices)
    places = element_places(call, x, np.asarray(indices))
    if not isinstance(x, Tensor):  # the reference evaluator fails where the shapes differ
        return x.reshape(-1)[places]
    flat = call.reshape(x, (math.prod(x.shape),))
    return call.reshape(take(call, flat, places.reshape(-1), 0), indices.shape)


def element_places(call: Call, x: Operand, indices: NDArray[Any]) -> NDArray[np.int64]:
    """Where the elements that GatherElements or ScatterElements name lie in x."""
    axis = checked_axis(call, x, indices.shape)
    extent = x.shape[axis]
    if indices.dtype.kind not in "iu" or indices.size == 0 or indices.min() < -extent or indices.max() >= extent:
        raise call.node.unsupported(f"indices beyond axis {axis} of {list(x.shape)}, or none")
    call.places(indices.size)
    at: list[NDArray[Any]] = list(np.indices(indices.shape, sparse=True))
    at[axis] = indices.astype(np.int64) % extent
    return np.ravel_multi_index(tuple(np.broadcast_arrays(*at)), x.shape)


def checked_axis(call: Call, x: Operand, shape: tuple[int, ...]) -> int:
    """The axis of GatherElements or ScatterElements, for indices of a shape."""
    axis = call.axis(call.int_attr("axis", 0), len(x.shape))
    fits = len(shape) == len(x.shape) and all(
        part <= extent for i, (part, extent) in enumerate(zip(shape, x.shape, strict=True)) if i != axis
    )
    if not fits:
        raise call.node.unsupported(f"indices {list(shape)} for {list(x.shape)} and axis {axis}")
    return axis


def _computed_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Indices that repeat along the other axes take whole rows, others element by element."""
    shape, rank = indices.shape, len(x.shape)
    axis = checked_axis(call, x, shape)
    call.places(math.prod(shape))
    source, at = call.emit.source_of(indices)
    varying = [i for i in range(rank) if i != axis and (at != np.take(at, [0], i)).any()]
    if not varying:
        return _whole_rows(call, call.reshape(source, (math.prod(source.shape),)), x, shape, axis, at)
    count = call.places(math.prod(shape))
    check_places(call, math.prod(x.shape))
    places = from_front(call, call.reshape(indices, (count, 1)), [x.shape[axis]])
    others = list(np.indices(shape, sparse=True))
    others[axis] = np.zeros(shape, np.int64)
    first = np.ravel_multi_index(tuple(np.broadcast_arrays(*others)), x.shape).reshape(count, 1)
    places = int32(call, "Add", int32(call, "Mul", places, whole(math.prod(x.shape[axis + 1 :]))), first)
    flat = call.reshape(x, (math.prod(x.shape),))
    return call.reshape(_taken(call, flat, places, (count,), 0), shape)


def _whole_rows(
    call: Call, source: Tensor, x: Tensor, shape: tuple[int, ...], axis: int, at: NDArray[np.int64]
) -> Tensor:
    """Indices that repeat along the axes beside theirs: those of a Gather."""
    at = np.moveaxis(at, axis, 0).reshape(shape[axis], -1)[:, 0]
    extents = [x.shape[i] if i == axis else extent for i, extent in enumerate(shape)]
    x = strided(call, x, [0] * len(shape), [1] * len(shape), extents)
    if not np.array_equal(at, np.arange(source.shape[0])):
        source = take(call, source, at, 0)
    return _taken(call, x, source, shape, axis)


def _taken(call: Call, x: Tensor, indices: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
    """A Gather with computed indices."""
    if not is_integer(indices.kind):
        raise call.node.unsupported("indices that are no integers")
    places = call.reshape(indices, (math.prod(indices.shape),))
    return call.op("Gather", [x, places], shape, {"axis": axis}, x.kind)


@lowers("Compress")
def compress(call: Call) -> Tensor:
    x, condition = call.tensor(0), np.asarray(call.constant(1, "the condition")).reshape(-1)
    axis = call.attr("axis")
    if axis is None:
        x, axis = call.reshape(x, (math.prod(x.shape),)), 0
    axis = call.axis(axis, len(x.shape))
    places = np.flatnonzero(condition)
    if not places.size or places[-1] >= x.shape[axis]:
        raise call.node.unsupported(f"a condition that chooses nothing, or beyond axis {axis} of {list(x.shape)}")
    return take(call, x, places, axis)


@lowers("ReverseSequence")
def reverse_sequence(call: Call) -> Tensor:
    """The first elements of each sequence, as many as its length says, in the opposite order."""
    x, lengths = call.tensor(0), np.asarray(call.constant(1, "sequence_lens")).reshape(-1)
    time, batch = call.int_attr("time_axis", 0), call.int_attr("batch_axis", 1)
    if len(x.shape) < 2 or {time, batch} != {0, 1} or lengths.shape != (x.shape[batch],):
        raise call.node.unsupported(
            f"time_axis {time}, batch_axis {batch} and {lengths.size} lengths for {list(x.shape)}"
        )
    steps = x.shape[time]
    if lengths.dtype.kind not in "iu" or lengths.min() < 0 or lengths.max() > steps:
        raise call.node.unsupported(f"sequence_lens beyond the {steps} elements of axis {time}")
    call.places(x.shape[0] * x.shape[1])
    at = np.arange(steps)
    turned = np.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)  # [batch, time]
    ids = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2])
    ids = np.take_along_axis(ids if batch == 0 else ids.T, turned, 1)
    rows = call.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    return call.reshape(take(call, rows, (ids if batch == 0 else ids.T).reshape(-1), 0), x.shape)
