"""How matrices of a checkpoint become one: under each other, in turns, by heads, in pairs, or a part of one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .matrix import Alternating, Matrix, PairsApart, Rows, Stacked, Transposed, ZeroPadded
from .vectors import padded

if TYPE_CHECKING:
    from .spec import LinearSpec


def merged(spec: LinearSpec, parts: Sequence[Matrix]) -> Matrix:
    """Returns the matrix of a weight, of those of its tensors."""
    if spec.merge in ("keys_of_heads", "values_of_heads"):
        keys, values = spec.head_parts
        begin = spec.head * (keys + values)
        if spec.merge == "keys_of_heads":
            return Transposed(Rows(parts[0], begin, begin + keys))
        return Rows(parts[0], begin + keys, begin + keys + values)
    inputs = parts[0].shape[1] if spec.shape[1] == math.prod(spec.tensor_shapes[0][1:]) else spec.shape[1]
    if spec.merge == "alternate":
        if len(parts) == 1:
            half = parts[0].shape[0] // 2
            parts = [Rows(parts[0], 0, half), Rows(parts[0], half, 2 * half)]
        rows = padded(parts[0].shape[0], spec.merge, spec.multiple)
        first, second = (part if part.shape[0] == rows else ZeroPadded(part, (rows, inputs)) for part in parts)
        return Alternating(first, second)
    if spec.merge == "in_pairs":
        if len(parts) == 1:
            behind = zip(spec.sections, itertools.accumulate(spec.sections), strict=True)
            parts = [Rows(parts[0], end - rows, end) for rows, end in behind]
        parts = [*(PairsApart(part, *spec.turned) for part in parts[:-1]), parts[-1]]
    if spec.merge == "by_heads":
        packed, *others = parts
        ends = list(itertools.accumulate(spec.head_parts))
        each: list[Matrix] = [
            Rows(packed, head + end - size, head + end)
            for end, size in zip(ends, spec.head_parts, strict=True)
            for head in range(0, packed.shape[0], ends[-1])
        ]
        heads, last = packed.shape[0] // ends[-1], spec.head_parts[-1]
        if spec.pairs:
            each[-heads:] = [PairsApart(part, last, last) for part in each[-heads:]]
        parts = [*each[:heads], *others, *each[heads:]]
    stacked = parts[0] if len(parts) == 1 else Stacked(parts)
    return stacked if stacked.shape == (spec.shape[0], inputs) else ZeroPadded(stacked, (spec.shape[0], inputs))
