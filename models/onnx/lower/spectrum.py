"""DFT and STFT, as products with the matrix of cosines and sines."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, lowers
from .shape import strided, take

_MAX_MATRIX = 1 << 23


@lowers("DFT")
def dft(call: Call) -> Tensor:
    """Of the elements of an axis, which are numbers, or pairs on the last axis."""
    x = call.floats(0)
    rank = len(x.shape)
    given = int(call.scalar(2, "the axis")) if call.has(2) else -2
    axis = call.axis(call.int_attr("axis", 1) if call.node.opset < 20 else given, rank)
    if rank < 2 or axis == rank - 1 or x.shape[-1] not in (1, 2):
        raise call.node.unsupported(f"axis {axis} of {list(x.shape)}; expected one before the last, which is 1 or 2")
    inverse, onesided = bool(call.int_attr("inverse", 0)), bool(call.int_attr("onesided", 0))
    count, parts = x.shape[axis], x.shape[-1]
    length = 2 * (count - 1) if inverse and onesided else count
    if call.has(1):
        length = int(call.scalar(1, "the length"))
    if inverse and onesided:
        count = min(count, length // 2 + 1)
        matrix = _to_real(call, count, length)
        shape = (length, 1)
    else:
        count = min(count, length)
        matrix = _matrix(call, count, length, parts, onesided, inverse)
        shape = (matrix.shape[1] // 2, 2)
    x = strided(call, x, [0] * rank, [1] * rank, [count if i == axis else extent for i, extent in enumerate(x.shape)])
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    x = call.transpose(x, order)
    y = call.reshape(_product(call, x, matrix), (*x.shape[:-2], *shape))
    return call.transpose(y, [order.index(i) for i in range(rank)])


@lowers("STFT")
def stft(call: Call) -> Tensor:
    """The DFT of frames, each times the window."""
    x, step = call.floats(0), int(call.scalar(1, "the step"))
    window = np.asarray(call.constant(2, "the window"), np.float64).reshape(-1) if call.has(2) else None
    if not call.has(3) and window is None:
        raise call.node.unsupported("neither a window nor a frame_length")
    length = int(call.scalar(3, "the frame_length")) if window is None or call.has(3) else window.size
    window = np.ones(length) if window is None else window
    x = call.reshape(x, (*x.shape, 1)) if len(x.shape) == 2 else x
    batch, count, parts = x.shape
    if not 0 < length <= count or step < 1 or window.size != length or parts not in (1, 2):
        raise call.node.unsupported(f"frames of {length} every {step}, a window of {window.size}, from {list(x.shape)}")
    frames = (count - length) // step + 1
    call.places(frames * length)
    x = take(call, x, (np.arange(frames)[:, None] * step + np.arange(length)).reshape(-1), 1)
    onesided = bool(call.int_attr("onesided", 1)) and parts == 1
    matrix = _matrix(call, length, length, parts, onesided, False) * np.repeat(window, parts)[:, None]
    y = _product(call, call.reshape(x, (batch, frames, length, parts)), matrix)
    return call.reshape(y, (batch, frames, matrix.shape[1] // 2, 2))


def _product(call: Call, x: Tensor, matrix: NDArray[np.float64]) -> Tensor:
    """[.., n, parts] times [n * parts, columns]; no Linear, which may be quantised."""
    rows = math.prod(x.shape[:-2])
    flat = call.reshape(x, (rows, matrix.shape[0]))
    return call.op("MatMul", [flat, call.emit.weight(matrix)], (rows, matrix.shape[1]))


def _angles(call: Call, rows: int, columns: int, length: int) -> NDArray[np.float64]:
    if min(rows, columns, length) < 1 or rows * columns > _MAX_MATRIX:
        raise call.node.unsupported(f"{rows} elements to {columns} frequencies; a matrix has at most {_MAX_MATRIX}")
    call.stores(rows * columns)
    return 2 * np.pi * (np.arange(rows)[:, None] * np.arange(columns) % length) / length


def _matrix(call: Call, count: int, length: int, parts: int, onesided: bool, inverse: bool) -> NDArray[np.float64]:
    """[count * parts, frequencies * 2]"""
    angles = _angles(call, count, length // 2 + 1 if onesided else length, length)
    turn = np.exp((1j if inverse else -1j) * angles) / (length if inverse else 1)
    rows = [np.stack([turn.real, turn.imag], axis=-1)]
    if parts == 2:
        rows.append(np.stack([-turn.imag, turn.real], axis=-1))
    return np.stack(rows, axis=1).reshape(count * parts, -1)


def _to_real(call: Call, count: int, length: int) -> NDArray[np.float64]:
    """[count * 2, length]: the frequencies that are not given are the conjugates of those that are."""
    angles = _angles(call, count, length, length)
    twice = np.full((count, 1), 2.0)
    twice[0] = 1
    if length % 2 == 0 and count == length // 2 + 1:
        twice[-1] = 1
    return np.stack([np.cos(angles) * twice, -np.sin(angles) * twice], axis=1).reshape(count * 2, length) / length
