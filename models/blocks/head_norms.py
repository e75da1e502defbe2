"""Norms of q and k where each head has its own: they centre rows, and those of all heads are one weight."""

from __future__ import annotations

from ..graphs.values import Ref
from ..weights import roles
from .part import GraphPart
from .weights import Weight


def head_norms_weight(head_dim: int, heads: int, kv_heads: int, turned: tuple[int, int]) -> Weight:
    """Their weights, and ones for v beside them."""
    q_rows, kv_rows = heads * head_dim, kv_heads * head_dim
    each = (head_dim,) * (heads + kv_heads)
    return Weight(roles.QKV_FACTORS, each, sections=(q_rows, kv_rows, kv_rows), turned=turned, ones=kv_rows)


def lower_head_norms(part: GraphPart, name: str, qkv: Ref, head_dim: int, layer: int) -> Ref:
    """q, k and v side by side -> the same with every head centred and normalised; v is as well, which nothing reads."""
    builder = part.builder
    heads = builder.reshape(f"{name}_apart", qkv, (*qkv.shape[:2], qkv.shape[2] // head_dim, head_dim))
    unit = builder.layer_norm(f"{name}_unit", heads, None, None, part.config.rms_norm_eps)
    row = builder.reshape(f"{name}_row", unit, qkv.shape)
    return builder.times(f"{name}_normed", row, part.weight(roles.QKV_FACTORS, layer))
