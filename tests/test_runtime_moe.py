"""Mixture of experts, op by op: what is chosen, what each expert gives, and the sum."""

from __future__ import annotations

import numpy as np
import pytest
from built_graphs import load, run

from tcim_lite.hmm import WeightData
from tcim_lite.hmm.weight_format import LAYOUTS
from tcim_lite.models.graphs.builder import GraphBuilder
from tcim_lite.models.weights.packing import pack
from tcim_lite.models.weights.quantize import RANDOM_CODES

EXPERTS, CHOSEN, TOKENS, INPUTS, OUTPUTS = 8, 3, 12, 128, 64
ORDERS = ("softmax_topk", "topk_softmax", "sigmoid", "softmax")


def experts_weight(name, fmt, shape, seed=0):
    """Random weights [E, N, K], and each expert's [N, K] as a weight of its own."""
    random = np.random.default_rng([seed, LAYOUTS[fmt].code])
    each = []
    for _ in range(shape[0]):
        if fmt in RANDOM_CODES:
            each.append(pack(fmt, *RANDOM_CODES[fmt](random, *shape[1:])))
        else:
            each.append(pack(fmt, random.standard_normal(shape[1:]).astype(LAYOUTS[fmt].dtype)))
    dtype = LAYOUTS[fmt].dtype
    whole = WeightData(name, dtype, fmt, shape, np.stack(each))
    return whole, [WeightData(f"{name}_{i}", dtype, fmt, shape[1:], data) for i, data in enumerate(each)]


# Routing


def routed(logits, chosen, order, normalise=False, bias=None, groups=None, threshold=None):
    """ids and shares [rows, chosen] that MoERoute gives; ids through experts that answer with their number."""
    rows, experts = logits.shape
    dtype = str(logits.dtype)
    fmt = "linear_f32" if dtype == "float32" else "linear_f16"
    numbers = np.repeat(np.arange(experts, dtype=logits.dtype), 16).reshape(experts, 16, 1)
    weight = WeightData("w", dtype, fmt, (experts, 16, 1), np.stack([pack(fmt, each) for each in numbers]))
    weights = [weight] if bias is None else [weight, WeightData("b", "float32", "dense", bias.shape, bias)]
    builder = GraphBuilder("route", dtype, weights)
    x, one = builder.input("logits", (1, rows, experts)), builder.input("one", (1, rows, 1))
    name = None if bias is None else "b"
    ids, shares = builder.moe_route("route", x, chosen, order, normalise, name, groups, threshold)
    module = load(builder, [builder.moe_linear("ids", one, ids, "w"), shares], weights)
    found, shares = run(module, logits=logits[None], one=np.ones((1, rows, 1), dtype))
    assert (found == found[..., :1]).all()
    return found[0, :, :, 0].astype(int), shares[0]


