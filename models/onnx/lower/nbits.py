"""Ops of onnxruntime's domain whose weights are codes, computed with what the codes stand for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, Operand, lowers
from .attention import attention
from .elementwise import binary
from .fused import embed
from .gather import gather
from .integers import to_floats
from .matmul import linear
from .microsoft import DOMAIN, plain
from .quantised import constant_codes
from .recurrent import recurrent


@lowers("MatMulNBits", domain=DOMAIN)
def matmul_nbits(call: Call) -> Tensor:
    """Rows [N] of blocks of codes, a scale and perhaps a zero for each block, times x [.., K]."""
    x, bits = call.floats(0), call.int_attr("bits", 4)
    outputs, inputs, block = (call.int_attr(name, 0) for name in ("N", "K", "block_size"))
    if bits not in (2, 4, 8) or block < 8 or min(outputs, inputs) < 1 or x.shape[-1:] != (inputs,):
        raise call.node.unsupported(
            f"codes of {bits} bits in blocks of {block}, N = {outputs}, K = {inputs}, for an operand {list(x.shape)}"
        )
    if call.int_attr("weight_prepacked", 0):
        raise call.node.unsupported("codes in the layout of one device (weight_prepacked)")
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


@lowers("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_product(call: Call) -> Tensor:
    """x is not rounded to codes first, as for MatMulInteger of DynamicQuantizeLinear."""
    return _product(call, call.floats(0), constant_codes(call, 1, 2, 3, -1, "the weight"), 4)


@lowers("MatMulIntegerToFloat", domain=DOMAIN)
def product_of_codes(call: Call) -> Tensor:
    """Of codes whose scale and zero point the network may compute."""
    return _product(call, _decoded(call, 2, 4), constant_codes(call, 1, 3, 5, -1, "the weight"), 6)


@lowers("QAttention", domain=DOMAIN)
def attention_of_codes(call: Call) -> list[Tensor | None]:
    """Attention of codes, whose scale and zero point the network may compute."""
    weight = constant_codes(call, 1, 4, 7, -1, "the weight")
    past = [call.get(8)] if call.has(8) else []
    operands = [_decoded(call, 3, 6), weight, call.operand(2), call.get(5), *past]
    return attention(Call(call.node, operands, call.emit))


@lowers("QEmbedLayerNormalization", domain=DOMAIN)
def embedding_of_codes(call: Call) -> list[Tensor | None]:
    """The scales come six operands behind the tables, scale and bias, the zero points eleven."""
    tables = [
        constant_codes(call, index, index + 6, index + 11, -1, "a table") if call.has(index) else None
        for index in range(2, 7)
    ]
    return embed(Call(call.node, [call.operand(0), call.get(1), *tables, call.get(7)], call.emit))


def _decoded(call: Call, scale_at: int, zero_at: int) -> Tensor:
    """What the codes of the first operand stand for."""
    x = to_floats(call, call.tensor(0))
    if call.has(zero_at):
        zero = call.operand(zero_at)
        x = binary(call, "Sub", x, to_floats(call, zero) if isinstance(zero, Tensor) else zero.astype(np.float32))
    scale = call.operand(scale_at)
    return binary(call, "Mul", x, scale if isinstance(scale, Tensor) else scale.astype(np.float32))


def _product(call: Call, x: Tensor, weight: NDArray[np.float32], bias: int) -> Tensor:
    if weight.ndim != 2 or x.shape[-1] != weight.shape[0]:
        raise call.node.unsupported(f"operands {list(x.shape)} and {list(weight.shape)} do not fit each other")
    return linear(call, x, np.ascontiguousarray(weight.T), call.constant(bias, "the bias") if call.has(bias) else None)


@lowers("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_lstm(call: Call) -> list[Tensor | None]:
    """Weights [directions, inputs, 4 H] of codes, turned round for LSTM."""
    weights: list[Operand | None] = []
    for index, scale, zero in ((1, 8, 9), (2, 10, 11)):
        codes = np.asarray(call.constant(index, "the weight"), np.float32)
        if codes.ndim != 3:
            raise call.node.unsupported(f"a weight {list(codes.shape)}; expected three axes")
        numbers = [
            np.asarray(call.constant(i, "a scale or zero point"), np.float32).reshape(len(codes), 1, -1)
            for i in (scale, zero)
        ]
        weights.append(np.ascontiguousarray(((codes - numbers[1]) * numbers[0]).transpose(0, 2, 1)))
    return recurrent(plain(call, "LSTM", [call.get(0), *weights, *(call.get(i) for i in range(3, 8))]))


@lowers("GatherBlockQuantized", domain=DOMAIN)
def rows_of_codes(call: Call) -> Operand:
    """Of a table [.., K] of codes with a scale, and perhaps a zero, for each block of the last axis."""
    codes, scales = np.asarray(call.constant(0, "the codes")), np.asarray(call.constant(2, "the scales"), np.float32)
    block, bits = call.int_attr("block_size", 128), call.int_attr("bits", 4)
    axis = call.axis(call.int_attr("quantize_axis", 1), codes.ndim)
    packed = codes.dtype == np.uint8 and bits < 8
    if (
        bits not in (4, 8)
        or axis != codes.ndim - 1
        or block < 1
        or call.int_attr("gather_axis", 0) not in (0, -axis - 1)
    ):
        raise call.node.unsupported(f"codes of {bits} bits in blocks of {block} of axis {axis} of {list(codes.shape)}")
    if packed:
        codes = _codes(call, 0, "the codes", bits, codes.size // codes.shape[-1], codes.shape[-1] * 2)
        codes = codes.reshape(*scales.shape[:-1], -1)
    columns = codes.shape[-1]
    if scales.shape != (*codes.shape[:-1], -(-columns // block)):
        raise call.node.unsupported(f"scales {list(scales.shape)} for codes {list(codes.shape)} in blocks of {block}")
    call.stores(codes.size)
    if not call.has(3):
        zeros = np.full((1,) * codes.ndim, 1 << (bits - 1) if packed or codes.dtype == np.uint8 else 0, np.float32)
    elif packed:
        zeros = _codes(call, 3, "the zeros", bits, scales.size // scales.shape[-1], scales.shape[-1]).reshape(
            scales.shape
        )
    else:
        zeros = np.asarray(call.constant(3, "the zeros"), np.float32)
    zeros, scales = (
        np.repeat(np.broadcast_to(part, scales.shape), block, axis=-1)[..., :columns] for part in (zeros, scales)
    )
    table = (codes.astype(np.float32) - zeros) * scales
    return gather(plain(call, "Gather", [table, call.operand(1)], axis=0))


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
