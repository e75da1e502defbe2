"""AffineGrid, and GridSample: at constant places a table of places and weights, as Resize has one for each axis."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, Operand, lowers
from .elementwise import binary, number, unary
from .matmul import product
from .resize import MAX_TAPS, cubic_weights, linear_weights
from .sampling import by_axis, combined, sampled, within

_MODES = {"nearest": 0, "linear": 1, "bilinear": 1, "cubic": 2, "bicubic": 2}  # how far a kernel reaches
# Weights of the four taps, by the share of the way from the second to the third, for the coefficient -0.75.
_CUBIC = ((-0.75, 1.5, -0.75, 0.0), (1.25, -2.25, 0.0, 1.0), (-1.25, 1.5, 0.75, 0.0), (0.75, -0.75, 0.0, 0.0))


@lowers("AffineGrid")
def affine_grid(call: Call) -> Operand:
    """The coordinates of the places, 1 behind them, times theta."""
    theta, size = call.operand(0), call.ints(1, "the size")
    rank = len(size) - 2
    if rank not in (2, 3) or tuple(theta.shape) != (size[0], rank, rank + 1):
        raise call.node.unsupported(f"theta {list(theta.shape)} for a size of {size}")
    call.places(math.prod(size[2:]) if min(size[2:]) > 0 else 0)
    aligned = bool(call.int_attr("align_corners", 0))
    steps = [_centres(count, aligned) for count in size[2:]]
    axes = np.stack(np.meshgrid(*steps, indexing="ij")[::-1], axis=-1).reshape(-1, rank)  # x first
    places = np.concatenate([axes, np.ones((len(axes), 1))], axis=1).astype(np.float32)[None]
    shape = (size[0], *size[2:], rank)
    if isinstance(theta, Tensor):
        return call.reshape(product(call, places, call.transpose(call.as_floats(theta), (0, 2, 1))), shape)
    return (places @ np.asarray(theta, np.float32).swapaxes(1, 2)).reshape(shape)


def _centres(count: int, aligned: bool) -> NDArray[np.float64]:
    """Of the elements of an axis from -1 to 1; aligned ones have the first and last at the ends."""
    if aligned:
        return np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
    return (2 * np.arange(count) + 1) / count - 1


@lowers("GridSample")
def grid_sample(call: Call) -> Tensor:
    x, grid = call.floats(0), call.operand(1)
    rank = len(x.shape) - 2
    if rank not in (2, 3) or len(grid.shape) != rank + 2 or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise call.node.unsupported(f"a grid {list(grid.shape)} for an input {list(x.shape)}")
    if isinstance(grid, Tensor):
        return _at_computed(call, x, call.floats(1))
    grid = np.asarray(grid, np.float64)
    shape = (*x.shape[:2], *grid.shape[1:-1])
    flat = call.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
    if all(np.array_equal(other, grid[0]) for other in grid[1:]):
        return call.reshape(_sampled(call, flat, grid[:1], x.shape[2:]), shape)
    batch, channels, count = flat.shape
    row = call.reshape(call.transpose(flat, (1, 0, 2)), (1, channels, batch * count))  # of all images
    y = call.reshape(_sampled(call, row, grid, x.shape[2:]), (channels, batch, math.prod(shape[2:])))
    return call.reshape(call.transpose(y, (1, 0, 2)), shape)


def _sampled(call: Call, flat: Tensor, grids: NDArray[np.float64], sizes: tuple[int, ...]) -> Tensor:
    """[N, C, elements] at the places of grids, each of which is of the next image of a row."""
    places = grids.reshape(-1, len(sizes))
    indices, weights = np.zeros((len(places), 1), np.int64), np.ones((len(places), 1))
    for size, at in zip(sizes, places.T[::-1], strict=True):  # x, the first coordinate, is of the last axis
        own, share = _taps(call, at, size)
        if indices.size * own.shape[1] > MAX_TAPS:
            raise call.node.unsupported(f"more than {MAX_TAPS} taps")
        indices = (indices[:, :, None] * size + own[:, None]).reshape(len(places), -1)
        weights = (weights[:, :, None] * share[:, None]).reshape(len(places), -1)
    starts = np.repeat(np.arange(len(grids)) * math.prod(sizes), len(places) // len(grids))
    call.stores(indices.size)
    tables = [call.emit.weight(indices + starts[:, None], "int32"), call.emit.weight(weights, "float32")]
    return call.op("Resample", [flat, *tables], (*flat.shape[:2], len(places)), {"axis": 2})


def _modes(call: Call) -> tuple[int, str, bool]:
    """How far the kernel reaches, the padding, and whether corners are aligned."""
    mode, padding = call.attr("mode", "linear"), call.attr("padding_mode", "zeros")
    if mode not in _MODES or padding not in ("zeros", "border", "reflection"):
        raise call.node.unsupported(f"mode {mode!r:.40} with padding_mode {padding!r:.40}")
    return _MODES[mode], padding, bool(call.int_attr("align_corners", 0))


def _taps(call: Call, at: NDArray[np.float64], size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Indices and weights [places, taps] on an axis."""
    reach, padding, aligned = _modes(call)
    at = (at + 1) / 2 * (size - 1) if aligned else ((at + 1) * size - 1) / 2
    if not np.isfinite(at).all() or np.abs(at).max() > 2**31:
        raise call.node.unsupported("a grid with places that are no numbers, or far outside")
    if reach < 2:
        at = _inside(at, size, padding, aligned)
    if reach == 0:
        taps = np.rint(at).astype(np.int64)[:, None]
        weights = np.ones(taps.shape)
    else:
        taps = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        distance = np.abs(taps - at[:, None])
        weights = linear_weights(distance) if reach == 1 else cubic_weights(distance, -0.75)
    if padding == "zeros":
        weights = np.where((taps >= 0) & (taps < size), weights, 0)
    taps = np.rint(_inside(taps.astype(np.float64), size, padding, aligned)).astype(np.int64)
    return np.clip(taps, 0, size - 1), weights


