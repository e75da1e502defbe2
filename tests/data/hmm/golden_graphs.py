"""Graphs of the golden files that show what the container has: parts, ports, weights of several kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tcim_lite.hmm import (
    Graph,
    Op,
    Role,
    Value,
    WeightData,
    packed_bytes,
)


def pattern(nbytes: int, seed: int) -> np.ndarray:
    """Bytes that differ from each other and between weights."""
    return ((np.arange(nbytes, dtype=np.uint32) * 167 + seed * 31) >> 3).astype(np.uint8)


def minimal_graph() -> Graph:
    """x + x."""
    values = [Value("x", "input", "float32", [1, 1]), Value("y", "intermediate", "float32", [1, 1])]
    return Graph("min", values, [Op("Add", [0, 0], [1])], [0], [1])


def every_op_graph(tokens: int) -> Graph:
    """One tiny attention block and one MLP: every op, state inputs, live rows, every kind of attribute."""
    hidden, heads, kv_heads, head_dim, context, inner = 64, 4, 2, 16, 32, 64
    qkv = (heads + 2 * kv_heads) * head_dim
    values: list[Value] = []
    ops: list[Op] = []

    def value(
        name: str, kind: str, dtype: str, shape: list[int], format: str = "dense", weight: int | None = None
    ) -> int:
        values.append(Value(name, kind, dtype, shape, format, weight))
        return len(values) - 1

    def op(kind: str, inputs: list[int], shape: list[int], **attributes: int | float | str) -> int:
        output = value(f"{kind}_{len(ops)}", "intermediate", "float16", shape)
        ops.append(Op(kind, inputs, [output], attributes))
        return output

    x = value("input_1", "input", "float16", [1, tokens, hidden])
    valid = value("valid_length", "input", "int32", [1])
    current = value("current_length", "input", "int32", [1])
    cache_shape = [1, kv_heads, context, head_dim]
    k_cache = value("model_layers_0_self_attn_kcache_input", "state", "float16", cache_shape)
    v_cache = value("model_layers_0_self_attn_vcache_input", "state", "float16", cache_shape)
    norm, qkv_weight, cos, sin, gate_up, down, bias, head = (
        value(name, "weight", dtype, list(shape), format, index)
        for index, (name, dtype, format, shape) in enumerate(WEIGHTS)
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
    return Graph("every_op", values, ops, [x, valid, current, k_cache, v_cache], [logits], live_rows=current)


def part_graph(rank: int) -> Graph:
    """One of two devices: attention over two KV heads or one, then 16 or 4 of 20 outputs; both are gathered."""
    tokens, heads, first, outputs = 4, (2, 1)[rank], (0, 2)[rank], (16, 4)[rank]
    head_dim, context, width = 16, 32, 48
    cache = [1, heads, context, head_dim]
    rows, mine = [1, tokens, width], [1, tokens, heads * head_dim]
    values = [
        Value("input_1", "input", "float16", rows),
        Value("valid_length", "input", "int32", [1]),
        Value("current_length", "input", "int32", [1]),
        Value("model_layers_0_self_attn_kcache_input", "state", "float16", cache),
        Value("model_layers_0_self_attn_vcache_input", "state", "float16", cache),
        Value("norm", "weight", "float32", [width], weight=0),
        Value("head", "weight", "float16", [outputs, width], "linear_f16", weight=1 + rank),
        Value("normed", "intermediate", "float16", rows),
        Value("mine", "intermediate", "float16", mine),
        Value("heads", "intermediate", "float16", [1, tokens, heads, head_dim]),
        Value("keys", "intermediate", "float16", cache),
        Value("values", "intermediate", "float16", cache),
        Value("mixed", "intermediate", "float16", mine),
        Value("all_mixed", "intermediate", "float16", rows),
        Value("part", "intermediate", "float16", [1, tokens, outputs]),
        Value("logits", "intermediate", "float16", [1, tokens, 20]),
    ]
    start = first * head_dim
    ops = [
        Op("RMSNorm", [0, 5], [7], {"epsilon": 1e-6}),
        Op("Slice", [7], [8], {"start": start, "stop": start + heads * head_dim}),
        Op("Reshape", [8], [9]),
        Op("KVcache", [9, 3, 1, 2], [10]),
        Op("KVcache", [9, 4, 1, 2], [11]),
        Op("FlashAttention", [9, 10, 11, 1, 2], [12]),
        Op("AllGather", [12], [13], {"offset": start}),
        Op("Linear", [13, 6], [14]),
        Op("AllGather", [14], [15], {"offset": 16 * rank}),
    ]
    return Graph(f"device_{rank}", values, ops, [0, 1, 2, 3, 4], [15], live_rows=2)


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
    rows, cache = [1, 4, heads * head_dim], [1, heads, context, head_dim]
    values = [
        Value("input_1", "input", "float16", rows),
        Value("valid_length", "input", "int32", [1]),
        Value("current_length", "input", "int32", [1]),
        Value("model_layers_0_self_attn_kcache_input", "state", "float16", cache),
        Value("model_layers_0_self_attn_vcache_input", "state", "float16", cache),
        Value("heads", "intermediate", "float16", [1, 4, heads, head_dim]),
        Value("keys", "intermediate", "float16", cache),
        Value("values", "intermediate", "float16", cache),
        Value("mixed", "intermediate", "float16", rows),
    ]
    ops = [
        Op("Reshape", [0], [5]),
        Op("KVcache", [5, 3, 1, 2], [6]),
        Op("KVcache", [5, 4, 1, 2], [7]),
        Op("FlashAttention", [5, 6, 7, 1, 2], [8]),
    ]
    return with_ports(Graph("ports", values, ops, [0, 1, 2, 3, 4], [8], live_rows=2))


def mul_graph() -> Graph:
    """(a + b) * a."""
    rows = [1, 4, 20]
    values = [Value(name, "input", "float16", rows) for name in ("a", "b")]
    values += [Value(name, "intermediate", "float16", rows) for name in ("sum", "product")]
    return Graph("mul", values, [Op("Add", [0, 1], [2]), Op("Mul", [2, 0], [3])], [0, 1], [3])


def hidden_exponent_graph() -> Graph:
    """Linear in its second version."""
    values = [
        Value("x", "input", "float16", [1, 4, 64]),
        Value("weight", "weight", "uint8", [20, 64], "linear_w8", weight=0),
        Value("y", "intermediate", "float16", [1, 4, 20]),
    ]
    ops = [Op("Linear", [0, 1], [2], {"activations": "hidden_exponent"})]
    return Graph("hidden_exponent", values, ops, [0], [2])


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
