"""Graphs of the golden files that show the ops of a version, and their weights."""

from __future__ import annotations

import numpy as np
from golden_graphs import pattern

from tcim_lite.hmm import (
    Graph,
    Op,
    Value,
    WeightData,
    packed_bytes,
)


def window_graph(**attributes: float) -> Graph:
    """FlashAttention in its second version: a sliding window of 5; with other attributes in a later one."""
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
        Op("FlashAttention", [5, 6, 7, 1, 2], [8], {"window": 5, **attributes}),
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


def groups_graph() -> Graph:
    """Heads with a matrix each, and experts of the better of two groups."""
    values = [
        Value("x", "input", "float16", [1, 4, 2, 64]),
        Value("heads", "weight", "uint8", [2, 4, 64], "linear_w8", weight=0),
        Value("y", "intermediate", "float16", [1, 4, 2, 4]),
        Value("logits", "intermediate", "float16", [1, 4, 8]),
        Value("ids", "intermediate", "int32", [1, 4, 2]),
        Value("shares", "intermediate", "float16", [1, 4, 2]),
    ]
    ops = [
        Op("HeadLinear", [0, 1], [2]),
        Op("Reshape", [2], [3]),
        Op("MoERoute", [3], [4, 5], {"k": 2, "scores": "sigmoid", "normalise": 0, "groups": 2, "kept_groups": 1}),
    ]
    return Graph("groups", values, ops, [0], [5])


def moe_data() -> list[WeightData]:
    return [
        WeightData(value.name, value.dtype, value.format, value.shape, pattern(size, value.weight))
        for value in moe_graph().values
        if value.weight is not None
        for size in [packed_bytes(value.format, value.shape, value.dtype)]
    ]


def linear_attention_graph(*, steps: bool = False) -> Graph:
    """A convolution, the delta rule with gates and a mask, and its gate: two heads of 4 keys and 8 values, one key.

    With `steps`, what a state-space layer has for the delta rule.
    """
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
    rule = Op("DeltaRule", [12, 14, 16, 5, 3, 3, 7, 8, 2], [17, 18], {"update_rule": "gated_delta"})
    if steps:
        values.append(Value("skip", "weight", "float32", [2], weight=3))
        attributes = {"update_rule": "gated", "steps": "softplus", "scale": 1.0}
        rule = Op("DeltaRule", [14, 12, 16, 5, 3, 7, 8, 20, 2], [17, 18], attributes)
    ops = [
        Op("CausalConv", [0, 4, 6, 1], [9, 10], {"activation": "silu"}),
        Op("Slice", [9], [11], {"start": 0, "stop": 4}),
        Op("Reshape", [11], [12]),
        Op("Slice", [9], [13], {"start": 4, "stop": 8}),
        Op("Reshape", [13], [14]),
        Op("Slice", [9], [15], {"start": 8, "stop": 24}),
        Op("Reshape", [15], [16]),
        rule,
        Op("GateMul", [17, 16], [19], {"function": "silu"}),
    ]
    return Graph("linear_attention", values, ops, [0, 1, 2, 3, 4, 5], [19, 10, 18], live_rows=1)


def linear_attention_data() -> list[WeightData]:
    return [
        WeightData("taps", "float32", "dense", (4, 24), np.arange(96, dtype=np.float32).reshape(4, 24) / 96),
        WeightData("rate", "float32", "dense", (2,), np.array([-0.5, -1], np.float32)),
        WeightData("bias", "float32", "dense", (2,), np.array([0, 1], np.float32)),
        WeightData("skip", "float32", "dense", (2,), np.array([1, 0.5], np.float32)),
    ]
