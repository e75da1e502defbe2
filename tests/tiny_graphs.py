"""Hand-built graphs: of the tests, and of the models that the conformance suite ships."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from graph_maker import GraphMaker

from tcim_lite import hmm

HEADS, HEAD_DIM, CONTEXT = 2, 64, 32
HIDDEN = HEADS * HEAD_DIM


def add_graph(shape: tuple[int, ...] = (2, 3), dtype: str = "float16") -> hmm.Graph:
    """total = a + b. `image` and `length` are read by no op; they are there for their dtypes."""
    made = GraphMaker("add", dtype)
    a, b = (made.input(name, shape) for name in "ab")
    made.input("image", (4,), "int8")
    made.input("length", (1,), "int32")
    return made.graph(made.op("Add", [a, b], "total", shape))


def linear_graph(tokens: int, name: str = "linear") -> hmm.Graph:
    """y = x w, w [16, 8]."""
    made = GraphMaker(name, "float32")
    x, w = made.input("x", (1, tokens, 8)), made.weight("w", "float32", (16, 8), "linear_f32")
    return made.graph(made.op("Linear", [x, w], "y", (1, tokens, 16)))


def linear_weight() -> np.ndarray:
    """[16, 8]"""
    return np.arange(128, dtype=np.float32).reshape(16, 8) / 16


SINKS = np.array([0.5, -1.0], np.float32)


def sinks_graph(tokens: int) -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """As `attention_graph` with `SINKS`."""
    plain = attention_graph(tokens)
    values = [*plain.values, hmm.Value("sinks", "weight", "float32", (HEADS,), "dense", weight=0)]
    *others, attention = plain.ops
    ops = [*others, hmm.Op(attention.kind, [*attention.inputs, 9], attention.outputs, {"sinks": "given"})]
    graph = hmm.Graph(f"sinks_{tokens}", values, ops, inputs=plain.inputs, outputs=plain.outputs, live_rows=2)
    return graph, [hmm.WeightData("sinks", "float32", "dense", (HEADS,), SINKS)]


def attention_graph(tokens: int, context: int = CONTEXT, window: int | None = None) -> hmm.Graph:
    """Attention of the input with itself over K and V caches; queries, keys and values are all the input."""
    made, rows = GraphMaker(f"attention_{tokens}"), (1, tokens, HIDDEN)
    x, lengths, caches = made.ports(rows, (1, HEADS, context, HEAD_DIM))
    heads = made.op("Reshape", [x], "heads", (1, tokens, HEADS, HEAD_DIM))
    attributes = {} if window is None else {"window": window}
    return made.graph(made.attention(heads, lengths, caches, "logits", rows, **attributes), live_rows=lengths[1])


def mask_graph(tokens: int, window: int | None = None) -> hmm.Graph:
    """As `attention_graph`, with a mask at index 3; of a window it is about 16 rows of the cache."""
    plain = attention_graph(tokens, window=window)
    name, columns = ("global_attention_mask", CONTEXT) if window is None else ("local_attention_mask", 16)
    values = [*plain.values, hmm.Value(name, "input", "float16", (1, 1, tokens, columns))]
    *others, attention = plain.ops
    attributes = {**attention.attributes, "mask": "given"}
    ops = [*others, hmm.Op(attention.kind, [*attention.inputs, 9], attention.outputs, attributes)]
    return hmm.Graph(f"mask_{tokens}", values, ops, inputs=[0, 1, 2, 9, 3, 4], outputs=plain.outputs, live_rows=2)


def positions_graph(tokens: int, context: int = CONTEXT) -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """As `attention_graph`, with queries and keys rotated by the input `position_ids`."""
    plain, table = attention_graph(tokens, context), (context, HEAD_DIM // 2)
    values = [
        *plain.values,
        hmm.Value("position_ids", "input", "int32", (1, tokens)),
        hmm.Value("cos", "weight", "float16", table, "dense", weight=0),
        hmm.Value("sin", "weight", "float16", table, "dense", weight=1),
        hmm.Value("q", "intermediate", "float16", plain.values[5].shape),
        hmm.Value("k", "intermediate", "float16", plain.values[5].shape),
    ]
    ops = [
        plain.ops[0],
        hmm.Op("Rope", [5, 10, 11, 9], [12], {"positions": "given"}),
        hmm.Op("Rope", [5, 10, 11, 9], [13], {"positions": "given"}),
        hmm.Op("KVcache", [13, 3, 1, 2], [6]),
        plain.ops[2],
        hmm.Op("FlashAttention", [12, 6, 7, 1, 2], [8]),
    ]
    angles = np.outer(np.arange(context), 10000.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2)))
    weights = [
        hmm.WeightData(name, "float16", "dense", table, function(angles).astype(np.float16))
        for name, function in {"cos": np.cos, "sin": np.sin}.items()
    ]
    graph = hmm.Graph(f"positions_{tokens}", values, ops, inputs=[0, 1, 2, 9, 3, 4], outputs=[8], live_rows=2)
    return graph, weights


def axes_graph(tokens: int, context: int = CONTEXT) -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """As `positions_graph`, by three inputs: cos of a token is that of its time, sin those of its height and width."""
    plain, (_, weights) = attention_graph(tokens, context), positions_graph(tokens, context)
    heads, table, rows = plain.values[5].shape, (context, HEAD_DIM // 2), (tokens, HEAD_DIM // 2)
    values = [
        *plain.values,
        hmm.Value("cos", "weight", "float16", table, "dense", weight=0),
        hmm.Value("sin", "weight", "float16", table, "dense", weight=1),
        hmm.Value("q", "intermediate", "float16", heads),
        hmm.Value("k", "intermediate", "float16", heads),
    ]
    values[2] = replace(values[2], role=hmm.Role("current_length", slot=0))
    ops, axes = [plain.ops[0]], []
    for axis, source in (("time", 9), ("height", 10), ("width", 10)):
        name = {"height": "hight"}.get(axis, axis) + "_position_ids"
        axes.append(len(values))
        values += [
            hmm.Value(name, "input", "int32", (tokens,), role=hmm.Role(f"{axis}_position_ids", slot=0)),
            hmm.Value(f"{axis}_rows", "intermediate", "float16", rows),
            hmm.Value(f"{axis}_table", "intermediate", "float16", (1, *rows)),
        ]
        ops.append(hmm.Op("Gather", [source, axes[-1]], [axes[-1] + 1], {"axis": 0}))
        ops.append(hmm.Op("Reshape", [axes[-1] + 1], [axes[-1] + 2]))
    cos, *sines = (first + 2 for first in axes)
    ops += [
        *(hmm.Op("Rope", [5, cos, sin], [to], {"tables": "computed"}) for sin, to in zip(sines, (11, 12), strict=True)),
        hmm.Op("KVcache", [12, 3, 1, 2], [6]),
        plain.ops[2],
        hmm.Op("FlashAttention", [11, 6, 7, 1, 2], [8]),
    ]
    return hmm.Graph(f"axes_{tokens}", values, ops, inputs=[0, *axes, 1, 2, 3, 4], outputs=[8], live_rows=2), weights


def hybrid_graph(tokens: int) -> hmm.Graph:
    """As `attention_graph`, with the mask of linear attention at index 3 and a state, which every run doubles, last."""
    plain, masks, states = attention_graph(tokens), (1, tokens), (1, 1, 4, 4)
    role = hmm.Role("recurrent_state", slot=0, layer=0)
    values = [
        *plain.values,
        hmm.Value("linear_attn_mask", "input", "float16", masks, role=hmm.Role("linear_mask", slot=0)),
        hmm.Value("squared", "intermediate", "float16", masks),
        hmm.Value("past_recurrent_state_0", "input", "float16", states, role=role),
        hmm.Value("recurrent_state_out_0", "intermediate", "float16", states, role=role),
    ]
    ops = [*plain.ops, hmm.Op("Mul", [9, 9], [10]), hmm.Op("Add", [11, 11], [12])]
    return hmm.Graph(f"hybrid_{tokens}", values, ops, inputs=[0, 1, 2, 9, 3, 4, 11], outputs=[8, 10, 12], live_rows=2)


def heads_graphs(tokens: int, heads: tuple[int, ...]) -> list[hmm.Graph]:
    """Attention of the input with itself over caches of `sum(heads)` heads, so many of them on each device."""
    return [_heads_part(tokens, sum(heads[:rank]), count, sum(heads)) for rank, count in enumerate(heads)]


def _heads_part(tokens: int, first: int, heads: int, all_heads: int) -> hmm.Graph:
    """The part of a device; gathered unless its heads are all there are."""
    made, width, hidden, start = GraphMaker("attention"), heads * HEAD_DIM, all_heads * HEAD_DIM, first * HEAD_DIM
    whole = heads == all_heads
    x, lengths, caches = made.ports((1, tokens, hidden), (1, heads, CONTEXT, HEAD_DIM))
    own = made.op("Slice", [x], "own", (1, tokens, width), start=start, stop=start + width)
    own = made.op("Reshape", [own], "heads", (1, tokens, heads, HEAD_DIM))
    mixed = made.attention(own, lengths, caches, "logits" if whole else "mixed", (1, tokens, width))
    if not whole:
        mixed = made.op("AllGather", [mixed], "logits", (1, tokens, hidden), offset=start)
    return made.graph(mixed, live_rows=lengths[1])
