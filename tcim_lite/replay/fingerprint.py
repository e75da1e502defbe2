"""The 64-bit fingerprint of recordings (docs/recording.md, section 3): as quick in numpy as in C++."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["fingerprint", "fingerprint_of_array"]

_BLOCK = 1024  # words of 8 bytes
_WORD = np.dtype("<u8")
_NO_WORDS = np.zeros(0, _WORD)
_FOLD = np.uint64(29)
_MASK = (1 << 64) - 1
_PRIME = 0x9E3779B97F4A7C15


def _multipliers() -> NDArray[np.uint64]:
    """splitmix64 of 0, 1, 2 and so on, made odd."""
    with np.errstate(over="ignore"):
        word = (np.arange(1, _BLOCK + 1, dtype=np.uint64)) * np.uint64(_PRIME)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (word ^ (word >> np.uint64(31))) | np.uint64(1)


_MULTIPLIERS = _multipliers()


def fingerprint(content: Any) -> int:
    """The fingerprint of anything with a contiguous buffer."""
    nbytes = memoryview(content).nbytes
    whole = nbytes // 8
    if nbytes % 8 == 0:
        words = np.frombuffer(content, _WORD) if nbytes else _NO_WORDS
    elif nbytes <= 8 * _BLOCK:
        words = np.frombuffer(bytes(content) + bytes(-nbytes % 8), _WORD)
    else:
        tail = bytes(np.frombuffer(content, np.uint8)[8 * whole :]) + bytes(-nbytes % 8)
        words = np.concatenate([np.frombuffer(content, _WORD, whole), np.frombuffer(tail, _WORD)])
    hashed = (nbytes * _PRIME) & _MASK
    for begin in range(0, words.size, _BLOCK):
        block = words[begin : begin + _BLOCK]
        # Folded, because the product of the top bit alone is the same for every odd multiplier; by 29, so that no sign
        # bit falls on another one.
        total = int(np.dot(block ^ (block >> _FOLD), _MULTIPLIERS[: block.size]))
        hashed ^= total
        hashed = ((hashed << 29 | hashed >> 35) * _PRIME) & _MASK
    return int(hashed ^ hashed >> 32)


def fingerprint_of_array(array: NDArray[Any]) -> int:
    """Of the elements in row-major order."""
    return fingerprint(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