def expected_route(logits, chosen, order, normalise=False, bias=0.0, groups=None):
    wide = logits.astype(np.float64)
    scores, scored = 1 / (1 + np.exp(-wide)), order in ("sigmoid", "softmax")
    if order == "softmax":
        scores = np.exp(wide - wide.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    hidden = np.zeros(wide.shape)
    if groups is not None:
        best = -np.sort(-(scores + bias if scored else wide).reshape(len(wide), groups[0], -1), axis=2)
        of_group = best[:, :, :2].sum(axis=2) if scored else best[:, :, 0]
        kept = np.argsort(-of_group, axis=1, kind="stable")[:, : groups[1]]
        hidden = np.full((len(wide), groups[0]), np.inf)
        np.put_along_axis(hidden, kept, 0, axis=1)
        hidden = np.repeat(hidden, wide.shape[1] // groups[0], axis=1)
    if scored:
        ids = np.argsort(hidden - (scores + bias), axis=1, kind="stable")[:, :chosen]
        best = np.take_along_axis(scores, ids, axis=1)
        return ids, best / best.sum(axis=1, keepdims=True) if normalise else best
    ids = np.argsort(hidden - wide, axis=1, kind="stable")[:, :chosen]
    exps = np.exp(wide - wide.max(axis=1, keepdims=True))
    best = np.take_along_axis(exps, ids, axis=1)
    whole = best if normalise or order == "topk_softmax" else exps
    return ids, best / whole.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("experts", "chosen"), [(1, 1), (8, 2), (8, 8), (37, 5), (128, 8)])
def test_routing(experts, chosen, dtype, order, normalise):
    logits = np.random.default_rng(experts).normal(0, 3, (TOKENS, experts)).astype(dtype)
    logits[1] = np.round(logits[1])  # many ties
    ids, shares = routed(logits, chosen, order, normalise)
    want_ids, want = expected_route(logits, chosen, order, normalise)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(shares, want, rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-7)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("order", ["sigmoid", "softmax"])
def test_a_bias_of_the_choice_changes_no_share(dtype, normalise, order):
    random = np.random.default_rng(3)
    logits = random.normal(0, 2, (TOKENS, 37)).astype(dtype)
    bias = random.normal(0, 1, 37).astype(np.float32)
    ids, shares = routed(logits, 5, order, normalise, bias)
    want_ids, want = expected_route(logits, 5, order, normalise, bias)
    np.testing.assert_array_equal(ids, want_ids)
    assert (want_ids != expected_route(logits, 5, order)[0]).any(axis=1).all()
    np.testing.assert_allclose(shares, want, rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-7)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("experts", "chosen", "groups"),
    [(8, 3, (4, 2)), (40, 5, (5, 1)), (256, 8, (8, 4)), (6, 4, (2, 2)), (36, 3, (3, 2))],
)
def test_experts_of_the_best_groups_alone(experts, chosen, groups, dtype, order):
    random = np.random.default_rng(experts)
    logits = random.normal(0, 2, (TOKENS, experts)).astype(dtype)
    bias = random.normal(0, 0.3, experts).astype(np.float32) if order == "sigmoid" else None
    ids, shares = routed(logits, chosen, order, True, bias, groups)
    want_ids, want = expected_route(logits, chosen, order, True, 0.0 if bias is None else bias, groups)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(shares, want, rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-7)
    if groups[1] < groups[0]:
        assert (want_ids != expected_route(logits, chosen, order, True, 0.0 if bias is None else bias)[0]).any()


@pytest.mark.parametrize("order", ORDERS)
def test_of_equal_groups_the_lower_one_is_kept(order):
    logits = np.array([[1, 2, 1, 2, 2, 1], [0, 0, 0, 0, 0, 0], [-1, -1, 3, 0, 0, 3]], np.float32)
    ids, _ = routed(logits, 2, order, True, None, (3, 1))
    assert ids.tolist() == [[1, 0], [0, 1], [2, 3]]


def sparse_mixer(logits, chosen, threshold):
    """Each of the chosen has a softmax over those that are no better and near enough."""
    wide, ids, shares = logits.astype(np.float32), np.zeros((len(logits), chosen), int), []
    for row, own in enumerate(wide):
        left, counts = own.copy(), []
        for rank in range(chosen):
            ids[row, rank] = left.argmax()
            most = left[ids[row, rank]]
            with np.errstate(invalid="ignore"):  # 0 / 0 is near
                far = (most - own) / np.maximum(np.abs(own), most) > np.float32(threshold)
            counts.append(1 / np.exp(np.where(far, -np.inf, left) - most).sum(dtype=np.float64))
            left[ids[row, rank]] = -np.inf
        shares.append(counts)
    return ids, np.array(shares)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("threshold", [0.02, 0.5])
@pytest.mark.parametrize(("experts", "chosen"), [(2, 2), (16, 2), (37, 3)])
def test_a_sparse_mixer_leaves_out_what_is_far_away(experts, chosen, threshold, dtype):
    logits = np.random.default_rng(experts).normal(0.2, 1, (TOKENS, experts)).astype(dtype)
    logits[:4] = 4 + logits[:4] / 20  # near each other
    logits[4] -= 9  # all below 0
    logits[5] = np.round(logits[5])
    ids, shares = routed(logits, chosen, "sparse_mixer", threshold=threshold)
    want_ids, want = sparse_mixer(logits, chosen, threshold)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(shares, want, rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-7)
    assert len(np.unique(shares)) >= 3  # shares are no constants


@pytest.mark.parametrize("order", ORDERS)
def test_ties_go_to_the_lower_id(order):
    logits = np.array([[1, 2, 2, 2], [0, -0.0, 0, -0.0], [-5, -5, -4, -5], [3, 1, 3, 2]], np.float32)
    ids, shares = routed(logits, 2, order, True)
    assert ids.tolist() == [[1, 2], [0, 1], [2, 0], [0, 2]]
    assert shares[[0, 1, 3]].tolist() == [[0.5, 0.5]] * 3


