"""Packed layouts of Linear weights: docs/hmm-format.md section 6."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.weight_format import BLOCK_OUTPUTS as BLOCK
from tcim_lite.hmm.weight_format import LAYOUTS, LINE_BYTES, WeightLayout

__all__ = ["BLOCK", "DTYPES", "block_bytes", "dequantize", "is_quantized", "pack", "unpack"]

DTYPES = {name: layout.dtype for name, layout in LAYOUTS.items()}


def is_quantized(fmt: str) -> bool:
    """Returns whether weights of format `fmt` carry codes and scales."""
    return LAYOUTS[fmt].scale_inputs > 0


def block_bytes(fmt: str, inputs: int) -> int:
    """Returns the bytes of one block of 16 outputs with `inputs` inputs."""
    return LAYOUTS[fmt].block_bytes(inputs)


def pack(fmt: str, values: NDArray[np.generic], scales: NDArray[np.generic] | None = None) -> NDArray[np.uint8]:
    """Packs a weight into blocks [ceil(N / 16), block bytes].

    Args:
        fmt: One of the linear formats.
        values: [N, K]: signed codes as int8, or weights of the format's dtype.
        scales: [N, K / scale_inputs] of the format's scale dtype; None for float formats.
    """
    layout = LAYOUTS[fmt]
    inputs = values.shape[1]
    if scales is None:
        rows = np.pad(_pad_rows(values, 0), ((0, 0), (0, -inputs % layout.line_inputs)))
        return _lines(rows.view(np.uint8))
    lines = _lines(_stored(layout, _pad_rows(values, 0)))
    assert scales.dtype == layout.scale_dtype
    tail = _scales_by_group(scales, 1 if layout.scale_dtype == "float16" else 0)
    # Units of codes, then their scales; zeros in the places that a last unit leaves.
    unit = layout.unit_inputs or inputs
    units = -(-inputs // unit)
    parts = [_in_units(lines, units, layout.line_bytes(unit)), _in_units(tail, units, layout.scale_bytes(unit))]
    blocks = np.concatenate(parts, axis=2).reshape(len(lines), -1)
    return np.pad(blocks, ((0, 0), (0, layout.block_bytes(inputs) - blocks.shape[1])))


def unpack(
    packed: bytes | memoryview | NDArray[np.uint8], fmt: str, outputs: int, inputs: int
) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    """Inverse of the packers.

    Args:
        packed: The bytes of the weight.
        fmt: Its format.
        outputs: N of the logical shape.
        inputs: K of the logical shape.

    Returns:
        What `pack` takes: signed codes [N, K] int8 and scales [N, K / scale_inputs]; float formats: the weights and
        None.
    """
    layout = LAYOUTS[fmt]
    blocks = np.frombuffer(packed, np.uint8).reshape(-1, layout.block_bytes(inputs))
    if not layout.scale_inputs:
        weights = _rows_of(blocks, -(-inputs // layout.line_inputs)).view(layout.dtype)
        return weights[:outputs, :inputs], None
    unit = layout.unit_inputs or inputs
    units, code_bytes = -(-inputs // unit), layout.line_bytes(unit)
    parts = blocks[:, : units * (code_bytes + layout.scale_bytes(unit))].reshape(len(blocks), units, -1)
    lines, tail = (part.reshape(len(blocks), -1) for part in (parts[..., :code_bytes], parts[..., code_bytes:]))
    codes = _codes(layout, _rows_of(lines, inputs // layout.line_inputs))
    groups = inputs // layout.scale_inputs
    used = np.ascontiguousarray(tail[:, : layout.scale_bytes(inputs)]).view(layout.scale_dtype)
    scales = used.reshape(-1, groups, BLOCK).transpose(0, 2, 1).reshape(-1, groups)
    return codes[:outputs], scales[:outputs]


def dequantize(codes: NDArray[np.generic], scales: NDArray[np.generic]) -> NDArray[np.float32]:
    """Returns the weights [N, K] that codes with fp16 scales or int8 exponents stand for; exact in fp32."""
    stored_exponents = scales.dtype == np.int8
    factor = np.ldexp(np.float32(1), scales.astype(np.int32)) if stored_exponents else scales.astype(np.float32)
    return codes.astype(np.float32) * np.repeat(factor, codes.shape[1] // scales.shape[1], axis=1)


def _pad_rows(rows: NDArray[Any], value: int) -> NDArray[Any]:
    missing = -len(rows) % BLOCK
    return np.pad(rows, ((0, missing), (0, 0)), constant_values=value) if missing else rows


def _stored(layout: WeightLayout, codes: NDArray[Any]) -> NDArray[np.uint8]:
    """Signed codes [rows, K] -> stored bytes [rows, bytes]: the four bytes of each line in turn."""
    stored = layout.encode(codes)
    if layout.line_inputs == 4:
        return stored
    halves = stored.reshape(len(codes), -1, 2, 4)
    return (halves[:, :, 0] | (halves[:, :, 1] << np.uint8(4))).reshape(len(codes), -1)


def _codes(layout: WeightLayout, stored: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Inverse of `_stored`."""
    if layout.line_inputs == 8:
        words = stored.reshape(len(stored), -1, 4)
        stored = np.stack((words & 15, words >> 4), axis=2).reshape(len(stored), -1)
    return layout.decode(stored)


def _lines(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bytes of outputs [16 * blocks, 4 * lines] -> [blocks, 64 * lines] with the four bytes of all 16 side by side."""
    units = np.ascontiguousarray(rows).view(np.uint32).reshape(-1, BLOCK, rows.shape[1] // 4)
    return np.ascontiguousarray(units.transpose(0, 2, 1)).view(np.uint8).reshape(len(units), -1)


def _rows_of(lines: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """Inverse of `_lines`, of the first `count` lines."""
    words = np.ascontiguousarray(lines[:, : count * LINE_BYTES]).view(np.uint32).reshape(len(lines), count, BLOCK)
    return np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(-1, count).view(np.uint8)


def _scales_by_group(scales: NDArray[Any], padding: int) -> NDArray[np.uint8]:
    rows = _pad_rows(scales, padding)
    blocks = rows.reshape(-1, BLOCK, rows.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(len(blocks), -1)


def _in_units(part: NDArray[np.uint8], units: int, unit_bytes: int) -> NDArray[np.uint8]:
    return np.pad(part, ((0, 0), (0, units * unit_bytes - part.shape[1]))).reshape(len(part), units, unit_bytes)
