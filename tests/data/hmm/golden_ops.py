"""Graphs of the golden files that show the ops of a version, and their weights."""

from __future__ import annotations

import numpy as np
from golden_graphs import GraphMaker, pattern

from tcim_lite.hmm import Graph, Op, WeightData, packed_bytes

ROUTED = {"ids": ("int32", [1, 4, 2]), "shares": ("float16", [1, 4, 2])}


def window_graph(**attributes: float) -> Graph:
    """FlashAttention in its second version: a sliding window of 5; with other attributes in a later one."""
    made, rows = GraphMaker("window"), [1, 4, 32]
    x = made.input("x", rows)
    lengths = [made.input(name, [1], "int32") for name in ("valid", "current")]
    caches = [made.input(name, [1, 2, 32, 16], kind="state") for name in "kv"]
    heads = made.op("Reshape", [x], "heads", [1, 4, 2, 16])
    y = made.attention(heads, lengths, caches, "y", rows, window=5, **attributes)
    return made.graph(y, live_rows=lengths[1])


def network_graph() -> Graph:
    """The ops that graphs from ONNX have, one behind the other."""
    made, image = GraphMaker("network"), [1, 2, 4, 6]
    x = made.input("x", image)
    scale, kernel, places, taps, shares = (
        made.weight(data.name, data.dtype, data.shape, data.format) for data in network_data()
    )

    def op(kind: str, inputs: list[int], shape: list[int], **attributes: int | float | str) -> int:
        return made.op(kind, inputs, f"{kind}_{len(made.ops)}", shape, **attributes)

    for kind in ["Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "PRelu", "Equal", "Less"]:
        x = op(kind, [x, scale], image, broadcast=1)
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
    x = op("Conv", [x, kernel], image, groups=1, **window)
    x = op("MaxPool", [x], image, **window)
    x = op("AveragePool", [x], image, extent="6,8", **window)
    x = op("Where", [x, x, scale], image)
    x = op("LayerNorm", [op("Softmax", [x], image, log=1)], image, epsilon=1e-5)
    x = op("Transpose", [x], [1, 2, 6, 4], axes="0,1,3,2")
    x = op("StridedSlice", [x], [1, 2, 3, 4], starts="0,0,5,0", steps="1,1,-2,1")
    x = op("Pad", [x], [1, 2, 4, 4], begins="0,0,1,0", value=-1.0)
    x = op("MatMul", [x, x], [1, 2, 4, 4])
    x = op("Gather", [x, places], [1, 2, 3, 4], axis=2)
    x = op("Resample", [x, taps, shares], [1, 2, 3, 4], axis=3)
    x = op("Concat", [x, x], [1, 4, 3, 4], axis=1)
    for kind in ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1"]:
        x = op(kind, [x], [1, 4, 3, 1])
        x = op("Expand", [x], [1, 4, 3, 4])
    chosen = {"best": ("float16", [1, 4, 3, 2]), "at": ("int32", [1, 4, 3, 2])}
    best, at = made.several("TopK", [x], chosen, k=2, largest=1)
    return made.graph(best, at, op("Cast", [at], [1, 4, 3, 2]))


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
    made, turned = GraphMaker("computed_rope"), [1, 2, 3, 16]
    x, angles = made.input("x", turned), made.input("angles", [1, 2, 4])
    tables = [made.op(kind, [angles], kind.lower(), [1, 2, 4]) for kind in ("Cos", "Sin")]
    return made.graph(made.op("Rope", [x, *tables], "y", turned, tables="computed", rotary_dim=8))


def resizer_graph() -> Graph:
    """An image of YUV420SP whose part a run chooses, and one that is whole."""
    made = GraphMaker("resizer")
    image, crop = made.input("image", [1, 24], "uint8"), made.input("crop", [1, 10], "int32")
    colours = made.weight("colours", "float32", [3, 6])
    form = {"format": "YUV420SP", "height": 4, "width": 4, "fill": "1,2,3"}
    part = made.op("Resizer", [image, colours, crop], "part", [1, 3, 2, 2], **form)
    whole = made.op("Resizer", [image, colours], "whole", [1, 3, 4, 4], **form, crop="0,0,4,4,3,4,1,0,0,0")
    return made.graph(part, whole)


def moe_graph() -> Graph:
    """Three experts, two for a row: gate and up with biases, their product, down, and the sum."""
    made = GraphMaker("moe")
    x = made.input("x", [1, 4, 64])
    router = made.weight("router", "uint8", [3, 64], "linear_w8")
    gate_up = made.weight("gate_up", "uint8", [3, 128, 64], "linear_w4")
    bias = made.weight("gate_up_bias", "float32", [3, 128])
    down = made.weight("down", "uint8", [3, 20, 64], "linear_w8")
    logits = made.op("Linear", [x, router], "logits", [1, 4, 3])
    ids, shares = made.several("MoERoute", [logits], ROUTED, k=2, order="softmax_topk", normalise=1)
    pairs = made.op("MoELinear", [x, ids, gate_up, bias], "pairs", [1, 4, 2, 128])
    product = made.op("SiluMul", [pairs], "product", [1, 4, 2, 64])
    outs = made.op("MoELinear", [product, ids, down], "outs", [1, 4, 2, 20])
    return made.graph(made.op("MoECombine", [outs, shares], "y", [1, 4, 20]))


def groups_graph() -> Graph:
    """Heads with a matrix each, and experts of the better of two groups."""
    made = GraphMaker("groups")
    x, heads = made.input("x", [1, 4, 2, 64]), made.weight("heads", "uint8", [2, 4, 64], "linear_w8")
    logits = made.op("Reshape", [made.op("HeadLinear", [x, heads], "y", [1, 4, 2, 4])], "logits", [1, 4, 8])
    route = {"k": 2, "scores": "sigmoid", "normalise": 0, "groups": 2, "kept_groups": 1}
    return made.graph(made.several("MoERoute", [logits], ROUTED, **route)[1])


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
    made = GraphMaker("linear_attention")
    x, current = made.input("x", [1, 3, 24]), made.input("current_length", [1], "int32")
    mask, gates = made.input("mask", [1, 3]), made.input("gates", [1, 3, 2])
    columns, state = made.input("columns", [1, 24, 4]), made.input("state", [1, 2, 4, 8])
    taps, rate, bias = (made.weight(data.name, data.dtype, data.shape) for data in linear_attention_data()[:3])
    convolved = {"mixed": ("float16", [1, 3, 24]), "new_columns": ("float16", [1, 24, 4])}
    mixed, new_columns = made.several("CausalConv", [x, columns, taps, current], convolved, activation="silu")
    parts = []
    for name, start, stop, shape in (("q", 0, 4, [1, 3, 1, 4]), ("k", 4, 8, [1, 3, 1, 4]), ("v", 8, 24, [1, 3, 2, 8])):
        flat = made.op("Slice", [mixed], f"{name}_flat", [1, 3, stop - start], start=start, stop=stop)
        parts.append(made.op("Reshape", [flat], name, shape))
    q, k, v = parts
    rows, new_state, y = (
        made.value(name, "intermediate", "float16", shape)
        for name, shape in (("rows", [1, 3, 2, 8]), ("new_state", [1, 2, 4, 8]), ("y", [1, 3, 2, 8]))
    )
    inputs, attributes = [q, k, v, state, gates, gates, rate, bias, mask], {"update_rule": "gated_delta"}
    if steps:
        inputs = [k, q, v, state, gates, rate, bias, made.weight("skip", "float32", [2]), mask]
        attributes = {"update_rule": "gated", "steps": "softplus", "scale": 1.0}
    made.ops += [
        Op("DeltaRule", inputs, [rows, new_state], attributes),
        Op("GateMul", [rows, v], [y], {"function": "silu"}),
    ]
    return made.graph(y, new_columns, new_state, live_rows=current)


def linear_attention_data() -> list[WeightData]:
    return [
        WeightData("taps", "float32", "dense", (4, 24), np.arange(96, dtype=np.float32).reshape(4, 24) / 96),
        WeightData("rate", "float32", "dense", (2,), np.array([-0.5, -1], np.float32)),
        WeightData("bias", "float32", "dense", (2,), np.array([0, 1], np.float32)),
        WeightData("skip", "float32", "dense", (2,), np.array([1, 0.5], np.float32)),
    ]