def test_ids_are_those_of_experts_whatever_the_logits_are():
    """Logits of a graph may overflow; NaN is below everything."""
    shape = (1, 4, 4)
    numbers = np.repeat(np.arange(4, dtype=np.float32), 16).reshape(4, 16, 1)
    weight = WeightData("w", "float32", "linear_f32", (4, 16, 1), np.stack([pack("linear_f32", n) for n in numbers]))
    builder = GraphBuilder("wild", "float32", [weight])
    a, b, one = builder.input("a", shape), builder.input("b", shape), builder.input("one", (1, 4, 1))
    twice = builder.mul("twice", a, builder.input("two", shape))
    logits = builder.add("logits", twice, builder.mul("other", twice, b))
    ids, _ = builder.moe_route("route", logits, 3, "softmax_topk", False)
    module = load(builder, [builder.moe_linear("ids", one, ids, "w")], [weight])
    big = np.array([[3e38, 1, 2, -3e38], [3e38, -3e38, 3e38, 1], [1, 2, 3, 4], [3e38] * 4], np.float32)
    sign = np.array([[-1, 0, 0, 1], [1, 1, -1, 0], [0] * 4, [-1] * 4], np.float32)
    found = run(module, a=big[None], b=sign[None], two=np.full(shape, 2, np.float32), one=np.ones((1, 4, 1)))[0]
    # [nan, 2, 4, -inf], [inf, -inf, nan, 2], [2, 4, 6, 8], all NaN
    assert found[0, :, :, 0].astype(int).tolist() == [[2, 1, 3], [0, 3, 1], [3, 2, 1], [0, 1, 2]]


# The experts' products


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("tokens", [1, 3, TOKENS, 40])
@pytest.mark.parametrize("fmt", [*LAYOUTS])
def test_an_expert_is_a_linear_with_its_matrix(fmt, tokens, own_rows):
    """Bit for bit, with its bias, whether a token's experts read one row or one each."""
    dtype = "float32" if fmt == "linear_f32" else "float16"
    random = np.random.default_rng([tokens, own_rows])
    whole, each = experts_weight("w", fmt, (EXPERTS, OUTPUTS + 8, INPUTS))
    bias = random.standard_normal((EXPERTS, OUTPUTS + 8)).astype(np.float32)
    weights = [whole, WeightData("b", "float32", "dense", bias.shape, bias)]
    builder = GraphBuilder("moe", dtype, weights)
    logits = builder.input("logits", (1, tokens, EXPERTS))
    x = builder.input("x", (1, tokens, CHOSEN, INPUTS) if own_rows else (1, tokens, INPUTS))
    live = builder.input("live", (1,), "int32")
    ids, _ = builder.moe_route("route", logits, CHOSEN, "softmax_topk", True)
    module = load(builder, [builder.moe_linear("y", x, ids, "w", "b")], weights, live)
    scores = random.standard_normal((tokens, EXPERTS)).astype(dtype)
    rows = random.standard_normal(x.shape[1:]).astype(dtype)
    current = max(1, tokens - 2)
    (found,) = run(module, logits=scores[None], x=rows[None], live=current)

    chosen, _ = expected_route(scores, CHOSEN, "softmax_topk")
    want = np.zeros((tokens, CHOSEN, OUTPUTS + 8), dtype)
    for expert in range(EXPERTS):
        own = [each[expert], WeightData("b", "float32", "dense", bias.shape[1:], bias[expert])]
        builder = GraphBuilder("linear", dtype, own)
        one = builder.input("x", (1, tokens * CHOSEN, INPUTS))
        linear = load(builder, [builder.linear("y", one, f"w_{expert}", "b")], own)
        every = rows if own_rows else np.repeat(rows[:, None], CHOSEN, axis=1)
        (out,) = run(linear, x=every.reshape(1, -1, INPUTS))
        mine = chosen[:current] == expert
        want[:current][mine] = out.reshape(tokens, CHOSEN, -1)[:current][mine]
    assert found[0].tobytes() == want.tobytes()


