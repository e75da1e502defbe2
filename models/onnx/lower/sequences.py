"""Sequences of tensors whose lengths and places are constants: they exist while a network is compiled only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, Parts, lowers
from .shape import concat, split


@lowers("SequenceEmpty", "SequenceConstruct")
def construct(call: Call) -> Parts:
    return Parts([call.operand(i) for i in range(call.count)])


@lowers("Identity")
def identity(call: Call) -> Operand | Parts:
    """Of a tensor or a sequence, which loops hand on."""
    return call.parts(0) if isinstance(call.get(0), Parts) else call.operand(0)


@lowers("SplitToSequence")
def split_to_sequence(call: Call) -> Parts:
    x = call.operand(0)
    axis = call.axis(call.int_attr("axis", 0), len(x.shape))
    extent = call.places(x.shape[axis])
    if not call.has(1):
        sizes = [1] * extent
    elif np.asarray(call.constant(1, "the sizes")).ndim:
        sizes = call.ints(1, "the sizes")
    else:
        size = int(call.scalar(1, "the size"))
        if size < 1:
            raise call.node.unsupported(f"parts of {size} elements")
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    if min(sizes, default=0) < 1 or sum(sizes) != extent:
        raise call.node.unsupported(f"axis {axis} of {list(x.shape)} in parts of {sizes}")
    keep = call.has(1) or call.int_attr("keepdims", 1)
    parts = _parts(call, x, axis, sizes)
    return Parts(parts if keep else [_shaped(call, part, [*x.shape[:axis], *x.shape[axis + 1 :]]) for part in parts])


def _parts(call: Call, x: Operand, axis: int, sizes: list[int]) -> Sequence[Operand]:
    if not isinstance(x, Tensor):
        return [*np.split(x, np.cumsum(sizes)[:-1], axis)]
    node = replace(call.node, op="Split", outputs=[f"{i}" for i in range(len(sizes))], attributes={"axis": axis})
    return split(Call(node, [x, np.asarray(sizes)], call.emit))


def _shaped(call: Call, x: Operand, shape: Sequence[int]) -> Operand:
    return call.reshape(x, shape) if isinstance(x, Tensor) else x.reshape(shape)


@lowers("SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength")
def one_of(call: Call) -> Operand | Parts:
    """The place is the last operand, and the last place if it is left out."""
    items, inserts = list(call.parts(0).items), call.node.op == "SequenceInsert"
    if call.node.op == "SequenceLength":
        return np.asarray(len(items), np.int64)
    given = 2 if inserts else 1
    end = len(items) if inserts else len(items) - 1
    at = int(call.scalar(given, "the place")) if call.has(given) else end
    if not -len(items) <= at <= end:
        raise call.node.unsupported(f"place {at} of a sequence of {len(items)}")
    if call.node.op == "SequenceAt":
        return items[at]
    if inserts:
        items.insert(at, call.operand(1))
    else:
        del items[at]
    return Parts(items)


@lowers("ConcatFromSequence")
def concat_from_sequence(call: Call) -> Operand:
    items = list(call.parts(0).items)
    if not items:
        raise call.node.unsupported("an empty sequence")
    if call.int_attr("new_axis", 0):
        axis = call.axis(call.int_attr("axis", 0), len(items[0].shape) + 1)
        items = [_shaped(call, item, [*item.shape[:axis], 1, *item.shape[axis:]]) for item in items]
    if all(not isinstance(item, Tensor) for item in items) and sum(math.prod(item.shape) for item in items) < 1 << 16:
        return np.concatenate([np.asarray(item) for item in items], call.int_attr("axis", 0))
    return concat(Call(replace(call.node, op="Concat"), items, call.emit))
