"""MatMulNBits of onnxruntime's domain: a product with a matrix of codes, which is one of what the codes stand for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, lowers
from .matmul import linear
from .microsoft import DOMAIN


@lowers("MatMulNBits", domain=DOMAIN)
def matmul_nbits(call: Call) -> Tensor:
    """Rows [N] of blocks of codes, a scale and perhaps a zero for each block, times x [.., K]."""
    x, bits = call.floats(0), call.int_attr("bits", 4)
    outputs, inputs, block = (call.int_attr(name, 0) for name in ("N", "K", "block_size"))
    if bits not in (2, 4, 8) or block < 8 or min(outputs, inputs) < 1 or x.shape[-1:] != (inputs,):
        raise call.node.unsupported(
            f"codes of {bits} bits in blocks of {block}, N = {outputs}, K = {inputs}, for an operand {list(x.shape)}"
        )
    if call.has(4):
        raise call.node.unsupported("g_idx, an order of the inputs; expected the order of the operand")
    blocks = -(-inputs // block)
    call.stores(outputs * blocks * block)
    codes = _codes(call, 1, "the codes", bits, outputs, blocks * block).reshape(outputs, blocks, block)
    scales = _floats(call, 2, "the scales", outputs, blocks)
    if not call.has(3):
        zeros = np.full((1, 1, 1), 1 << (bits - 1), np.float32)
    elif call.constant(3, "the zeros").dtype == np.uint8:
        zeros = _codes(call, 3, "the zeros", bits, outputs, blocks)[:, :, None]
    else:
        zeros = _floats(call, 3, "the zeros", outputs, blocks)
    weight = ((codes - zeros) * scales).reshape(outputs, -1)[:, :inputs]
    return linear(call, x, weight, call.constant(5, "the bias") if call.has(5) else None)


def _codes(call: Call, index: int, what: str, bits: int, rows: int, columns: int) -> NDArray[np.float32]:
    """[rows, columns] of bytes that hold the first code in their lowest bits; a row begins with a byte."""
    data = np.asarray(call.constant(index, what))
    row_bytes = -(-columns * bits // 8)
    if data.dtype != np.uint8 or data.size != rows * row_bytes:
        raise call.node.unsupported(f"{what}: {data.size} of {data.dtype.name}, expected {rows * row_bytes} of uint8")
    parts = data.reshape(rows, row_bytes, 1) >> np.arange(0, 8, bits, dtype=np.uint8)
    return (parts & np.uint8((1 << bits) - 1)).reshape(rows, -1)[:, :columns].astype(np.float32)


def _floats(call: Call, index: int, what: str, rows: int, blocks: int) -> NDArray[np.float32]:
    """[rows, blocks, 1]"""
    array = np.asarray(call.constant(index, what))
    if array.size != rows * blocks or array.dtype.kind not in "fV":
        raise call.node.unsupported(f"{what}: {array.size} of {array.dtype.name}, expected {rows * blocks} floats")
    return array.astype(np.float32).reshape(rows, blocks, 1)
