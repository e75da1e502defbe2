"""Casts of integers, and numbers around what the other types hold."""

from __future__ import annotations

import numpy as np

FLOAT, BOOL = {"to": 1}, {"to": 9}
# Around what float16 and float32 hold exactly, and the ends of int32.
NUMBERS = np.array(
    [
        0, 1, -1, 7, 2047, 2048, 2049, 2050, 2051, -2049, 4098, 65504, 65519, 65520, -65536,
        2**24 - 1, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**31 - 1, -(2**31),
    ]
)  # fmt: skip
INT = {"to": 7}
