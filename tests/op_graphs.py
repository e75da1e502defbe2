"""Graphs of one op each and their weights, for the conformance suite: cases/op_numbers.py says what comes out."""

from __future__ import annotations

import numpy as np

from tcim_lite import hmm
from tcim_lite.models.weights.packing import DTYPES, pack

TOKENS, WIDTH, OUTPUTS = 4, 128, 32
HEADS, HEAD_DIM, CONTEXT = 2, 32, 32


def norm_model() -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """RMSNorm over 64 columns; `current_length` says how many rows are real."""
    rows = (1, TOKENS, 64)
    values = [
        hmm.Value("x", "input", "float16", rows),
        hmm.Value("current_length", "input", "int32", (1,)),
        hmm.Value("w", "weight", "float32", (64,), "dense", weight=0),
        hmm.Value("y", "intermediate", "float16", rows),
    ]
    op = hmm.Op("RMSNorm", [0, 2], [3], {"epsilon": 2.0**-20})
    weight = ((np.arange(64) - 20) / 8).astype(np.float32)
    return (
        hmm.Graph("norm", values, [op], inputs=[0, 1], outputs=[3], live_rows=1),
        [hmm.WeightData("w", "float32", "dense", (64,), weight)],
    )


def silu_mul_model() -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """silu(gate) * up, 32 columns each."""
    values = [
        hmm.Value("x", "input", "float16", (1, TOKENS, 64)),
        hmm.Value("y", "intermediate", "float16", (1, TOKENS, 32)),
    ]
    return hmm.Graph("silu_mul", values, [hmm.Op("SiluMul", [0], [1])], inputs=[0], outputs=[1]), []


def rope_model(given: bool = False) -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """Rotates two heads of 32 by positions from `valid_length` on, or by those in `position_ids`."""
    rows, table = (1, TOKENS, HEADS, HEAD_DIM), (CONTEXT, HEAD_DIM // 2)
    values = [
        hmm.Value("x", "input", "float16", rows),
        hmm.Value("position_ids", "input", "int32", (1, TOKENS))
        if given
        else hmm.Value("valid_length", "input", "int32", (1,)),
        hmm.Value("cos", "weight", "float16", table, "dense", weight=0),
        hmm.Value("sin", "weight", "float16", table, "dense", weight=1),
        hmm.Value("y", "intermediate", "float16", rows),
    ]
    angles = np.outer(np.arange(CONTEXT), 10000.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2)))
    weights = [
        hmm.WeightData(name, "float16", "dense", table, function(angles).astype(np.float16))
        for name, function in {"cos": np.cos, "sin": np.sin}.items()
    ]
    attributes = {"positions": "given"} if given else {}
    return hmm.Graph(
        "rope", values, [hmm.Op("Rope", [0, 2, 3, 1], [4], attributes)], inputs=[0, 1], outputs=[4]
    ), weights


def linear_model(fmt: str) -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """y = x w; `fmt` is linear_w4, linear_w8 or linear_f16. `current_length` says how many rows are real."""
    values = [
        hmm.Value("x", "input", "float16", (1, TOKENS, WIDTH)),
        hmm.Value("current_length", "input", "int32", (1,)),
        hmm.Value("w", "weight", DTYPES[fmt], (OUTPUTS, WIDTH), fmt, weight=0),
        hmm.Value("y", "intermediate", "float16", (1, TOKENS, OUTPUTS)),
    ]
    n, k = np.ogrid[:OUTPUTS, :WIDTH]
    groups = (OUTPUTS, WIDTH // 64)
    eight_bits = ((37 * n + 11 * k) % 255 - 127).astype(np.int8)
    if fmt == "linear_w4":
        data = pack("linear_w4", ((7 * n + 3 * k) % 16 - 8).astype(np.int8), np.full(groups, 2.0**-5, np.float16))
    elif fmt == "linear_w8":
        data = pack("linear_w8", eight_bits, np.full(groups, -7, np.int8))
    else:
        data = pack(fmt, (eight_bits / 128).astype(np.float16))
    weight = hmm.WeightData("w", DTYPES[fmt], fmt, (OUTPUTS, WIDTH), data)
    return hmm.Graph(fmt, values, [hmm.Op("Linear", [0, 2], [3])], inputs=[0, 1], outputs=[3], live_rows=1), [weight]


def experts_model() -> tuple[hmm.Graph, list[hmm.WeightData]]:
    """Two of 8 experts for each row; what expert e gives is e + 1 times the first 32 columns of x."""
    values = [
        hmm.Value("x", "input", "float16", (1, TOKENS, 64)),
        hmm.Value("logits", "input", "float16", (1, TOKENS, 8)),
        hmm.Value("w", "weight", "float16", (8, 32, 64), "linear_f16", weight=0),
        hmm.Value("ids", "intermediate", "int32", (1, TOKENS, 2)),
        hmm.Value("shares", "intermediate", "float16", (1, TOKENS, 2)),
        hmm.Value("outs", "intermediate", "float16", (1, TOKENS, 2, 32)),
        hmm.Value("y", "intermediate", "float16", (1, TOKENS, 32)),
    ]
    ops = [
        hmm.Op("MoERoute", [1], [3, 4], {"k": 2, "order": "softmax_topk", "normalise": 1}),
        hmm.Op("MoELinear", [0, 3, 2], [5]),
        hmm.Op("MoECombine", [5, 4], [6]),
    ]
    data = np.stack([pack("linear_f16", np.eye(32, 64, dtype=np.float16) * np.float16(e + 1)) for e in range(8)])
    weight = hmm.WeightData("w", "float16", "linear_f16", (8, 32, 64), data)
    return hmm.Graph("experts", values, ops, inputs=[0, 1], outputs=[6]), [weight]