def _inside(at: NDArray[np.float64], size: int, padding: str, aligned: bool) -> NDArray[np.float64]:
    """Places moved into the axis, as the padding says."""
    if padding == "border":
        return np.clip(at, 0, size - 1)
    if padding != "reflection":
        return at
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if high == low:
        return np.zeros_like(at)
    turned = np.mod(at - low, 2 * (high - low))
    return low + np.minimum(turned, 2 * (high - low) - turned)


def _at_computed(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    reach, padding, aligned = _modes(call)
    (batch, channels, *sizes), count = x.shape, math.prod(grid.shape[1:-1])
    extents = by_axis(sizes)
    at = call.transpose(call.reshape(grid, (batch, count, len(sizes))), (2, 0, 1))
    at = binary(call, "Mul", at, (extents - aligned) / 2)
    at = binary(call, "Add", at, (extents - 1) / 2)
    if reach > 1:
        y = _cubic(call, x, at, extents, aligned)
        return call.reshape(y, (batch, channels, *grid.shape[1:-1]))
    if padding == "reflection":
        at = _reflected(call, at, extents, aligned)
    if padding != "zeros":
        at = within(call, at, extents)
    y = sampled(call, x, at, padding == "zeros", reach == 0)
    return call.reshape(y, (batch, channels, *grid.shape[1:-1]))


def _cubic(call: Call, x: Tensor, at: Tensor, extents: NDArray[np.float32], aligned: bool) -> Tensor:
    """Of four taps on each axis, each moved into the axis as the padding says."""
    padding = call.attr("padding_mode", "zeros")
    first = unary(call, "Floor", at)
    share = binary(call, "Sub", at, first)
    taps = []
    for tap, (a, b, c, d) in zip(range(-1, 3), _CUBIC, strict=True):
        place = binary(call, "Add", first, number(tap))
        weight = binary(call, "Add", binary(call, "Mul", share, number(a)), number(b))
        for coefficient in (c, d):
            weight = binary(call, "Mul", weight, share)
            weight = binary(call, "Add", weight, number(coefficient)) if coefficient else weight
        if padding == "reflection":
            place = _reflected(call, place, extents, aligned)
        taps.append((place, weight))
    return combined(call, x, taps, padding == "zeros")


def _reflected(call: Call, at: Tensor, extents: NDArray[np.float32], aligned: bool) -> Tensor:
    """Turned round at the ends of the axes, which for corners that are not aligned are half an element further out."""
    low, span = number(0 if aligned else -0.5), np.maximum(extents - aligned, 1)
    at = binary(call, "Sub", at, low)
    turns = unary(call, "Floor", binary(call, "Div", at, 2 * span))
    at = binary(call, "Sub", at, binary(call, "Mul", turns, 2 * span))
    return binary(call, "Add", binary(call, "Min", at, binary(call, "Sub", 2 * span, at)), low)