@pytest.mark.parametrize("heads", [1, 6])
@pytest.mark.parametrize("tokens", [1, 3, TOKENS, 40])
@pytest.mark.parametrize("fmt", [*LAYOUTS])
def test_a_head_is_a_linear_with_its_matrix(fmt, tokens, heads):
    """Bit for bit, of a part of each row."""
    dtype = "float32" if fmt == "linear_f32" else "float16"
    whole, each = experts_weight("w", fmt, (heads, OUTPUTS + 8, INPUTS))
    builder = GraphBuilder("heads", dtype, [whole])
    row, live = builder.input("row", (1, tokens, 8 + heads * INPUTS)), builder.input("live", (1,), "int32")
    x = builder.reshape("x", builder.slice("flat", row, 8, 8 + heads * INPUTS), (1, tokens, heads, INPUTS))
    module = load(builder, [builder.head_linear("y", x, "w")], [whole], live)
    rows = np.random.default_rng([tokens, heads]).standard_normal(row.shape).astype(dtype)
    current = max(1, tokens - 2)
    (found,) = run(module, row=rows, live=current)
    parts = rows[0, :, 8:].reshape(tokens, heads, INPUTS)
    for head in range(heads):
        builder = GraphBuilder("linear", dtype, [each[head]])
        one = builder.input("x", (1, tokens, INPUTS))
        linear = load(builder, [builder.linear("y", one, f"w_{head}")], [each[head]])
        (want,) = run(linear, x=np.ascontiguousarray(parts[None, :, head]))
        assert found[0, :current, head].tobytes() == want[0, :current].tobytes()
    assert not found[0, current:].any()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("columns", [16, 48, 37])
def test_the_sum_ascends_by_rank(dtype, columns):
    random = np.random.default_rng(columns)
    builder = GraphBuilder("combine", dtype, [])
    x, shares = builder.input("x", (2, 3, CHOSEN, columns)), builder.input("w", (2, 3, CHOSEN))
    residual = builder.input("r", (2, 3, columns))
    alone = builder.moe_combine("alone", x, shares)
    total = builder.moe_combine("total", x, shares)
    module = load(builder, [alone, builder.add("sum", residual, total)], [])
    # Few bits, so that a product and a sum in float64 are exact.
    values = (random.integers(-2048, 2048, x.shape) / 64).astype(dtype)
    weights = (random.integers(0, 256, shares.shape) / 256).astype(dtype)
    add = random.standard_normal(residual.shape).astype(dtype)
    found = run(module, x=values, w=weights, r=add)
    acc = np.zeros((2, 3, columns), np.float32)
    for rank in range(CHOSEN):
        product = weights[..., rank, None].astype(np.float64) * values[..., rank, :].astype(np.float64)
        acc = (acc.astype(np.float64) + product).astype(np.float32)
    assert found[0].tobytes() == acc.astype(dtype).tobytes()
    assert found[1].tobytes() == (add.astype(np.float32) + acc.astype(dtype)).astype(dtype).tobytes()


@pytest.mark.parametrize("fmt", ["linear_w4", "linear_f32"])
def test_a_block_is_the_same_fused_and_not(fmt):
    """Where what is between the ops is an output too, nothing is fused."""
    dtype = "float32" if fmt == "linear_f32" else "float16"
    up, _ = experts_weight("up", fmt, (EXPERTS, 2 * OUTPUTS, INPUTS), 1)
    down, _ = experts_weight("down", fmt, (EXPERTS, INPUTS, OUTPUTS), 2)
    random = np.random.default_rng(4)
    inputs = {
        "x": random.standard_normal((1, TOKENS, INPUTS)).astype(dtype),
        "logits": random.standard_normal((1, TOKENS, EXPERTS)).astype(dtype),
        "live": np.array([TOKENS - 3], np.int32),
    }
    results = []
    for shown in (False, True):
        builder = GraphBuilder("block", dtype, [up, down])
        x, logits = builder.input("x", (1, TOKENS, INPUTS)), builder.input("logits", (1, TOKENS, EXPERTS))
        live = builder.input("live", (1,), "int32")
        ids, shares = builder.moe_route("route", logits, CHOSEN, "topk_softmax", False)
        pairs = builder.moe_linear("pairs", x, ids, "up")
        combined = builder.moe_combine(
            "combined", builder.moe_linear("outs", builder.silu_mul("product", pairs), ids, "down"), shares
        )
        outputs = [builder.add("y", x, combined), *([pairs, combined] if shown else [])]
        results.append(run(load(builder, outputs, [up, down], live), **inputs)[0].tobytes())
    assert results[0] == results[1]
