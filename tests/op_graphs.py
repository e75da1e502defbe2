"""Graphs of one op each and their weights, for the conformance suite: cases/op_numbers.py says what comes out."""

from __future__ import annotations

import numpy as np
from graph_maker import GraphMaker

from tcim_lite import hmm
from tcim_lite.models.weights.packing import DTYPES, pack

TOKENS, WIDTH, OUTPUTS = 4, 128, 32
HEADS, HEAD_DIM, CONTEXT = 2, 32, 32


def norm_model() -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """RMSNorm over 64 columns; `current_length` says how many rows are real."""
    made, rows = GraphMaker("norm"), (1, TOKENS, 64)
    x, current = made.input("x", rows), made.input("current_length", (1,), "int32")
    w = made.weight("w", "float32", (64,))
    graph = made.graph(made.op("RMSNorm", [x, w], "y", rows, epsilon=2.0**-20), live_rows=current)
    return graph, [hmm.WeightData("w", "float32", "dense", (64,), ((np.arange(64) - 20) / 8).astype(np.float32))]


def silu_mul_model() -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """silu(gate) * up, 32 columns each."""
    made = GraphMaker("silu_mul")
    return made.graph(made.op("SiluMul", [made.input("x", (1, TOKENS, 64))], "y", (1, TOKENS, 32))), []


def rope_model(given: bool = False) -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """Rotates two heads of 32 by positions from `valid_length` on, or by those in `position_ids`."""
    rows, table = (1, TOKENS, HEADS, HEAD_DIM), (CONTEXT, HEAD_DIM // 2)
    made = GraphMaker("rope")
    x = made.input("x", rows)
    at = made.input("position_ids" if given else "valid_length", (1, TOKENS) if given else (1,), "int32")
    tables = [made.weight(name, "float16", table) for name in ("cos", "sin")]
    attributes = {"positions": "given"} if given else {}
    graph = made.graph(made.op("Rope", [x, *tables, at], "y", rows, **attributes))
    angles = np.outer(np.arange(CONTEXT), 10000.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2)))
    weights = [
        hmm.WeightData(name, "float16", "dense", table, function(angles).astype(np.float16))
        for name, function in {"cos": np.cos, "sin": np.sin}.items()
    ]
    return graph, weights


def linear_model(fmt: str) -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """y = x w; `fmt` is linear_w4, linear_w8 or linear_f16. `current_length` says how many rows are real."""
    made = GraphMaker(fmt)
    x, current = made.input("x", (1, TOKENS, WIDTH)), made.input("current_length", (1,), "int32")
    w = made.weight("w", DTYPES[fmt], (OUTPUTS, WIDTH), fmt)
    graph = made.graph(made.op("Linear", [x, w], "y", (1, TOKENS, OUTPUTS)), live_rows=current)
    n, k = np.ogrid[:OUTPUTS, :WIDTH]
    groups = (OUTPUTS, WIDTH // 64)
    eight_bits = ((37 * n + 11 * k) % 255 - 127).astype(np.int8)
    if fmt == "linear_w4":
        data = pack("linear_w4", ((7 * n + 3 * k) % 16 - 8).astype(np.int8), np.full(groups, 2.0**-5, np.float16))
    elif fmt == "linear_w8":
        data = pack("linear_w8", eight_bits, np.full(groups, -7, np.int8))
    else:
        data = pack(fmt, (eight_bits / 128).astype(np.float16))
    return graph, [hmm.WeightData("w", DTYPES[fmt], fmt, (OUTPUTS, WIDTH), data)]


def experts_model() -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """Two of 8 experts for each row; what expert e gives is e + 1 times the first 32 columns of x."""
    made = GraphMaker("experts")
    x, logits = made.input("x", (1, TOKENS, 64)), made.input("logits", (1, TOKENS, 8))
    w = made.weight("w", "float16", (8, 32, 64), "linear_f16")
    routed = {"ids": ("int32", (1, TOKENS, 2)), "shares": ("float16", (1, TOKENS, 2))}
    ids, shares = made.several("MoERoute", [logits], routed, k=2, order="softmax_topk", normalise=1)
    outs = made.op("MoELinear", [x, ids, w], "outs", (1, TOKENS, 2, 32))
    y = made.op("MoECombine", [outs, shares], "y", (1, TOKENS, 32))
    data = np.stack([pack("linear_f16", np.eye(32, 64, dtype=np.float16) * np.float16(e + 1)) for e in range(8)])
    weight = hmm.WeightData("w", "float16", "linear_f16", (8, 32, 64), data)
    return made.graph(y), [weight]
