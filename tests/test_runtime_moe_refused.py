"""Mixture of experts: graphs that do not fit are refused, and files with experts need a newer reader."""

from __future__ import annotations

import pytest
from graph_maker import GraphMaker, linear_file

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError

# What is refused


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


def moe_bytes(shapes=(), route=ROUTE, by="ids"):
    """A legal MoERoute and MoELinear but for these shapes; `by`: whose values choose the experts."""
    shapes = {"w": (8, 32, 16), "b": (8, 32), "ids": (1, 4, 2), "pairs": (1, 4, 2, 32), "y": (1, 4, 32), **dict(shapes)}
    maker = GraphMaker("moe", "float32")
    logits, x = maker.input("logits", (1, 4, 8)), maker.input("x", (1, 4, 16))
    w, b = maker.weight("w", "float32", shapes["w"], "linear_f32"), maker.weight("b", "float32", shapes["b"])
    ids, shares = maker.several("MoERoute", [logits], routed(shapes["ids"]), **route)
    experts = {"ids": ids, "logits": logits, "shares": shares}[by]
    pairs = maker.op("MoELinear", [x, experts, w, b], "pairs", shapes["pairs"])
    return maker.file(maker.op("MoECombine", [pairs, shares], "y", shapes["y"]))


def routed(ids=(1, 4, 2)):
    return {"ids": ("int32", ids), "shares": ("float32", (1, 4, 2))}


def test_ids_come_from_a_route_only():
    rt.load(moe_bytes())
    with pytest.raises(HmmFormatError, match=r"'logits' is .*, expected the ids that a MoERoute makes"):
        rt.load(moe_bytes(by="logits"))
    with pytest.raises(HmmFormatError, match=r"'shares' is .*, expected the ids that a MoERoute makes"):
        rt.load(moe_bytes(by="shares"))


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
        maker = GraphMaker("g", "float32")
        operands = [maker.input("x", x), maker.weight("w", "float32", w, "linear_f32")]
        return maker.file(maker.op("HeadLinear", operands, "y", y))

    rt.load(graph())
    assert hmm.read(graph()).version == (1, 7)
    with pytest.raises(HmmFormatError, match=message):
        rt.load(graph(**changes))


def test_a_linear_takes_no_experts():
    with pytest.raises(HmmFormatError, match=r"'w' is .*\[1, 32, 16\], expected rank 2"):
        rt.load(linear_file((1, 4, 16), "float32", (1, 32, 16), "linear_f32"))


def test_a_bias_of_the_choice_goes_with_sigmoids_and_fits():
    def graph(attributes, length):
        maker = GraphMaker("g", "float32")
        operands = [maker.input("logits", (1, 4, 8)), maker.weight("b", "float32", (length,))]
        return maker.file(maker.several("MoERoute", operands, routed(), **attributes)[1])

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
