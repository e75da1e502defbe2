"""Rotary positions of onnxruntime's own domain: rows of constant or computed tables, and pairs of numbers turned."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, lowers
from .elementwise import binary
from .gather import gather
from .microsoft import DOMAIN, plain
from .shape import strided


@lowers("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(call: Call) -> Tensor:
    """x [B, T, heads * D] or [B, heads, T, D]; places [B, T], or [1], of the first token."""
    if call.int_attr("is_packed_batching", 0):
        raise call.node.unsupported("packed batches (is_packed_batching)")
    x, size = call.floats(0), call.int_attr("rotary_embedding_dim", 0)
    heads, tables = call.int_attr("num_heads", 0), (call.operand(2), call.operand(3))
    flat = len(x.shape) == 3
    if flat:
        width = size if heads and size else 2 * tables[0].shape[-1]
        heads = heads or x.shape[2] // max(width, 1)
        if heads < 1 or x.shape[2] % heads:
            raise call.node.unsupported(f"{heads} heads of {x.shape[2]} numbers")
        x = call.transpose(call.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))
    if len(x.shape) != 4:
        raise call.node.unsupported(f"an operand {list(x.shape)}; expected three or four axes")
    places = call.operand(1)
    if math.prod(places.shape) == 1 and x.shape[2] > 1:
        steps = np.arange(call.places(x.shape[2]))[None]
        places = binary(call, "Add", places, steps) if isinstance(places, Tensor) else places.reshape(-1)[0] + steps
    y = rotated(call, x, places, tables, bool(call.int_attr("interleaved", 0)))
    if not flat:
        return y
    return call.reshape(call.transpose(y, (0, 2, 1, 3)), call.floats(0).shape)


def rotated(call: Call, x: Tensor, places: Operand, tables: tuple[Operand, Operand], interleaved: bool) -> Tensor:
    """x [B, heads, T, D] with its first numbers turned by the rows [n, R / 2] of cos and sin at places [B, T]."""
    batch, heads, count, size = x.shape
    half = tables[0].shape[-1]
    if tuple(places.shape) not in ((batch, count), (1, count)) or tables[0].shape != tables[1].shape or 2 * half > size:
        raise call.node.unsupported(
            f"places {list(places.shape)} in tables {list(tables[0].shape)} for {list(x.shape)}"
        )
    cos, sin = (_rows(call, table, places, half) for table in tables)
    pairs = [batch, heads, count, 2 * half]
    turned = strided(call, x, [0] * 4, [1] * 4, pairs)
    step, second = (2, 1) if interleaved else (1, half)
    ends = [strided(call, turned, [0, 0, 0, at], [1, 1, 1, step], [*pairs[:3], half]) for at in (0, second)]
    a, b = (
        binary(call, op, binary(call, "Mul", ends[0], first), binary(call, "Mul", ends[1], other))
        for op, first, other in (("Sub", cos, sin), ("Add", sin, cos))
    )
    if interleaved:
        a, b = (call.reshape(part, (*part.shape, 1)) for part in (a, b))
        y = call.reshape(call.op("Concat", [a, b], (*a.shape[:-1], 2), {"axis": 4}), pairs)
    else:
        y = call.op("Concat", [a, b], pairs, {"axis": 3})
    if 2 * half == size:
        return y
    rest = strided(call, x, [0, 0, 0, 2 * half], [1] * 4, [*pairs[:3], size - 2 * half])
    return call.op("Concat", [y, rest], x.shape, {"axis": 3})


def _rows(call: Call, table: Operand, places: Operand, half: int) -> Operand:
    shape = (places.shape[0], 1, places.shape[1], half)
    if isinstance(table, Tensor) or isinstance(places, Tensor):
        return call.reshape(gather(plain(call, "Gather", [table, places], axis=0)), shape)
    if places.size and not 0 <= places.min() <= places.max() < table.shape[0]:
        raise call.node.unsupported(f"places up to {places.max()} in tables of {table.shape[0]} rows")
    return np.asarray(table[places], np.float32).reshape(shape)
