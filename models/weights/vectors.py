"""The numbers of dense vectors: functions of them, and how those of several tensors become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .matrix import pairs_apart
from .packing import BLOCK

Merge: TypeAlias = Literal["stack", "alternate", "by_heads", "in_pairs", "keys_of_heads", "values_of_heads"]
Function: TypeAlias = Literal["same", "minus_exp", "softplus"]
Vector: TypeAlias = NDArray[np.float32]

FUNCTIONS: Mapping[Function, Callable[[Vector], Vector]] = {
    "same": lambda numbers: numbers,
    "softplus": lambda numbers: np.logaddexp(0, numbers.astype(np.float64)).astype(np.float32),
    "minus_exp": lambda numbers: -np.exp(numbers.astype(np.float64)).astype(np.float32),
}


def merged_length(lengths: Sequence[int], merge: Merge, multiple: int = 1) -> int:
    """Returns the rows of tensors of these `lengths` when merged."""
    return sum(padded(length, merge, multiple) for length in lengths)


def padded(rows: int, merge: Merge, multiple: int) -> int:
    """Returns the rows of one tensor when merged."""
    each = math.lcm(BLOCK, multiple) if merge == "alternate" else multiple
    return -(-rows // each) * each


def merged_vector(parts: Sequence[Vector], merge: Merge, multiple: int) -> Vector:
    """Returns tensors as one vector."""
    whole = [np.pad(part, (0, padded(len(part), merge, multiple) - len(part))) for part in parts]
    if merge != "alternate":
        return np.concatenate(whole)
    return np.stack([part.reshape(-1, BLOCK) for part in whole], axis=1).reshape(-1)


def in_order(
    parts: Sequence[Vector],
    merge: Merge,
    turned: tuple[int, int],
    head_parts: Sequence[int],
    sections: Sequence[int],
    pairs: bool = False,
) -> list[Vector]:
    """Returns tensors whose elements are in the order of the rows of a matrix that is merged so."""
    if merge == "in_pairs":
        order, whole = pairs_apart(*turned), len(parts) == 1
        *turning, last = np.split(parts[0], np.cumsum(sections)[:-1]) if whole else parts
        ordered = [*(part.reshape(-1, len(order))[:, order].reshape(-1) for part in turning), last]
        return [np.concatenate(ordered)] if whole else ordered
    if merge == "by_heads":
        heads = parts[0].reshape(-1, sum(head_parts))
        by_part = np.split(heads, np.cumsum(head_parts)[:-1], axis=1)
        if pairs:
            by_part[-1] = by_part[-1][:, pairs_apart(head_parts[-1], head_parts[-1])]
        first, *others = (part.reshape(-1) for part in by_part)
        return [np.concatenate((first, *parts[1:], *others))]
    return list(parts)
