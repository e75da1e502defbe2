"""Packed layouts of Linear weights: docs/hmm-format.md section 6."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.layout import BLOCK_OUTPUTS as BLOCK
from tcim_lite.hmm.layout import FORMAT_DTYPES as DTYPES
from tcim_lite.hmm.layout import GROUP, W4_PAIR_BYTES, packed_bytes

__all__ = ["BLOCK", "DTYPES", "block_bytes", "dequantize", "is_quantized", "pack_float", "pack_w4", "pack_w8", "unpack"]


_PAIR_CODES = 2 * GROUP * 8  # bytes of the codes of two groups


def is_quantized(fmt: str) -> bool:
    """Returns whether weights of format `fmt` carry codes and scales."""
    return fmt in ("linear_w4", "linear_w8")


def block_bytes(fmt: str, inputs: int) -> int:
    """Returns the bytes of one block of 16 outputs with `inputs` inputs."""
    return packed_bytes(fmt, (BLOCK, inputs), DTYPES[fmt])


def pack_w4(codes: NDArray[np.int8], scales: NDArray[np.float16]) -> NDArray[np.uint8]:
    """Packs codes [N, K] in -8..7 and scales [N, K / 64] into blocks [ceil(N / 16), block bytes]."""
    inputs = codes.shape[1]
    stored = (_pad_rows(codes, 0) + np.int8(8)).view(np.uint8).reshape(-1, BLOCK, inputs // 8, 2, 4)
    packed = stored[:, :, :, 0] | (stored[:, :, :, 1] << np.uint8(4))
    return _in_pairs(_across_outputs(packed), _scales_by_group(scales, 1))


def pack_w8(codes: NDArray[np.int8], exponents: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Packs codes [N, K] in -127..127 and exponents [N, K / 64] into blocks [ceil(N / 16), block bytes]."""
    inputs = codes.shape[1]
    # Adding 128 to a byte flips its top bit.
    stored = (_pad_rows(codes, 0).view(np.uint8) ^ np.uint8(0x80)).reshape(-1, BLOCK, inputs // 4, 4)
    return _blocks(_across_outputs(stored), _scales_by_group(exponents, 0))


def pack_float(weights: NDArray[np.floating], fmt: str) -> NDArray[np.uint8]:
    """Packs weights [N, K], already of the dtype of `fmt` (linear_f16 or linear_f32), into blocks."""
    rows = _pad_rows(weights, 0)
    if fmt == "linear_f16" and rows.shape[1] % 2:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    pair = 4 // rows.itemsize  # inputs in four bytes
    words = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, BLOCK, rows.shape[1] // pair, 4)
    return _across_outputs(words)


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
        linear_w4: codes [N, K] int8 and scales [N, K / 64] fp16. linear_w8: codes int8 and exponents int8.
        Float formats: the weights and None.
    """
    blocks = np.frombuffer(packed, np.uint8).reshape(-1, block_bytes(fmt, inputs))
    if not is_quantized(fmt):
        dtype = np.dtype(DTYPES[fmt])
        pair = 4 // dtype.itemsize
        words = blocks.reshape(len(blocks), -1, BLOCK, 4).transpose(0, 2, 1, 3)
        weights = np.ascontiguousarray(words).view(dtype).reshape(len(blocks) * BLOCK, -1)
        assert weights.shape[1] == -(-inputs // pair) * pair
        return weights[:outputs, :inputs], None
    groups = inputs // GROUP
    scale_dtype: np.dtype[Any]
    if fmt == "linear_w4":
        pairs = blocks.reshape(len(blocks), -1, W4_PAIR_BYTES)
        code_bytes, scale_dtype = groups * GROUP * 8, np.dtype(np.float16)
        stored, tail = (part.reshape(len(blocks), -1) for part in (pairs[..., :_PAIR_CODES], pairs[..., _PAIR_CODES:]))
    else:
        code_bytes, scale_dtype = groups * GROUP * 16, np.dtype(np.int8)
        stored, tail = blocks, blocks[:, code_bytes:]
    words = stored[:, :code_bytes].reshape(len(blocks), -1, BLOCK, 4).transpose(0, 2, 1, 3)
    if fmt == "linear_w4":
        codes = np.stack((words & 15, words >> 4), axis=3).astype(np.int8) - 8
    else:
        codes = np.ascontiguousarray(words ^ 0x80).view(np.int8)
    used = np.ascontiguousarray(tail[:, : groups * BLOCK * scale_dtype.itemsize])
    scales = used.view(scale_dtype).reshape(-1, groups, BLOCK).transpose(0, 2, 1).reshape(-1, groups)
    return codes.reshape(-1, inputs)[:outputs], scales[:outputs]


def dequantize(codes: NDArray[np.generic], scales: NDArray[np.generic]) -> NDArray[np.float32]:
    """Returns the weights [N, K] that codes with fp16 scales or int8 exponents stand for; exact in fp32."""
    stored_exponents = scales.dtype == np.int8
    factor = np.ldexp(np.float32(1), scales.astype(np.int32)) if stored_exponents else scales.astype(np.float32)
    return codes.astype(np.float32) * np.repeat(factor, GROUP, axis=1)


def _pad_rows(rows: NDArray, value: int) -> NDArray:
    missing = -len(rows) % BLOCK
    return np.pad(rows, ((0, missing), (0, 0)), constant_values=value) if missing else rows


def _across_outputs(words: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[blocks, 16, steps, 4] -> [blocks, bytes] with the four bytes of all 16 outputs side by side in each step."""
    count, _, steps, _ = words.shape
    units = np.ascontiguousarray(words).view(np.uint32).reshape(count, BLOCK, steps)
    return np.ascontiguousarray(units.transpose(0, 2, 1)).view(np.uint8).reshape(count, steps * 64)


def _scales_by_group(scales: NDArray, padding: int) -> NDArray[np.uint8]:
    rows = _pad_rows(scales, padding)
    blocks = rows.reshape(-1, BLOCK, rows.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(len(blocks), -1)


def _in_pairs(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of two groups, then their scales; zeros where a last group has no second."""
    count = len(codes)
    pairs = -(-scales.shape[1] // (W4_PAIR_BYTES - _PAIR_CODES))
    out = np.zeros((count, pairs, W4_PAIR_BYTES), np.uint8)
    for part, end in ((codes, slice(None, _PAIR_CODES)), (scales, slice(_PAIR_CODES, None))):
        missing = pairs * out[0, 0, end].size - part.shape[1]
        out[..., end] = np.pad(part, ((0, 0), (0, missing))).reshape(count, pairs, -1)
    return out.reshape(count, -1)


def _blocks(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    used = codes.shape[1] + scales.shape[1]
    out = np.zeros((len(codes), -(-used // 64) * 64), np.uint8)
    out[:, : codes.shape[1]] = codes
    out[:, codes.shape[1] : used] = scales
    return out
