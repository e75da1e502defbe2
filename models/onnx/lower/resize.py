"""Resize: a table of places and weights for each axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, lowers
from .shape import take

MAX_TAPS = 1 << 22  # of an axis; real ones have some thousand


@lowers("Resize")
def resize(call: Call) -> Tensor:
    x = call.floats(0)
    rank = len(x.shape)
    axes = [call.axis(axis, rank) for axis in call.attr("axes", range(rank))]
    scales, sizes = _scales(call, x, axes)
    mode = call.attr("mode", "nearest")
    parts = _parts(call, axes)
    outside: list[tuple[int, NDArray[np.bool_]]] = []
    wanted = list(zip(axes, scales, sizes, parts, strict=True))
    if mode == "nearest":  # in any order: least work if what shrinks comes first, and what grows from the last axis on
        shrinking = [one for one in wanted if one[2] < x.shape[one[0]]]
        wanted = shrinking + [one for one in reversed(wanted) if one[2] >= x.shape[one[0]]]
    for axis, scale, size, part in wanted:
        if part is not None:
            positions = _places_in(part, x.shape[axis], call.places(size))
            outside.append((axis, (positions < 0) | (positions > x.shape[axis] - 1)))
        elif scale == 1.0 and size == x.shape[axis]:
            continue
        else:
            positions = _positions(call, x.shape[axis], size, scale)
        if mode == "nearest":
            x = take(call, x, _nearest(call, positions, x.shape[axis], scale), axis)
            continue
        indices, weights = _taps(call, mode, positions, x.shape[axis], scale)
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        tables = [call.emit.weight(indices, "int32"), call.emit.weight(weights, "float32")]
        x = call.op("Resample", [x, *tables], shape, {"axis": axis})
    for axis, places in outside:
        if places.any():
            along = [-1 if i == axis else 1 for i in range(rank)]
            value = np.asarray(call.attr("extrapolation_value", 0.0), np.float32).reshape([1] * rank)
            kept = call.source(np.asarray(places, np.float32).reshape(along))
            x = call.op("Where", [kept, call.source(value), x], x.shape)
    return x


def _parts(call: Call, axes: list[int]) -> list[tuple[float, float] | None]:
    """Of each axis where the part to resize begins and ends, from 0 to 1; None: all of it."""
    if call.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return [None] * len(axes)
    numbers = np.asarray(call.constant(1, "the part to resize (roi)"), np.float64).reshape(-1)
    if numbers.size != 2 * len(axes) or not np.isfinite(numbers).all() or np.abs(numbers).max() > 2**20:
        raise call.node.unsupported(f"a roi of {numbers.size} numbers for {len(axes)} axes")
    return [(float(numbers[i]), float(numbers[i + len(axes)])) for i in range(len(axes))]


def _places_in(part: tuple[float, float], size: int, out: int) -> NDArray[np.float64]:
    """Where each result lies in the part of an input that becomes it."""
    start, end = part
    if out == 1:
        return np.asarray([(start + end) / 2 * (size - 1)])
    return np.asarray(start * (size - 1) + np.arange(out) * ((end - start) * (size - 1) / (out - 1)), np.float64)


def _scales(call: Call, x: Tensor, axes: list[int]) -> tuple[list[float], list[int]]:
    if call.has(3):
        sizes = call.ints(3, "the size of its result")
        if len(sizes) != len(axes) or min(sizes) < 1:
            raise call.node.unsupported(f"sizes {sizes} for {len(axes)} axes")
        scales = [size / x.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        policy = call.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = min(scales) if policy == "not_larger" else max(scales)
            return [scale] * len(axes), [math.floor(scale * x.shape[axis] + 0.5) for axis in axes]
        return scales, sizes
    scales = [float(scale) for scale in np.asarray(call.constant(2, "its scale")).reshape(-1)]
    if len(scales) != len(axes) or min(scales) <= 0 or not all(map(math.isfinite, scales)):
        raise call.node.unsupported(f"scales {scales} for {len(axes)} axes")
    # In float32 as onnxruntime: 9 / 23 as a float32 times 23 is 9 then, and not a little less.
    sizes = [
        math.floor(np.float32(scale) * np.float32(x.shape[axis])) for scale, axis in zip(scales, axes, strict=True)
    ]
    return scales, sizes


def _positions(call: Call, size: int, out: int, scale: float) -> NDArray[np.float64]:
    """Where each result lies in the input, by coordinate_transformation_mode.

    Numbers are float32 as in onnxruntime: 1 / 0.33333334 is 3 then, and not a little less, which would be another
    element for the modes that take the nearest one.
    """
    return _places(call, size, out, np.float32(scale)).astype(np.float64)


def _places(call: Call, size: int, out: int, scale: np.float32) -> NDArray[np.float32]:
    mode = call.attr("coordinate_transformation_mode", "half_pixel")
    at, half = np.arange(call.places(out), dtype=np.float32), np.float32(0.5)
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        return at * np.float32(size - 1) / np.float32(out - 1) if out > 1 else at * np.float32(0)
    if mode == "pytorch_half_pixel" and out == 1:
        return at * np.float32(0)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (at + half) / scale - half
    if mode == "tf_half_pixel_for_nn":  # of opset 11 and 12; onnxruntime knows it in all
        return (at + half) / scale
    if mode == "half_pixel_symmetric":
        adjustment = np.float32(out) / (scale * np.float32(size))
        return np.float32(size) * half * (np.float32(1) - adjustment) + (at + half) / scale - half
    raise call.node.unsupported(
        f"coordinate_transformation_mode {mode!r}; expected half_pixel, pytorch_half_pixel, asymmetric, align_corners, "
        "half_pixel_symmetric, tf_half_pixel_for_nn or tf_crop_and_resize"
    )


def _nearest(call: Call, positions: NDArray[np.float64], size: int, scale: float) -> NDArray[np.int64]:
    mode = call.attr("nearest_mode", "round_prefer_floor")
    if isinstance(mode, tuple):
        mode = mode[scale < 1]
    # A float32 place may lie beside the middle of two elements that it is; onnxruntime allows as much.
    middle = np.floor(positions) + 0.5
    if str(mode).startswith("round"):
        positions = np.where(np.abs(positions - middle) <= 1e-6, middle, positions)
    rounding: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        "round_prefer_floor": lambda at: np.ceil(at - 0.5),
        "round_prefer_ceil": lambda at: np.floor(at + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if mode not in rounding:
        raise call.node.unsupported(f"nearest_mode {mode!r}")
    return np.asarray(np.clip(rounding[mode](positions), 0, size - 1), np.int64)


def _taps(
    call: Call, mode: str, positions: NDArray[np.float64], size: int, scale: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Indices and weights [out, taps] of linear or cubic interpolation."""
    # An antialiased kernel is widened where the result is smaller.
    shrink = min(scale, 1.0) if call.int_attr("antialias", 0) else 1.0
    reach = {"linear": 1, "cubic": 2}.get(mode)
    if reach is None:
        raise call.node.unsupported(f"mode {mode!r}")
    first = int(math.floor(-reach / shrink) + 1)
    taps = 2 - 2 * first
    if taps * len(positions) > MAX_TAPS:
        raise call.node.unsupported(f"kernels of {taps} taps for an axis of {len(positions)} elements")
    call.stores(taps * len(positions))
    base = np.floor(positions)
    indices = base[:, None].astype(np.int64) + np.arange(first, first + taps)
    distance = np.abs((indices - positions[:, None]) * shrink)
    weights = (
        linear_weights(distance) if mode == "linear" else cubic_weights(distance, call.attr("cubic_coeff_a", -0.75))
    )
    if call.int_attr("exclude_outside", 0):
        weights = np.where((indices >= 0) & (indices < size), weights, 0)
    return np.clip(indices, 0, size - 1), weights / weights.sum(axis=1, keepdims=True)


def linear_weights(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(1 - distance, 0, 1)


def cubic_weights(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
