"""Attention of onnxruntime's own domain, with caches of keys and values as operands and results."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, lowers, within_float32
from .cache import written_at
from .elementwise import binary, number, unary
from .integers import int32, to_floats
from .matmul import linear, product
from .microsoft import DOMAIN
from .rotary import rotated
from .shape import strided


@lowers("Attention", domain=DOMAIN)
def attention(call: Call) -> list[Tensor | None]:
    """Of products with one matrix for q, k and v; the cache [2, B, heads, P, D] has both."""
    if call.int_attr("do_rotary", 0) or call.int_attr("past_present_share_buffer", 0) or call.has(6):
        raise call.node.unsupported("rotary positions, or a cache that is longer than what it holds")
    x, weight = call.floats(0), np.asarray(call.constant(1, "the weight"))
    bias = np.asarray(call.constant(2, "the bias")) if call.has(2) else None
    both = linear(call, x, np.ascontiguousarray(weight.T), bias)
    sizes = call.attr("qkv_hidden_sizes") or [both.shape[-1] // 3] * 3
    if len(sizes) != 3 or sum(sizes) != both.shape[-1] or min(sizes) < 1:
        raise call.node.unsupported(f"qkv_hidden_sizes {sizes} of {both.shape[-1]} outputs")
    heads = [_split(call, part) for part in _parts(call, both, 2, sizes)]
    past: list[Tensor | None] = [None, None]
    if call.has(4):
        caches = call.floats(4)
        if len(caches.shape) != 5 or caches.shape[0] != 2:
            raise call.node.unsupported(f"a cache {list(caches.shape)}; expected five axes, the first of 2")
        past = [*(call.reshape(part, caches.shape[1:]) for part in _parts(call, caches, 0, [1, 1]))]
    k, v = (_after(call, old, new) for old, new in zip(past, heads[1:], strict=True))
    y = _attended(call, heads[0], k, v, call.get(3), call.get(5))
    if not any(call.node.outputs[1:]):
        return [y]
    pair = [call.reshape(part, (1, *part.shape)) for part in (k, v)]
    return [y, call.op("Concat", pair, (2, *k.shape), {"axis": 0})]


@lowers("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(call: Call) -> list[Tensor | None]:
    """Operands [B, T, heads * D]; k and v may be [B, heads, S, D], or be packed, as [B, T, heads, 3 or 2, D]."""
    if any(call.has(i) for i in range(8, 12)):
        raise call.node.unsupported("a cache that is longer than what it holds")
    packed = call.floats(1 if call.has(1) else 0)
    if len(packed.shape) == 5:
        first = 1 if call.has(1) else 0
        split = _parts(call, packed, 3, [1] * packed.shape[3])
        flat = [call.reshape(part, (*part.shape[:2], part.shape[2] * part.shape[4])) for part in split]
        parts = [call.floats(i) for i in range(first)] + flat
    else:
        parts = [call.floats(i) for i in range(3)]
    ranks = [len(part.shape) for part in parts]
    if ranks not in ([3, 3, 3], [3, 4, 4]) or (ranks[1] == 4 and (call.has(3) or call.has(6))):
        raise call.node.unsupported(f"operands {[list(part.shape) for part in parts]}; expected three axes each")
    if call.has(3):
        starts = np.cumsum([0, *(part.shape[2] for part in parts)])
        bias = np.asarray(call.constant(3, "the bias"), np.float32)
        parts = [binary(call, "Add", part, bias[starts[i] : starts[i + 1]]) for i, part in enumerate(parts)]
    heads = [_split(call, part) if len(part.shape) == 3 else part for part in parts]
    past = [call.floats(i) if call.has(i) else None for i in (6, 7)]
    k, v = (_after(call, old, new) for old, new in zip(past, heads[1:], strict=True))
    return [_attended(call, heads[0], k, v, call.get(4), call.get(5)), k, v]


@lowers("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(call: Call) -> list[Tensor | None]:
    """Causal, with a cache that may be longer than what it holds, norms of q and k, and rotary positions."""
    heads, groups = call.int_attr("num_heads", 1), call.int_attr("kv_num_heads", 1)
    if any(call.has(i) for i in range(11, call.count) if i not in (14, 15)) or call.int_attr("smooth_softmax", 0) > 0:
        raise call.node.unsupported("sinks, a smooth softmax, or a quantised cache")
    for name, usual in (("causal", 1), ("sliding_window_cache", 0), ("qk_output", 0)):
        if (given := call.int_attr(name, usual)) != usual:
            raise call.node.unsupported(f"{name} {given}; expected {usual}")
    x = call.floats(0)
    if len(x.shape) != 3 or heads < 1 or groups < 1 or heads % groups:
        raise call.node.unsupported(f"{heads} heads in {groups} groups of an operand {list(x.shape)}")
    if call.has(1):
        rows = [x, call.floats(1), call.floats(2)]
    else:
        size = x.shape[2] // (heads + 2 * groups)
        rows = _parts(call, x, 2, [heads * size, groups * size, groups * size])
    q, k, v = (_split(call, part, count) for part, count in zip(rows, (heads, groups, groups), strict=True))
    (batch, _, count, _), before = q.shape, _held(call, q)
    q, k = (_normed(call, part, *at) for part, at in ((q, (14, "q_norm_epsilon")), (k, (15, "k_norm_epsilon"))))
    if call.int_attr("do_rotary", 0):
        steps = np.arange(call.places(count))[None]
        places = call.operand(9) if call.has(9) else _sum(call, _column(call, before, 2), steps)
        tables, interleaved = (call.operand(7), call.operand(8)), bool(call.int_attr("rotary_interleaved", 0))
        q, k = (rotated(call, part, places, tables, interleaved) for part in (q, k))
    k, v = (_cached(call, call.floats(i) if call.has(i) else None, new, before) for i, new in ((3, k), (4, v)))
    seen = _window(call, before, batch, count, k.shape[2])
    bias = [call.operand(10)] if call.has(10) else []
    return [_result(call, q, k, v, bias, seen, float(call.attr("softcap", 0.0))), k, v]


def _normed(call: Call, x: Tensor, index: int, name: str) -> Tensor:
    """Rows by their root mean square times a weight, if the node has that operand."""
    if not call.has(index):
        return x
    weight = np.asarray(call.constant(index, "the weight of a norm"), np.float32).reshape(-1)
    if weight.shape != x.shape[-1:]:
        raise call.node.unsupported(f"a norm of {weight.size} numbers for rows of {x.shape[-1]}")
    epsilon = float(call.attr(name, call.attr("qk_norm_epsilon", 1e-6)))
    rows = call.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    weights = call.emit.weight(weight, "float32")
    return call.reshape(call.op("RMSNorm", [rows, weights], rows.shape, {"epsilon": epsilon}), x.shape)


def _held(call: Call, q: Tensor) -> Operand:
    """How many rows [B] each cache holds before the new ones: none before a prompt, which may be padded at its end."""
    total, (batch, _, count, _) = call.get(6), q.shape
    begins = not call.has(3) or (total is not None and not isinstance(total, Tensor) and int(total.max()) == count)
    if begins:
        return np.zeros(batch, np.int64)
    last = call.operand(5)
    if math.prod(last.shape) != batch:
        raise call.node.unsupported(f"seqlens_k {list(last.shape)}, expected {batch}")
    if isinstance(last, Tensor):
        return int32(call, "Add", call.reshape(last, (batch,)), np.asarray(1 - count))
    return np.asarray(last, np.int64).reshape(batch) + 1 - count


def _cached(call: Call, past: Tensor | None, new: Tensor, before: Operand) -> Tensor:
    """The cache with new rows. It grows where the number of all rows is a constant that it has no room for."""
    total = call.get(6)
    rows = 0 if total is None or isinstance(total, Tensor) else int(total.max())
    rows = max(rows, 0 if past is None else past.shape[2], new.shape[2] if past is None else 0)
    cache = new if past is None else past
    if cache.shape[:2] != new.shape[:2] or cache.shape[3] != new.shape[3]:
        raise call.node.unsupported(f"a cache {list(cache.shape)} for rows {list(new.shape)}")
    if rows > cache.shape[2]:
        cache = call.op("Pad", [cache], (*cache.shape[:2], rows, cache.shape[3]), {"begins": [0] * 4, "value": 0.0})
    return cache if past is None else written_at(call, cache, new, before, 2)


def _window(call: Call, before: Operand, batch: int, count: int, rows: int) -> Operand:
    """1 where a token [B, 1, T, 1] sees a row of the cache: not behind it, and not too far before."""
    call.stores(count * rows)
    ahead = (np.arange(rows) - np.arange(count)[:, None])[None, None]
    width = call.int_attr("local_window_size", -1)
    if not isinstance(before, Tensor):
        at = ahead - before.reshape(batch, 1, 1, 1)
        return np.asarray((at <= 0) & (at > -width) if width > 0 else at <= 0, np.float32)
    held = call.reshape(before, (batch, 1, 1, 1))
    seen = int32(call, "Less", ahead, int32(call, "Add", held, np.asarray(1)))
    if width > 0:
        near = int32(call, "Less", int32(call, "Sub", held, np.asarray(width)), ahead)
        seen = int32(call, "Mul", seen, near)
    return to_floats(call, seen)


def _column(call: Call, x: Operand, rank: int) -> Operand:
    shape = (x.shape[0], *[1] * (rank - 1))
    return call.reshape(x, shape) if isinstance(x, Tensor) else x.reshape(shape)


def _sum(call: Call, a: Operand, b: np.ndarray) -> Operand:
    return int32(call, "Add", a, b) if isinstance(a, Tensor) else a + b


def _parts(call: Call, x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    """Neighbouring parts of an axis."""
    starts, made = np.cumsum([0, *sizes]), []
    for start, size in zip(starts, sizes, strict=False):
        begin, extents = [0] * len(x.shape), list(x.shape)
        begin[axis], extents[axis] = int(start), size
        made.append(strided(call, x, begin, [1] * len(x.shape), extents))
    return made


def _split(call: Call, x: Tensor, heads: int | None = None) -> Tensor:
    """[B, T, heads * D] as [B, heads, T, D]."""
    count = call.int_attr("num_heads", 1) if heads is None else heads
    if count < 1 or len(x.shape) != 3 or x.shape[2] % count:
        raise call.node.unsupported(f"{count} heads of {x.shape[-1]} numbers")
    return call.transpose(call.reshape(x, (*x.shape[:2], count, x.shape[2] // count)), (0, 2, 1, 3))


def _after(call: Call, past: Tensor | None, new: Tensor) -> Tensor:
    if past is None:
        return new
    if len(past.shape) != 4 or past.shape[:2] != new.shape[:2] or past.shape[3] != new.shape[3]:
        raise call.node.unsupported(f"a cache {list(past.shape)} for rows {list(new.shape)}")
    shape = (*new.shape[:2], past.shape[2] + new.shape[2], new.shape[3])
    return call.op("Concat", [past, new], shape, {"axis": 2})


def _attended(call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Operand | None, bias: Operand | None) -> Tensor:
    """The mask has 1 for what is seen, or how many are; the bias is added to the scores."""
    (batch, _, count, _), seen = q.shape, k.shape[2]
    hidden, biases = number(call.attr("mask_filter_value", -10000.0)), []
    if mask is not None:
        mask = call.as_tensor(mask)
        if mask.shape == (batch,):
            mask = binary(call, "Less", np.arange(call.places(seen)), call.reshape(mask, (batch, 1)))
        if mask.shape not in ((batch, seen), (batch, count, seen)):
            raise call.node.unsupported(f"a mask {list(mask.shape)}, expected {[batch]}, {[batch, seen]}")
        mask = call.reshape(mask, (batch, 1, *(mask.shape[1:] if len(mask.shape) == 3 else (1, seen))))
        biases.append(binary(call, "Mul", binary(call, "Sub", number(1), to_floats(call, mask)), hidden))
    if call.int_attr("unidirectional", 0):
        call.stores(count * seen)
        biases.append(np.triu(np.ones((count, seen), np.float32), 1 + seen - count) * hidden)
    return _result(call, q, k, v, biases + ([] if bias is None else [bias]))


def _result(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    biases: Sequence[Operand],
    seen: Operand | None = None,
    cap: float = 0.0,
) -> Tensor:
    """softmax(q k^T * scale + biases) v as [B, T, heads * D], for heads in groups that share k and v."""
    (batch, heads, count, size), groups, rows = q.shape, k.shape[1], k.shape[2]
    if k.shape[0] != batch or k.shape[3] != size or v.shape[:3] != k.shape[:3] or heads % groups:
        raise call.node.unsupported(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit each other")
    scale = float(call.attr("scale", 0.0)) or 1 / math.sqrt(size)
    q = call.reshape(binary(call, "Mul", q, number(scale)), (batch, groups, heads // groups * count, size))
    scores = product(call, q, call.transpose(k, (0, 1, 3, 2)))
    shape = scores.shape
    if biases or seen is not None or cap:
        scores = call.reshape(scores, (batch, heads, count, rows))
    if cap:
        scores = binary(call, "Mul", unary(call, "Tanh", binary(call, "Mul", scores, number(1 / cap))), number(cap))
    for bias in biases:
        scores = binary(call, "Add", scores, bias)
    if seen is not None:
        lowest = call.source(np.full((1, 1, 1, 1), within_float32(-math.inf), np.float32))
        scores = call.op("Where", [call.source(seen), scores, lowest], scores.shape)
    y = product(call, call.reshape(call.op("Softmax", [scores], scores.shape), shape), v)
    y = call.reshape(y, (batch, heads, count, v.shape[3]))
    return call.reshape(call.transpose(y, (0, 2, 1, 3)), (batch, count, heads * v.shape[3]))
