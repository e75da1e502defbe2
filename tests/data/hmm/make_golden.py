"""Writes the golden files and what they say beside this script: `python tests/data/hmm/make_golden.py [FOLDER]`.

A file that is here is never made anew: a new minor version gets files of its own.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from tcim_lite.hmm import (
    WHOLE,
    Graph,
    Op,
    Role,
    Sibling,
    Split,
    Value,
    WeightData,
    WeightsWriter,
    packed_bytes,
    read,
    write_model,
)
from tcim_lite.hmm.__main__ import summary

_PRODUCER = "tcim_lite golden"


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


def write_two_devices(path: Path, parts: list[Graph]) -> None:
    """The caches are cut along their heads, everything else is whole on both devices."""
    shapes = [
        ("norm", "float32", "dense", (48,)),
        ("head.0", "float16", "linear_f16", (16, 48)),
        ("head.1", "float16", "linear_f16", (4, 48)),
    ]
    weights = [WeightData(*row, pattern(packed_bytes(row[2], row[3], row[1]), i)) for i, row in enumerate(shapes)]
    split = Split([WHOLE, WHOLE, WHOLE, 1, 1], [WHOLE])
    write_model(path, parts, weights, split=split, producer=_PRODUCER)


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


def window_graph() -> Graph:
    """FlashAttention in its second version: a sliding window of 5."""
    rows, heads, cache = [1, 4, 32], [1, 4, 2, 16], [1, 2, 32, 16]
    values = [
        Value("x", "input", "float16", rows),
        Value("valid", "input", "int32", [1]),
        Value("current", "input", "int32", [1]),
        Value("k", "state", "float16", cache),
        Value("v", "state", "float16", cache),
        Value("heads", "intermediate", "float16", heads),
        Value("keys", "intermediate", "float16", cache),
        Value("values", "intermediate", "float16", cache),
        Value("y", "intermediate", "float16", rows),
    ]
    ops = [
        Op("Reshape", [0], [5]),
        Op("KVcache", [5, 3, 1, 2], [6]),
        Op("KVcache", [5, 4, 1, 2], [7]),
        Op("FlashAttention", [5, 6, 7, 1, 2], [8], {"window": 5}),
    ]
    return Graph("window", values, ops, [0, 1, 2, 3, 4], [8], live_rows=2)


def network_graph() -> Graph:
    """The ops that graphs from ONNX have, one behind the other."""
    image = [1, 2, 4, 6]
    values = [
        Value("x", "input", "float16", image),
        Value("scale", "weight", "float16", [2, 1, 1], weight=0),
        Value("kernel", "weight", "float16", [2, 18], weight=1),
        Value("places", "weight", "int32", [3], weight=2),
        Value("taps", "weight", "int32", [4, 2], weight=3),
        Value("shares", "weight", "float32", [4, 2], weight=4),
    ]
    ops: list[Op] = []

    def op(kind: str, inputs: list[int], shape: list[int], **attributes: int | float | str) -> int:
        values.append(Value(f"{kind}_{len(ops)}", "intermediate", "float16", shape))
        ops.append(Op(kind, inputs, [len(values) - 1], attributes))
        return len(values) - 1

    x = 0
    for kind in ["Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "PRelu", "Equal", "Less"]:
        x = op(kind, [x, 1], image, broadcast=1)
    for kind in [
        "Relu",
        "LeakyRelu",
        "Clip",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Silu",
        "Tanh",
        "Erf",
        "Gelu",
        "GeluTanh",
        "Elu",
        "Exp",
        "Log",
        "Softplus",
        "Sqrt",
        "Reciprocal",
        "Neg",
        "Abs",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Sin",
        "Cos",
        "Atan",
        "FakeQuantize",
    ]:
        x = op(kind, [x], image, alpha=0.5, beta=2.0)
    window = {"strides": "1,1", "pads": "1,1", "dilations": "1,1", "upsample": "1,1", "kernel": "3,3"}
    x = op("Conv", [x, 2], image, groups=1, **window)
    x = op("MaxPool", [x], image, **window)
    x = op("AveragePool", [x], image, extent="6,8", **window)
    x = op("Where", [x, x, 1], image)
    x = op("LayerNorm", [op("Softmax", [x], image, log=1)], image, epsilon=1e-5)
    x = op("Transpose", [x], [1, 2, 6, 4], axes="0,1,3,2")
    x = op("StridedSlice", [x], [1, 2, 3, 4], starts="0,0,5,0", steps="1,1,-2,1")
    x = op("Pad", [x], [1, 2, 4, 4], begins="0,0,1,0", value=-1.0)
    x = op("MatMul", [x, x], [1, 2, 4, 4])
    x = op("Gather", [x, 3], [1, 2, 3, 4], axis=2)
    x = op("Resample", [x, 4, 5], [1, 2, 3, 4], axis=3)
    x = op("Concat", [x, x], [1, 4, 3, 4], axis=1)
    for kind in ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1"]:
        x = op(kind, [x], [1, 4, 3, 1])
        x = op("Expand", [x], [1, 4, 3, 4])
    values += [
        Value("best", "intermediate", "float16", [1, 4, 3, 2]),
        Value("at", "intermediate", "int32", [1, 4, 3, 2]),
    ]
    best, at = len(values) - 2, len(values) - 1
    ops.append(Op("TopK", [x], [best, at], {"k": 2, "largest": 1}))
    return Graph("network", values, ops, [0], [best, at, op("Cast", [at], [1, 4, 3, 2])])


def network_data() -> list[WeightData]:
    scale = np.array([2, 0.5], np.float16)
    kernel = (np.arange(36) % 7 - 3).astype(np.float16)
    taps = np.array([[0, 1], [1, 2], [2, 3], [3, 3]], np.int32)
    return [
        WeightData("scale", "float16", "dense", (2, 1, 1), scale),
        WeightData("kernel", "float16", "dense", (2, 18), kernel),
        WeightData("places", "int32", "dense", (3,), np.array([3, 0, -1], np.int32)),
        WeightData("taps", "int32", "dense", (4, 2), taps),
        WeightData("shares", "float32", "dense", (4, 2), np.full((4, 2), 0.5, np.float32)),
    ]


def computed_rope_graph() -> Graph:
    """Heads of which the first half turns, by rows of cos and sin that are the result of an op."""
    values = [
        Value("x", "input", "float16", [1, 2, 3, 16]),
        Value("angles", "input", "float16", [1, 2, 4]),
        Value("cos", "intermediate", "float16", [1, 2, 4]),
        Value("sin", "intermediate", "float16", [1, 2, 4]),
        Value("y", "intermediate", "float16", [1, 2, 3, 16]),
    ]
    ops = [
        Op("Cos", [1], [2]),
        Op("Sin", [1], [3]),
        Op("Rope", [0, 2, 3], [4], {"tables": "computed", "rotary_dim": 8}),
    ]
    return Graph("computed_rope", values, ops, [0, 1], [4])


def resizer_graph() -> Graph:
    """An image of YUV420SP whose part a run chooses, and one that is whole."""
    values = [
        Value("image", "input", "uint8", [1, 24]),
        Value("crop", "input", "int32", [1, 10]),
        Value("colours", "weight", "float32", [3, 6], weight=0),
        Value("part", "intermediate", "float16", [1, 3, 2, 2]),
        Value("whole", "intermediate", "float16", [1, 3, 4, 4]),
    ]
    form = {"format": "YUV420SP", "height": 4, "width": 4, "fill": "1,2,3"}
    ops = [
        Op("Resizer", [0, 2, 1], [3], form),
        Op("Resizer", [0, 2], [4], form | {"crop": "0,0,4,4,3,4,1,0,0,0"}),
    ]
    return Graph("resizer", values, ops, [0, 1], [3, 4])


def moe_graph() -> Graph:
    """Three experts, two for a row: gate and up with biases, their product, down, and the sum."""
    values = [
        Value("x", "input", "float16", [1, 4, 64]),
        Value("router", "weight", "uint8", [3, 64], "linear_w8", weight=0),
        Value("gate_up", "weight", "uint8", [3, 128, 64], "linear_w4", weight=1),
        Value("gate_up_bias", "weight", "float32", [3, 128], weight=2),
        Value("down", "weight", "uint8", [3, 20, 64], "linear_w8", weight=3),
        Value("logits", "intermediate", "float16", [1, 4, 3]),
        Value("ids", "intermediate", "int32", [1, 4, 2]),
        Value("shares", "intermediate", "float16", [1, 4, 2]),
        Value("pairs", "intermediate", "float16", [1, 4, 2, 128]),
        Value("product", "intermediate", "float16", [1, 4, 2, 64]),
        Value("outs", "intermediate", "float16", [1, 4, 2, 20]),
        Value("y", "intermediate", "float16", [1, 4, 20]),
    ]
    ops = [
        Op("Linear", [0, 1], [5]),
        Op("MoERoute", [5], [6, 7], {"k": 2, "order": "softmax_topk", "normalise": 1}),
        Op("MoELinear", [0, 6, 2, 3], [8]),
        Op("SiluMul", [8], [9]),
        Op("MoELinear", [9, 6, 4], [10]),
        Op("MoECombine", [10, 7], [11]),
    ]
    return Graph("moe", values, ops, [0], [11])


def moe_data() -> list[WeightData]:
    return [
        WeightData(value.name, value.dtype, value.format, value.shape, pattern(size, value.weight))
        for value in moe_graph().values
        if value.weight is not None
        for size in [packed_bytes(value.format, value.shape, value.dtype)]
    ]


def linear_attention_graph() -> Graph:
    """A convolution, the delta rule with gates and a mask, and its gate: two heads of 4 keys and 8 values, one key."""
    values = [
        Value("x", "input", "float16", [1, 3, 24]),
        Value("current_length", "input", "int32", [1]),
        Value("mask", "input", "float16", [1, 3]),
        Value("gates", "input", "float16", [1, 3, 2]),
        Value("columns", "input", "float16", [1, 24, 4]),
        Value("state", "input", "float16", [1, 2, 4, 8]),
        Value("taps", "weight", "float32", [4, 24], weight=0),
        Value("rate", "weight", "float32", [2], weight=1),
        Value("bias", "weight", "float32", [2], weight=2),
        Value("mixed", "intermediate", "float16", [1, 3, 24]),
        Value("new_columns", "intermediate", "float16", [1, 24, 4]),
        Value("q_flat", "intermediate", "float16", [1, 3, 4]),
        Value("q", "intermediate", "float16", [1, 3, 1, 4]),
        Value("k_flat", "intermediate", "float16", [1, 3, 4]),
        Value("k", "intermediate", "float16", [1, 3, 1, 4]),
        Value("v_flat", "intermediate", "float16", [1, 3, 16]),
        Value("v", "intermediate", "float16", [1, 3, 2, 8]),
        Value("rows", "intermediate", "float16", [1, 3, 2, 8]),
        Value("new_state", "intermediate", "float16", [1, 2, 4, 8]),
        Value("y", "intermediate", "float16", [1, 3, 2, 8]),
    ]
    ops = [
        Op("CausalConv", [0, 4, 6, 1], [9, 10], {"activation": "silu"}),
        Op("Slice", [9], [11], {"start": 0, "stop": 4}),
        Op("Reshape", [11], [12]),
        Op("Slice", [9], [13], {"start": 4, "stop": 8}),
        Op("Reshape", [13], [14]),
        Op("Slice", [9], [15], {"start": 8, "stop": 24}),
        Op("Reshape", [15], [16]),
        Op("DeltaRule", [12, 14, 16, 5, 3, 3, 7, 8, 2], [17, 18], {"update_rule": "gated_delta"}),
        Op("GateMul", [17, 16], [19], {"function": "silu"}),
    ]
    return Graph("linear_attention", values, ops, [0, 1, 2, 3, 4, 5], [19, 10, 18], live_rows=1)


def linear_attention_data() -> list[WeightData]:
    return [
        WeightData("taps", "float32", "dense", (4, 24), np.arange(96, dtype=np.float32).reshape(4, 24) / 96),
        WeightData("rate", "float32", "dense", (2,), np.array([-0.5, -1], np.float32)),
        WeightData("bias", "float32", "dense", (2,), np.array([0, 1], np.float32)),
    ]


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


def make(folder: Path) -> None:
    write_model(folder / "minimal.hmm", minimal_graph(), [], producer=_PRODUCER)
    write_model(
        folder / "every_op.hmm", every_op_graph(4), every_op_data(), custom_msg='{"é": 1}', ncore=2, producer=_PRODUCER
    )
    with WeightsWriter(folder / "shared.hmw", producer=_PRODUCER) as weights:
        entries = [weights.add(w.name, w.dtype, w.format, w.shape, w.data) for w in every_op_data()]
        # A second name for the same content: stored once.
        weights.add("cos_again", "float16", "dense", (32, 8), every_op_data()[2].data)
    sibling = Sibling("shared.hmw", weights.id)
    write_model(folder / "external.hmm", every_op_graph(1), entries, sibling=sibling, producer=_PRODUCER)
    parts = [part_graph(0), part_graph(1)]
    write_two_devices(folder / "two_devices.hmms", parts)
    write_two_devices(folder / "ports_two_devices.hmms", [with_ports(part) for part in parts])
    write_model(folder / "ports.hmm", ports_graph(), [], producer=_PRODUCER)
    write_model(folder / "mul.hmm", mul_graph(), [], producer=_PRODUCER)
    weight = WeightData(
        "weight", "uint8", "linear_w8", (20, 64), pattern(packed_bytes("linear_w8", (20, 64), "uint8"), 3)
    )
    write_model(folder / "window.hmm", window_graph(), [], producer=_PRODUCER)
    write_model(folder / "computed_rope.hmm", computed_rope_graph(), [], producer=_PRODUCER)
    write_model(folder / "network.hmm", network_graph(), network_data(), producer=_PRODUCER)
    colours = WeightData("colours", "float32", "dense", (3, 6), np.arange(18, dtype=np.float32))
    write_model(folder / "resizer.hmm", resizer_graph(), [colours], producer=_PRODUCER)
    write_model(folder / "moe.hmm", moe_graph(), moe_data(), producer=_PRODUCER)
    path = folder / "linear_attention.hmm"
    write_model(path, linear_attention_graph(), linear_attention_data(), producer=_PRODUCER)
    write_model(folder / "hidden_exponent.hmm", hidden_exponent_graph(), [weight], producer=_PRODUCER)
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".hmm", ".hmms", ".hmw")):
        path.with_name(path.name + ".txt").write_text(summary(read(path)) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
