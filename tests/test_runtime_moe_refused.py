"""Mixture of experts: graphs that do not fit are refused, and files with experts need a newer reader."""

from __future__ import annotations

import pytest

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError
from tcim_lite.hmm import WeightData

# What is refused


def moe_values(**changes):
    """Values of a legal MoELinear and its MoERoute, float32."""
    values = {
        "logits": hmm.Value("logits", "input", "float32", (1, 4, 8)),
        "x": hmm.Value("x", "input", "float32", (1, 4, 16)),
        "w": hmm.Value("w", "weight", "float32", (8, 32, 16), "linear_f32", weight=0),
        "b": hmm.Value("b", "weight", "float32", (8, 32), weight=1),
        "ids": hmm.Value("ids", "intermediate", "int32", (1, 4, 2)),
        "shares": hmm.Value("shares", "intermediate", "float32", (1, 4, 2)),
        "pairs": hmm.Value("pairs", "intermediate", "float32", (1, 4, 2, 32)),
        "y": hmm.Value("y", "intermediate", "float32", (1, 4, 32)),
    }
    for name, shape in changes.items():
        old = values[name]
        values[name] = hmm.Value(name, old.kind, old.dtype, shape, old.format, old.weight)
    return list(values.values())


ROUTE = {"k": 2, "order": "softmax_topk"}


