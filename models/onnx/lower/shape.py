"""Ops that move elements: reshape, transpose, concatenate, split, pad."""

from __future__ import annotations

import math

import numpy as np

from tcim_lite.hmm.layout import MAX_WEIGHT_RANK

from ..emit import Tensor
from ..table import Call, Operand, constant_dtype, lowers, within_float32


@lowers("Shape")
def shape(call: Call) -> Operand:
    extents = call.operand(0).shape
    rank = len(extents)
    start, end = call.int_attr("start", 0), call.int_attr("end", rank)
    return np.asarray(extents[slice(start, end)], np.int64)


@lowers("Size")
def size(call: Call) -> Operand:
    return np.asarray(math.prod(call.operand(0).shape), np.int64)


@lowers("Reshape")
def reshape(call: Call) -> Tensor:
    x = call.tensor(0)
    wanted = call.ints(1, "the shape")
    if not call.int_attr("allowzero", 0):
        wanted = [x.shape[i] if extent == 0 and i < len(x.shape) else extent for i, extent in enumerate(wanted)]
    count = math.prod(x.shape)
    if wanted.count(-1) == 1:
        known = math.prod(extent for extent in wanted if extent != -1)
        wanted[wanted.index(-1)] = count // known if known else 0
    if math.prod(wanted) != count or min(wanted, default=1) < 1:
        raise call.node.unsupported(f"{list(x.shape)} does not reshape to {wanted}")
    return call.reshape(x, wanted)


