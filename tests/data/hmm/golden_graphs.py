"""Graphs of the golden files that show what the container has: parts, ports, weights of several kinds."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from tcim_lite.hmm import Graph, Role, WeightData, packed_bytes

sys.path.insert(0, str(Path(__file__).parents[2]))
from graph_maker import GraphMaker


def pattern(nbytes: int, seed: int) -> np.ndarray:
    """Bytes that differ from each other and between weights."""
    return ((np.arange(nbytes, dtype=np.uint32) * 167 + seed * 31) >> 3).astype(np.uint8)


def minimal_graph() -> Graph:
    """x + x."""
    made = GraphMaker("min", "float32")
    x = made.input("x", [1, 1])
    return made.graph(made.op("Add", [x, x], "y", [1, 1]))


def every_op_graph(tokens: int) -> Graph:
    """One tiny attention block and one MLP: every op, state inputs, live rows, every kind of attribute."""
    hidden, heads, kv_heads, head_dim, context, inner = 64, 4, 2, 16, 32, 64
    qkv = (heads + 2 * kv_heads) * head_dim
    made, cache_shape = GraphMaker("every_op"), [1, kv_heads, context, head_dim]

    def op(kind: str, inputs: list[int], shape: list[int], **attributes: int | float | str) -> int:
        return made.op(kind, inputs, f"{kind}_{len(made.ops)}", shape, **attributes)

    x, (valid, current), (k_cache, v_cache) = made.ports([1, tokens, hidden], cache_shape)
    norm, qkv_weight, cos, sin, gate_up, down, bias, head = (
        made.weight(name, dtype, shape, format) for name, dtype, format, shape in WEIGHTS
    )

    normed = op("RMSNorm", [x, norm], [1, tokens, hidden], epsilon=1e-6)
    merged = op("Linear", [normed, qkv_weight], [1, tokens, qkv])
    parts = []
    for start, count in ((0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads)):
        stop = start + count
        sliced = op("Slice", [merged], [1, tokens, count * head_dim], start=start * head_dim, stop=stop * head_dim)
        parts.append(op("Reshape", [sliced], [1, tokens, count, head_dim]))
    q = op("Rope", [parts[0], cos, sin, valid], [1, tokens, heads, head_dim])
    k = op("Rope", [parts[1], cos, sin, valid], [1, tokens, kv_heads, head_dim])
    k_new = op("KVcache", [k, k_cache, valid, current], cache_shape)
    v_new = op("KVcache", [parts[2], v_cache, valid, current], cache_shape)
    attended = op("FlashAttention", [q, k_new, v_new, valid, current], [1, tokens, heads * head_dim], scale=0.25)
    residual = op("Add", [x, attended], [1, tokens, hidden])
    doubled = op("Linear", [residual, gate_up], [1, tokens, 2 * inner])
    activated = op("SiluMul", [doubled], [1, tokens, inner])
    projected = op("Linear", [activated, down, bias], [1, tokens, hidden])
    total = op("Add", [residual, projected], [1, tokens, hidden])
    last = op("BatchGather", [total, current], [1, 1, hidden])
    logits = op("Linear", [last, head], [1, 1, 20])
    return made.graph(logits, live_rows=current)


def part_graph(rank: int) -> Graph:
    """One of two devices: attention over two KV heads or one, then 16 or 4 of 20 outputs; both are gathered."""
    tokens, heads, first, outputs = 4, (2, 1)[rank], (0, 2)[rank], (16, 4)[rank]
    head_dim, context, width = 16, 32, 48
    rows, mine, start = [1, tokens, width], [1, tokens, heads * head_dim], first * head_dim
    made = GraphMaker(f"device_{rank}")
    x, lengths, caches = made.ports(rows, [1, heads, context, head_dim])
    norm = made.weight("norm", "float32", [width])
    head = made.weight("head", "float16", [outputs, width], "linear_f16", at=1 + rank)
    normed = made.op("RMSNorm", [x, norm], "normed", rows, epsilon=1e-6)
    part = made.op("Slice", [normed], "mine", mine, start=start, stop=start + heads * head_dim)
    part = made.op("Reshape", [part], "heads", [1, tokens, heads, head_dim])
    mixed = made.attention(part, lengths, caches, "mixed", mine)
    mixed = made.op("AllGather", [mixed], "all_mixed", rows, offset=start)
    part = made.op("Linear", [mixed, head], "part", [1, tokens, outputs])
    logits = made.op("AllGather", [part], "logits", [1, tokens, 20], offset=16 * rank)
    return made.graph(logits, live_rows=lengths[1])


def with_ports(graph: Graph) -> Graph:
    """The graph with a role and an exporter's name for every input of `part_graph`, and a role nobody knows yet."""
    named = {
        0: (Role("embeddings"), ["inputs_embeds"]),
        1: (Role("valid_length", slot=0), ["past_seq_length"]),
        2: (Role("current_length", slot=0), ["current_input_length"]),
        3: (Role("k_cache", 0, 0), ["past_key_cache_0", "ключи"]),
        4: (Role("v_cache", 0, 0), ["past_value_cache_0"]),
        graph.outputs[0]: (Role("a_later_role", layer=7), []),
    }
    values = [
        replace(value, role=named[id_][0], aliases=named[id_][1]) if id_ in named else value
        for id_, value in enumerate(graph.values)
    ]
    return replace(graph, values=values)


def ports_graph() -> Graph:
    """Attention of the rows with themselves, without a weight: one device's share of what `part_graph` does."""
    heads, head_dim, context = 2, 16, 32
    rows, made = [1, 4, heads * head_dim], GraphMaker("ports")
    x, lengths, caches = made.ports(rows, [1, heads, context, head_dim])
    heads_of_x = made.op("Reshape", [x], "heads", [1, 4, heads, head_dim])
    return with_ports(made.graph(made.attention(heads_of_x, lengths, caches, "mixed", rows), live_rows=lengths[1]))


def mul_graph() -> Graph:
    """(a + b) * a."""
    made, rows = GraphMaker("mul"), [1, 4, 20]
    a, b = (made.input(name, rows) for name in "ab")
    return made.graph(made.op("Mul", [made.op("Add", [a, b], "sum", rows), a], "product", rows))


def hidden_exponent_graph() -> Graph:
    """Linear in its second version."""
    made = GraphMaker("hidden_exponent")
    x, weight = made.input("x", [1, 4, 64]), made.weight("weight", "uint8", [20, 64], "linear_w8")
    return made.graph(made.op("Linear", [x, weight], "y", [1, 4, 20], activations="hidden_exponent"))


# name, dtype, format, shape
WEIGHTS = [
    ("norm", "float32", "dense", (64,)),
    ("qkv", "uint8", "linear_w4", (128, 64)),
    ("cos", "float16", "dense", (32, 8)),
    ("sin", "float16", "dense", (32, 8)),
    ("gate_up", "uint8", "linear_w8", (128, 64)),
    ("down", "float16", "linear_f16", (64, 64)),
    ("bias", "float32", "dense", (64,)),
    ("head", "float32", "linear_f32", (20, 64)),
]


def every_op_data() -> list[WeightData]:
    return [
        WeightData(name, dtype, format, shape, pattern(packed_bytes(format, shape, dtype), seed % 7))
        for seed, (name, dtype, format, shape) in enumerate(WEIGHTS)
    ]