@pytest.mark.parametrize(
    ("shapes", "route", "message"),
    [
        ({}, {"k": 9}, r"\(MoERoute\): attribute 'k' is 9, expected 1 to the 8 experts of 'logits'"),
        ({}, {"k": 0}, "attribute 'k' is 0"),
        ({}, {"order": "random"}, "attribute 'order' is 'random'"),
        ({}, {"order": "sparse_mixer"}, "attribute 'threshold' goes with the order 'sparse_mixer'"),
        ({}, {"threshold": 0.5}, "attribute 'threshold' goes with the order 'sparse_mixer'"),
        ({}, {"order": "sparse_mixer", "threshold": 0.0}, "'threshold' is 0, expected more than 0"),
        ({}, {"order": "sparse_mixer", "threshold": 0.5, "normalise": 1}, "'normalise' is 1, which does not go with"),
        ({}, {"normalise": 2}, "attribute 'normalise' is 2, expected 0 or 1"),
        ({}, {"scores": "sigmoid"}, "has both attributes 'order' and 'scores', expected one of them"),
        ({}, {"order": None, "scores": "tanh"}, "attribute 'scores' is 'tanh', which this version does not know"),
        ({}, {"order": None}, "attribute 'order' is no string"),
        ({}, {"groups": 3, "kept_groups": 1}, "attribute 'groups' is 3, expected equal groups of 1 or more of 8"),
        ({}, {"groups": 8}, "attribute 'kept_groups' is missing"),
        ({}, {"groups": 4, "kept_groups": 5}, "attribute 'kept_groups' is 5, expected 1 to the 4 groups, and 2 exp"),
        ({}, {"groups": 8, "kept_groups": 1}, "attribute 'kept_groups' is 1, expected 1 to the 8 groups, and 2 exp"),
        (
            {},
            {"order": None, "scores": "sigmoid", "groups": 8, "kept_groups": 4},
            "attribute 'groups' is 8, expected equal groups of 2 or more of 8 experts",
        ),
        ({"ids": (1, 4, 3)}, {}, r"'ids' is int32 \[1, 4, 3\], expected int32 \[1, 4, 2\]"),
        ({"w": (7, 32, 16)}, {}, r"weight 'w' is .*\[7, 32, 16\], expected 8 experts: so many logits choose 'ids'"),
        ({"w": (32, 16)}, {}, r"expected a weight \[E, N, K\] in a packed format"),
        ({"w": (8, 32, 17)}, {}, r"'x' is .*\[1, 4, 16\], expected \[1, 4, 17\] or \[1, 4, 2, 17\]"),
        ({"b": (8, 31)}, {}, r"'b' is float32 \[8, 31\], expected float32 \[8, 32\]"),
        ({"pairs": (1, 4, 2, 16)}, {}, r"'pairs' is .*expected float32 \[1, 4, 2, 32\]"),
        ({"y": (1, 4, 16)}, {}, r"\(MoECombine\): 'y' is"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(shapes, route, message):
    with pytest.raises(HmmFormatError, match=message):
        rt.load(moe_bytes(shapes, {key: value for key, value in {**ROUTE, **route}.items() if value is not None}))


def moe_bytes(shapes=(), route=ROUTE, ids=4):
    values = moe_values(**dict(shapes))
    ops = [
        hmm.Op("MoERoute", [0], [4, 5], route),
        hmm.Op("MoELinear", [1, ids, 2, 3], [6]),
        hmm.Op("MoECombine", [6, 5], [7]),
    ]
    weights = []
    for value in values[2:4]:
        size = hmm.packed_bytes(value.format, value.shape, value.dtype)
        weights.append(WeightData(value.name, value.dtype, value.format, value.shape, bytes(size)))
    return hmm.model_bytes(hmm.Graph("moe", values, ops, [0, 1], [7]), weights)


def test_ids_come_from_a_route_only():
    rt.load(moe_bytes())
    with pytest.raises(HmmFormatError, match=r"'logits' is .*, expected the ids that a MoERoute makes"):
        rt.load(moe_bytes(ids=0))
    with pytest.raises(HmmFormatError, match=r"'shares' is .*, expected the ids that a MoERoute makes"):
        rt.load(moe_bytes(ids=5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": (1, 4, 48)}, r"'x' is .*expected rank 4"),
        ({"x": (1, 4, 2, 16)}, r"'x' is .*\[1, 4, 2, 16\], the weight 'w' is .*\[3, 32, 16\]: heads and the last"),
        ({"x": (1, 4, 3, 8)}, "heads and the last extents must agree"),
        ({"w": (32, 16)}, r"expected a weight \[heads, N, K\] in a packed format"),
        ({"y": (1, 4, 3, 16)}, r"'y' is .*expected float32 \[1, 4, 3, 32\]"),
    ],
)
def test_heads_that_do_not_fit_their_matrices_are_refused(changes, message):
    def graph(x=(1, 4, 3, 16), w=(3, 32, 16), y=(1, 4, 3, 32)):
        values = [
            hmm.Value("x", "input", "float32", x),
            hmm.Value("w", "weight", "float32", w, "linear_f32", weight=0),
            hmm.Value("y", "intermediate", "float32", y),
        ]
        size = hmm.packed_bytes("linear_f32", w, "float32")
        weight = WeightData("w", "float32", "linear_f32", w, bytes(size))
        return hmm.model_bytes(hmm.Graph("g", values, [hmm.Op("HeadLinear", [0, 1], [2])], [0], [2]), [weight])

    rt.load(graph())
    assert hmm.read(graph()).version == (1, 7)
    with pytest.raises(HmmFormatError, match=message):
        rt.load(graph(**changes))


def test_a_linear_takes_no_experts():
    values = [
        hmm.Value("x", "input", "float32", (1, 4, 16)),
        hmm.Value("w", "weight", "float32", (1, 32, 16), "linear_f32", weight=0),
        hmm.Value("y", "intermediate", "float32", (1, 4, 32)),
    ]
    weight = WeightData("w", "float32", "linear_f32", (1, 32, 16), bytes(2048))
    data = hmm.model_bytes(hmm.Graph("g", values, [hmm.Op("Linear", [0, 1], [2])], [0], [2]), [weight])
    with pytest.raises(HmmFormatError, match=r"'w' is .*\[1, 32, 16\], expected rank 2"):
        rt.load(data)


def test_a_bias_of_the_choice_goes_with_sigmoids_and_fits():
    def graph(attributes, length):
        values = [
            hmm.Value("logits", "input", "float32", (1, 4, 8)),
            hmm.Value("b", "weight", "float32", (length,), weight=0),
            hmm.Value("ids", "intermediate", "int32", (1, 4, 2)),
            hmm.Value("shares", "intermediate", "float32", (1, 4, 2)),
        ]
        weight = WeightData("b", "float32", "dense", (length,), bytes(4 * length))
        return hmm.model_bytes(
            hmm.Graph("g", values, [hmm.Op("MoERoute", [0, 1], [2, 3], attributes)], [0], [3]), [weight]
        )

    data = graph({"k": 2, "scores": "sigmoid"}, 8)
    rt.load(data)
    assert hmm.read(data).version == (1, 4)
    with pytest.raises(HmmFormatError, match=r"'b' is .*\[7\], expected float32 \[8\]"):
        rt.load(graph({"k": 2, "scores": "sigmoid"}, 7))
    with pytest.raises(HmmFormatError, match="'b' is a bias, which goes with the attribute 'scores'"):
        rt.load(graph(ROUTE, 8))


def test_files_with_experts_need_version_1_2():
    assert hmm.read(moe_bytes()).version == (1, 2)
    assert hmm.read(moe_bytes(route={**ROUTE, "groups": 4, "kept_groups": 2})).version == (1, 7)