@lowers("Flatten")
def flatten(call: Call) -> Tensor:
    x = call.tensor(0)
    axis = call.int_attr("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return call.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@lowers("Squeeze")
def squeeze(call: Call) -> Tensor:
    x = call.tensor(0)
    rank = len(x.shape)
    axes = (
        {call.axis(axis, rank) for axis in call.ints(1, "the axes")}
        if call.has(1)
        else {i for i, extent in enumerate(x.shape) if extent == 1}
    )
    if any(x.shape[axis] != 1 for axis in axes):
        raise call.node.unsupported(f"axes {sorted(axes)} of {list(x.shape)} are not all 1")
    return call.reshape(x, [extent for i, extent in enumerate(x.shape) if i not in axes])


@lowers("Unsqueeze")
def unsqueeze(call: Call) -> Tensor:
    x = call.tensor(0)
    axes = call.ints(1, "the axes")
    rank = len(x.shape) + len(axes)
    places = {call.axis(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise call.node.unsupported(f"axes {axes} name one twice")
    rest = iter(x.shape)
    return call.reshape(x, [1 if i in places else next(rest) for i in range(rank)])


@lowers("Transpose")
def transpose(call: Call) -> Tensor:
    x = call.tensor(0)
    axes = list(call.attr("perm", range(len(x.shape))[::-1]))
    if sorted(axes) != list(range(len(x.shape))):
        raise call.node.unsupported(f"perm {axes} of a tensor of rank {len(x.shape)}")
    return call.transpose(x, axes)


@lowers("Expand")
def expand(call: Call) -> Operand:
    x = call.tensor(0)
    target = np.broadcast_shapes(x.shape, tuple(call.ints(1, "the shape")))
    if 0 in target:  # for a ScatterND that changes nothing
        return np.zeros(target, constant_dtype(x.kind))
    return x if target == x.shape else call.op("Expand", [x], target, result=x.kind)


@lowers("Tile")
def tile(call: Call) -> Tensor:
    x = call.tensor(0)
    repeats = call.ints(1, "the repeats")
    if len(repeats) != len(x.shape):
        raise call.node.unsupported(f"{len(repeats)} repeats of a tensor of rank {len(x.shape)}")
    for axis, count in enumerate(repeats):  # [.., n, ..] as [.., 1, n, ..], repeated along the 1
        if count == 1:
            continue
        before, after = x.shape[:axis], x.shape[axis:]
        wide = call.op("Expand", [call.reshape(x, (*before, 1, *after))], (*before, count, *after), result=x.kind)
        x = call.reshape(wide, (*before, count * after[0], *after[1:]))
    return x


@lowers("Concat")
def concat(call: Call) -> Tensor:
    operands = [call.operand(i) for i in range(call.count)]
    operands = [operand for operand in operands if math.prod(operand.shape)]
    axis = call.axis(call.int_attr("axis", 0), len(operands[0].shape))
    shapes = [list(operand.shape) for operand in operands]
    total = sum(extents[axis] for extents in shapes)
    if any(extents[:axis] + extents[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :] for extents in shapes):
        raise call.node.unsupported(f"operands {shapes} do not fit side by side on axis {axis}")
    kinds = {call.as_tensor(operand).kind if not isinstance(operand, Tensor) else operand.kind for operand in operands}
    if len(kinds) > 1:
        raise call.node.unsupported("operands of integers and of floating point numbers")
    if len(operands) == 1:
        return call.as_tensor(operands[0])
    result = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    # A weight has no axes beyond those that a package holds, and a Concat needs all.
    is_long = len(result) > MAX_WEIGHT_RANK
    sources = [call.as_tensor(operand).id if is_long else call.source(operand) for operand in operands]
    return call.op("Concat", sources, result, {"axis": axis}, kinds.pop())


def strided(call: Call, x: Tensor, starts: list[int], steps: list[int], extents: list[int]) -> Tensor:
    """extents[i] elements of each axis from starts[i] on."""
    if tuple(extents) == x.shape and all(step == 1 for step in steps):
        return x
    return call.op("StridedSlice", [x], extents, {"starts": starts, "steps": steps}, x.kind)


@lowers("Split")
def split(call: Call) -> list[Operand]:
    x = call.tensor(0)
    axis = call.axis(call.int_attr("axis", 0), len(x.shape))
    count = len(call.node.outputs)
    if call.has(1):
        sizes = call.ints(1, "the sizes")
    else:
        part = -(-x.shape[axis] // call.int_attr("num_outputs", count))
        sizes = [min(part, x.shape[axis] - i * part) for i in range(count)]
    if len(sizes) != count or sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise call.node.unsupported(f"axis {axis} of {list(x.shape)} in parts of {sizes}")
    parts: list[Operand] = []
    start = 0
    for extent in sizes:
        starts, extents = [0] * len(x.shape), list(x.shape)
        starts[axis], extents[axis] = start, extent
        if extent:
            parts.append(strided(call, x, starts, [1] * len(x.shape), extents))
        else:  # for a Concat that leaves it out again
            parts.append(np.zeros(extents, constant_dtype(x.kind)))
        start += extent
    return parts


@lowers("Pad")
def pad(call: Call) -> Tensor:
    x = call.tensor(0)
    rank = len(x.shape)
    pads = call.ints(1, "the pads")
    axes = [call.axis(axis, rank) for axis in call.ints(3, "the axes")] if call.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        raise call.node.unsupported(f"{len(pads)} pads for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    if min(before + after) < 0:
        starts = [max(-begin, 0) for begin in before]
        extents = [
            size - max(-begin, 0) - max(-end, 0) for size, begin, end in zip(x.shape, before, after, strict=True)
        ]
        x = strided(call, x, starts, [1] * rank, extents)
        before, after = [max(begin, 0) for begin in before], [max(end, 0) for end in after]
    mode = call.attr("mode", "constant")
    if mode in ("reflect", "edge", "wrap"):
        return _pad_by_index(call, x, before, after, mode)
    if mode != "constant":
        raise call.node.unsupported(f"mode {mode!r}; expected constant, reflect, edge or wrap")
    value = call.scalar(2, "the value") if call.has(2) else 0.0
    shape = [begin + size + end for begin, size, end in zip(before, x.shape, after, strict=True)]
    if tuple(shape) == x.shape:
        return x
    if x.kind != "float":
        return _pad_integers(call, x, before, after, int(value))
    return call.op("Pad", [x], shape, {"begins": before, "value": within_float32(value)})


def _pad_integers(call: Call, x: Tensor, before: list[int], after: list[int], value: int) -> Tensor:
    """The constant side by side with the tensor, axis by axis."""
    constant = call.emit.weight(np.asarray([value]), "int32")
    for axis, sides in enumerate(zip(before, after, strict=True)):
        if not any(sides):
            continue
        shapes = [(*x.shape[:axis], side, *x.shape[axis + 1 :]) for side in sides]
        first, last = (call.op("Expand", [constant], shape, result=x.kind) if shape[axis] else None for shape in shapes)
        parts = [part for part in (first, x, last) if part is not None]
        total = (*x.shape[:axis], sum(part.shape[axis] for part in parts), *x.shape[axis + 1 :])
        x = call.op("Concat", parts, total, {"axis": axis}, x.kind)
    return x


def _pad_by_index(call: Call, x: Tensor, before: list[int], after: list[int], mode: str) -> Tensor:
    for axis, (begin, end) in enumerate(zip(before, after, strict=True)):
        if begin == end == 0:
            continue
        places = np.arange(call.places(begin + x.shape[axis] + end)) - begin
        if mode == "edge":
            places = np.clip(places, 0, x.shape[axis] - 1)
        elif mode == "wrap":
            places = places % x.shape[axis]
        else:
            period = max(2 * (x.shape[axis] - 1), 1)
            places = places % period
            places = np.minimum(places, period - places)
        x = take(call, x, places, axis)
    return x


def take(call: Call, x: Tensor, places: np.ndarray | Tensor, axis: int) -> Tensor:
    """The elements of an axis at places in a row."""
    extents = (*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :])
    at = places if isinstance(places, Tensor) else call.emit.weight(places, "int32")
    return call.op("Gather", [x, at], extents, {"axis": axis}, x.kind)


@lowers("Trilu")
def trilu(call: Call) -> Tensor:
    """Elements of the other triangle are taken from a zero behind the last."""
    x = call.tensor(0)
    if len(x.shape) < 2:
        raise call.node.unsupported(f"an operand of the shape {list(x.shape)}; expected at least two axes")
    *lead, rows, columns = x.shape
    count = call.places(rows * columns)
    diagonal = int(call.scalar(1, "k")) if call.has(1) else 0
    upper = bool(call.int_attr("upper", 1))
    kept = np.arange(columns) - np.arange(rows)[:, None]
    places = np.where(kept >= diagonal if upper else kept <= diagonal, np.arange(count).reshape(rows, columns), count)
    zero = call.source(np.zeros((*lead, 1), constant_dtype(x.kind)))
    flat = call.op("Concat", [call.reshape(x, (*lead, count)), zero], (*lead, count + 1), {"axis": len(lead)}, x.kind)
    return call.reshape(take(call, flat, places.reshape(-1), len(lead)), x.shape)


@lowers("DepthToSpace")
def depth_to_space(call: Call) -> Tensor:
    x, block = call.tensor(0), call.int_attr("blocksize", 1)
    if len(x.shape) != 4 or block < 1 or x.shape[1] % (block * block):
        raise call.node.unsupported(f"blocks of {block} from {list(x.shape)}")
    n, c, h, w = x.shape
    depth = c // (block * block)
    if call.attr("mode", "DCR") == "DCR":
        x = call.transpose(call.reshape(x, (n, block, block, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = call.transpose(call.reshape(x, (n, depth, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return call.reshape(x, (n, depth, h * block, w * block))


@lowers("SpaceToDepth")
def space_to_depth(call: Call) -> Tensor:
    x, block = call.tensor(0), call.int_attr("blocksize", 1)
    n, c, h, w = x.shape
    if block < 1 or h % block or w % block:
        raise call.node.unsupported(f"blocks of {block} from {list(x.shape)}")
    order = (0, 3, 5, 1, 2, 4) if call.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    x = call.transpose(call.reshape(x, (n, c, h // block, block, w // block, block)), order)
    return call.reshape(x, (n, c * block * block, h // block, w // block))
