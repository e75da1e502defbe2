"""Ops that move elements to and from places, and sums along an axis, against onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(12)
X = RNG.normal(size=(2, 3, 5, 6)).astype(np.float32)
U = RNG.normal(size=(2, 3, 2, 6)).astype(np.float32)
ROW = np.array([[[[3]], [[0]]], [[[-1]], [[2]]]])
ELEMENTS = RNG.integers(-5, 5, U.shape)
# No place twice: which update of several stays is not defined.
LAST = np.argsort(RNG.random((2, 3, 5, 6)), axis=3)[..., :4] - 6
ONCE = np.argsort(RNG.random((2, 3, 5, 6)), axis=2)[:, :, :2]
PLACES = np.array([[[1, 2], [0, 0]], [[1, -1], [0, 1]]])
BOX = np.array([0, 1, 1]) + np.moveaxis(np.indices((2, 2, 3)), 0, -1)
TWICE = np.array([[1], [0], [1], [1]])
TOP = ("TopK", ["x", "k"], ["best", "at"], {"axis": 2})
BEST = ("ArgMax", ["x"], ["at"], {"axis": 1, "keepdims": 0})
# name: (nodes, constants)
CASES = {
    "GatherElements": ([("GatherElements", ["x", "i"], ["y"], {"axis": 2})], {"i": ELEMENTS}),
    "GatherElements of the last axis": ([("GatherElements", ["x", "i"], ["y"], {"axis": -1})], {"i": ROW % 3}),
    "GatherElements of constants": (  # as token types of BERT are chosen
        [("GatherElements", ["c", "i"], ["g"], {"axis": 1}), ("Mul", ["x", "g"], ["y"], {})],
        {"c": np.arange(9, dtype=np.float32)[None], "i": np.array([[8, 0, 1, -1, 3, 2]])},
    ),
    "ScatterElements": ([("ScatterElements", ["x", "i", "u"], ["y"], {"axis": 2})], {"i": ONCE, "u": U}),
    "ScatterND of rows": (
        [("ScatterND", ["x", "i", "u"], ["y"], {})],
        {"i": PLACES, "u": RNG.normal(size=(2, 2, 5, 6))},
    ),
    "ScatterND of a box": ([("ScatterND", ["x", "i", "u"], ["y"], {})], {"i": BOX, "u": RNG.normal(size=(2, 2, 3, 6))}),
    "ScatterND of a box at the ends": (
        [("ScatterND", ["x", "i", "u"], ["y"], {})],
        {"i": np.moveaxis(np.indices((2, 1, 5, 4)), 0, -1) - [0, 1, 0, 4], "u": RNG.normal(size=(2, 1, 5, 4))},
    ),
    "ScatterND of everything": (
        [("ScatterND", ["x", "i", "u"], ["y"], {})],
        {"i": np.array([[0], [1]]), "u": RNG.normal(size=(2, 3, 5, 6))},
    ),
    "ScatterND of a box out of order": (
        [("ScatterND", ["x", "i", "u"], ["y"], {})],
        {"i": BOX[::-1], "u": RNG.normal(size=(2, 2, 3, 6))},
    ),
    "GatherND of a box": ([("GatherND", ["x", "i"], ["y"], {})], {"i": BOX}),
    "GatherND of a box out of order": ([("GatherND", ["x", "i"], ["y"], {})], {"i": BOX[:, ::-1]}),
    "ScatterND of computed updates": (
        [("Slice", ["x", "b", "e", "a"], ["u"], {}), ("ScatterND", ["x", "i", "u"], ["y"], {})],
        {"i": np.array([[1]]), "b": np.array([0]), "e": np.array([1]), "a": np.array([0])},
    ),
    "OneHot of computed places": (
        [BEST, ("OneHot", ["at", "d", "v"], ["y"], {"axis": 1})],
        {"d": np.array(4), "v": np.float32([-1, 2])},
    ),
    "places that repeat along an axis": (
        [
            ("ReduceMax", ["x"], ["m"], {"axes": [0, 1, 3]}),
            ("TopK", ["m", "k"], ["best", "one"], {"axis": 2}),
            ("Expand", ["one", "s"], ["at"], {}),
            ("GatherElements", ["x", "at"], ["y"], {"axis": 2}),
        ],
        {"k": np.array([2]), "s": np.array([2, 3, 2, 6])},
    ),
    "places of each part": (
        [
            ("ReduceMax", ["x"], ["m"], {"axes": [3]}),
            ("TopK", ["m", "k"], ["best", "one"], {"axis": 2}),
            ("Tile", ["one", "s"], ["at"], {}),
            ("GatherElements", ["x", "at"], ["y"], {"axis": 2}),
        ],
        {"k": np.array([3]), "s": np.array([1, 1, 1, 4])},
    ),
    "Compress": ([("Compress", ["x", "c"], ["y"], {"axis": 3})], {"c": np.array([1, 0, 0, 1, 1], bool)}),
    "Compress of all": ([("Compress", ["x", "c"], ["y"], {})], {"c": np.arange(90) % 7 == 3}),
    "ReverseSequence": ([("ReverseSequence", ["x", "n"], ["y"], {})], {"n": np.array([2, 1, 0])}),
    "ReverseSequence of the batch first": (
        [("ReverseSequence", ["x", "n"], ["y"], {"batch_axis": 0, "time_axis": 1})],
        {"n": np.array([3, 2])},
    ),
    "Hardmax": ([("Hardmax", ["x"], ["y"], {"axis": 1})], {}),
    "CenterCropPad": ([("CenterCropPad", ["x", "s"], ["y"], {"axes": [2, 3]})], {"s": np.array([3, 9])}),
    "Shrink": ([("Shrink", ["x"], ["y"], {"lambd": 0.7, "bias": 0.2})], {}),
    "Mod of floats": ([("Mod", ["x", "d"], ["y"], {"fmod": 1})], {"d": np.float32(0.37)}),
    "functions of angles": ([("Tanh", ["x"], ["t"], {}), ("Tan", ["t"], ["a"], {}), ("Atan", ["a"], ["y"], {})], {}),
    "inverse functions": (
        [
            ("Tanh", ["x"], ["t"], {}),
            ("Asin", ["t"], ["a"], {}),
            ("Acos", ["t"], ["b"], {}),
            ("Sub", ["a", "b"], ["y"], {}),
        ],
        {},
    ),
    "hyperbolic functions": (
        [("Sinh", ["x"], ["a"], {}), ("Cosh", ["x"], ["b"], {}), ("Div", ["a", "b"], ["y"], {})],
        {},
    ),
    "their inverses": (
        [
            ("Asinh", ["x"], ["a"], {}),
            ("Abs", ["x"], ["size"], {}),
            ("Add", ["size", "two"], ["b"], {}),
            ("Acosh", ["b"], ["c"], {}),
            ("Tanh", ["x"], ["t"], {}),
            ("Atanh", ["t"], ["d"], {}),
            ("Sum", ["a", "c", "d"], ["y"], {}),
        ],
        {"two": np.float32(2)},
    ),
} | {
    f"ScatterND that reduces by {kind}": (
        [("ScatterND", ["x", "i", "u"], ["y"], {"reduction": kind})],
        {"i": TWICE, "u": RNG.normal(size=(4, 3, 5, 6))},
    )
    for kind in ("add", "mul", "max", "min")
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name, make_model, run_here, run_there):
    nodes, constants = CASES[name]
    constants = {key: value.astype(np.float32) if value.dtype == float else value for key, value in constants.items()}
    model = make_model(nodes, {"x": X.shape}, ["y"], constants, opset=17 if "Reduce" in nodes[0][0] else 18)
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"], rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1000])
@pytest.mark.parametrize("way", [{}, {"reverse": 1}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}])
def test_cumulative_sums(count, way, make_model, run_here):
    x = RNG.normal(size=(2, count, 3)).astype(np.float32)
    model = make_model([("CumSum", ["x", "a"], ["y"], way)], {"x": x.shape}, ["y"], {"a": np.array(1)})
    turned = x[:, ::-1] if "reverse" in way else x
    exact = np.cumsum(turned.astype(np.float64), axis=1) - (turned if "exclusive" in way else 0)
    exact = exact[:, ::-1] if "reverse" in way else exact
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], exact, rtol=0, atol=3e-7 * np.abs(x).sum(axis=1).max())


@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_axes_in_any_order(quant, make_model, run_here):
    """Short ones last too, of which the kernel copies along another axis."""
    x = np.arange(2 * 3 * 2 * 37 * 7, dtype=np.float32).reshape(2, 3, 2, 37, 7) % 2000  # exact in float16
    for order in itertools.permutations(range(5)):
        model = make_model([("Transpose", ["x"], ["y"], {"perm": list(order)})], {"x": x.shape}, ["y"])
        np.testing.assert_array_equal(run_here(model, {"x": x}, quant)["y"], x.transpose(order))


def test_a_size_that_is_made_of_a_onehot_of_constants(make_model, run_here, run_there):
    """As PyTorch writes `repeat_interleave`."""
    nodes = [
        ("OneHot", ["at", "d", "v"], ["rows"], {"axis": 0}),
        ("Reshape", ["rows", "s"], ["repeats"], {}),
        ("Tile", ["x", "repeats"], ["y"], {}),
    ]
    constants = {"at": np.array([-3]), "d": np.array(4), "v": np.array([1, 2]), "s": np.array([-1])}
    model = make_model(nodes, {"x": X.shape}, ["y"], constants)
    np.testing.assert_array_equal(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"])


@pytest.mark.parametrize(
    ("mask", "attributes"),
    [
        (False, {}),
        (True, {"pads": [1, 0, 1, 2], "strides": [2, 1], "dilations": [1, 2], "offset_group": 2, "group": 2}),
    ],
)
def test_convolutions_of_moved_places(mask, attributes, make_model, run_here, run_there):
    x, parts, groups = RNG.normal(size=(2, 4, 6, 7)), attributes.get("offset_group", 1), attributes.get("group", 1)
    pads, strides, dilations = (attributes.get(name, [1] * 4) for name in ("pads", "strides", "dilations"))
    pads = attributes.get("pads", [0] * 4)
    out = [(6 + pads[0] + pads[2] - 2 * dilations[0] - 1) // strides[0] + 1,
           (7 + pads[1] + pads[3] - dilations[1] - 1) // strides[1] + 1]  # fmt: skip
    feeds = {"x": x, "o": RNG.normal(size=(2, parts * 12, *out)) * 2}
    if mask:
        feeds["m"] = RNG.uniform(size=(2, parts * 6, *out))
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    constants = {"w": RNG.normal(size=(6, 4 // groups, 3, 2)).astype(np.float32), "b": np.float32([1, 2, 3, 4, 5, 6])}
    node = ("DeformConv", ["x", "w", "o", "b", *(["m"] if mask else [])], ["y"], attributes)
    model = make_model([node], {name: array.shape for name, array in feeds.items()}, ["y"], constants, 19)
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=3e-5)


REFUSED = {
    "indices beyond axis 2": ("GatherElements", {"axis": 2}, [np.full(U.shape, 5)]),
    "for [2, 3, 5, 6] and axis 1": ("GatherElements", {"axis": 1}, [np.zeros((2, 3, 6, 6), int)]),
    "updates [1, 3, 5, 6], expected [2, 3, 5, 6]": ("ScatterND", {}, [np.array([[0], [1]]), X[:1]]),
    "more than 64 updates of one place": (
        "ScatterND", {"reduction": "add"}, [np.zeros((65, 1), int), np.ones((65, 3, 5, 6), np.float32)],
    ),
    "reduction 'mean'": ("ScatterND", {"reduction": "mean"}, [np.array([[0]]), X[:1]]),
    "a condition that chooses nothing": ("Compress", {"axis": 1}, [np.zeros(3, bool)]),
    "sequence_lens beyond the 2 elements": ("ReverseSequence", {}, [np.array([1, 2, 3])]),
    "1025 values": ("OneHot", {}, [np.array(4), np.zeros(1025, np.float32)]),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_makes_no_sense_is_refused_with_the_node(message, make_model):
    op, attributes, constants = REFUSED[message]
    names = [f"c{i}" for i in range(len(constants))]
    model = make_model(
        [(op, ["x", *names], ["y"], attributes)], {"x": X.shape}, ["y"], dict(zip(names, constants, strict=True))
    )
    with pytest.raises(TcimError) as error:
        onnx_bytes(model, "float32")
    assert message in str(error.value)
    assert "node 'n0'" in str(error.value)


def test_computed_places_may_differ_everywhere(make_model, run_here, run_there):
    nodes = [TOP, ("GatherElements", ["x", "at"], ["y"], {"axis": 2})]
    x = np.random.default_rng(2).normal(size=(1, 9, 5, 9)).astype(np.float32)
    model = make_model(nodes, {"x": x.shape}, ["y"], {"k": np.array([2])})
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])


def scattered(op, x, at, **attributes):
    """Nodes that put "u" into "x" at the integers "at", and their inputs; the last of equal places counts."""
    updates = (*at.shape[:-1], *x.shape[at.shape[-1] :]) if op == "ScatterND" else at.shape
    return [(op, ["x", "at", "u"], ["y"], attributes)], {"x": x.shape, "at": at.shape, "u": updates}


# The indices and the attributes of what is put into x [2, 3, 5, 6].
COMPUTED = {
    "rows": ("ScatterND", np.array([[1, 2], [0, -1], [0, 0]]), {}),
    "elements": ("ScatterND", np.array([[[1, 2, 3, 0]], [[-1, -3, 4, 5]]]), {}),
    "planes twice": ("ScatterND", np.array([[1], [1]]), {}),
    "sums of rows": ("ScatterND", np.array([[1, 2], [0, -1], [1, 2]]), {"reduction": "add"}),
    "an axis": ("ScatterElements", ONCE, {"axis": 2}),
    "the last axis": ("ScatterElements", LAST, {"axis": 3}),
    **{
        f"{how} of an axis": ("ScatterElements", ELEMENTS, {"axis": 2, "reduction": how})
        for how in ("add", "mul", "max", "min")
    },
    **{
        f"{how} of rows": ("ScatterND", np.array([[1, 2], [0, -1], [1, 2]]), {"reduction": how})
        for how in ("mul", "max", "min")
    },
    "a corner": ("ScatterElements", ONCE[:1, :2, :, :4], {"axis": 2}),
    "sums in a corner": ("ScatterElements", ELEMENTS[1:, :, :, :5], {"axis": 2, "reduction": "add"}),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_updates_at_computed_places(name, make_model, run_here, run_there):
    op, at, attributes = COMPUTED[name]
    nodes, shapes = scattered(op, X, at, **attributes)
    model = make_model(nodes, shapes, ["y"], opset=18)
    model.graph.input[1].type.tensor_type.elem_type = 7
    feeds = {"x": X, "at": at, "u": RNG.normal(size=shapes["u"]).astype(np.float32)}
    here = run_here(model, feeds | {"at": at.astype(np.int32)})["y"]
    np.testing.assert_allclose(here, run_there(model, feeds)["y"], atol=1e-6 if attributes.get("reduction") else 0)


@pytest.mark.parametrize(
    ("op", "at", "attributes", "text"),
    [
        ("ScatterElements", np.zeros((2, 3, 2, 7), int), {"axis": 2}, r"indices \[2, 3, 2, 7\] for .* and axis 2"),
        ("ScatterND", np.zeros((1 << 18, 1), int), {"reduction": "mul"}, "the limit is 16777216 pairs of elements"),
        ("ScatterElements", np.zeros((1 << 12, 1 << 13), int), {"axis": 1}, "the limit is 16777216 pairs"),
    ],
)
def test_updates_at_computed_places_have_limits(op, at, attributes, text, make_model):
    x = X if at.shape[-1] == 1 or at.size < 100 else np.broadcast_to(np.float32(0), at.shape)
    nodes, shapes = scattered(op, x, at, **attributes)
    model = make_model(nodes, shapes, ["y"], opset=18)
    model.graph.input[1].type.tensor_type.elem_type = 7
    with pytest.raises(TcimError, match=f"n0.*{text}"):
        onnx_bytes(model, "float32")


@pytest.mark.parametrize(("op", "shape"), [("GatherND", (3, 2)), ("GatherElements", (2, 3))])
def test_computed_places_beyond_int32_are_refused(op, shape, make_model):
    model = make_model([(op, ["x", "at"], ["y"], {})], {"x": (1 << 16, 1 << 15), "at": shape}, ["y"])
    model.graph.input[1].type.tensor_type.elem_type = 7
    with pytest.raises(TcimError, match="computed places among 2147483648"):
        onnx_bytes(model, "float32")
