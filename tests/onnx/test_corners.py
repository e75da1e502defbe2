"""Forms of ops that networks have and that are easy to get wrong, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import OnnxOptions, check_onnx, onnx_bytes
from tcim_lite.runtime import Module

X = np.random.default_rng(3).normal(size=(2, 3, 5, 6)).astype(np.float32)
NEGATIVE = np.array([0, 0, -1, 1, 0, 0, 2, -2])
# name: (nodes, constants, opset)
CASES = {
    "largest of a border of infinities": (
        [("Pad", ["x", "p", "v"], ["a"], {}), ("MaxPool", ["a"], ["y"], {"kernel_shape": [3, 3], "strides": [2, 2]})],
        {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "v": np.float32(-np.inf)},
        17,
    ),
    # PyTorch writes attention with a mask of bools so.
    "no NaN in rows that see nothing": (
        [
            ("Where", ["seen", "x", "v"], ["a"], {}),
            ("Softmax", ["a"], ["s"], {"axis": -1}),
            ("IsNaN", ["s"], ["n"], {}),
            ("Where", ["n", "zero", "s"], ["y"], {}),
        ],
        {"seen": np.arange(30).reshape(5, 6) >= 6, "v": np.float32(-np.inf), "zero": np.float32(0)},
        17,
    ),
    # x[mask] = 0.5 of PyTorch's newer exporter.
    "a number where a mask of the first axes is true": (
        [
            ("ReduceMax", ["x"], ["m"], {"axes": [2, 3], "keepdims": 0}),
            ("Less", ["m", "limit"], ["mask"], {}),
            ("NonZero", ["mask"], ["at"], {}),
            ("Transpose", ["at"], ["places"], {"perm": [1, 0]}),
            ("Shape", ["places"], ["count"], {"end": 1}),
            ("Concat", ["count", "plane"], ["size"], {"axis": 0}),
            ("Expand", ["v", "size"], ["updates"], {}),
            ("ScatterND", ["x", "places", "updates"], ["y"], {}),
        ],
        {"limit": np.float32(2.2), "plane": np.array([5, 6]), "v": np.float32(0.5)},
        17,
    ),
    "infinities on either side": (
        [
            ("Sub", ["x", "x"], ["zero"], {}),
            ("Div", ["x", "zero"], ["d"], {}),
            ("IsInf", ["d"], ["up"], {"detect_negative": 0}),
            ("IsInf", ["d"], ["down"], {"detect_positive": 0}),
            ("IsInf", ["d"], ["any"], {}),
            ("Where", ["up", "x", "zero"], ["a"], {}),
            ("Where", ["down", "a", "x"], ["b"], {}),
            ("Where", ["any", "b", "one"], ["y"], {}),
        ],
        {"one": np.float32(1)},
        17,
    ),
    "sequences": (
        [
            ("SplitToSequence", ["x", "two"], ["s"], {"axis": 2}),
            ("SequenceLength", ["s"], ["n"], {}),
            ("SequenceAt", ["s", "last"], ["tail"], {}),
            ("SequenceAt", ["s", "one"], ["a"], {}),
            ("SequenceErase", ["s", "last"], ["t"], {}),
            ("Identity", ["t"], ["same"], {}),
            ("SequenceInsert", ["same", "a", "zero"], ["u"], {}),
            ("ConcatFromSequence", ["u"], ["c"], {"axis": 0, "new_axis": 1}),
            ("SequenceEmpty", [], ["e"], {}),
            ("SequenceInsert", ["e", "tail"], ["f"], {}),
            ("SequenceAt", ["f", "zero"], ["z"], {}),
            ("Cast", ["n"], ["m"], {"to": 1}),
            ("Mul", ["c", "m"], ["d"], {}),
            ("Add", ["d", "z"], ["y"], {}),
        ],
        {"two": np.array(2), "last": np.array(-1), "one": np.array(1), "zero": np.array(0)},
        17,
    ),
    "a sequence of rows": (
        [
            ("SplitToSequence", ["x"], ["s"], {"axis": -1, "keepdims": 0}),
            ("SequenceAt", ["s", "three"], ["a"], {}),
            ("SequenceAt", ["s", "one"], ["b"], {}),
            ("SequenceConstruct", ["a", "b", "a"], ["t"], {}),
            ("ConcatFromSequence", ["t"], ["y"], {"axis": 1}),
        ],
        {"three": np.array(3), "one": np.array(1)},
        17,
    ),
    "sums of constants along an axis that is a list": (
        [("CumSum", ["c", "axis"], ["s"], {}), ("Mul", ["x", "s"], ["y"], {})],
        {"c": np.arange(6, dtype=np.float32), "axis": np.array([0])},
        17,
    ),
    # A package holds weights of four axes at most.
    "constants of five axes": (
        [
            ("Unsqueeze", ["x", "axes"], ["a"], {}),
            ("Add", ["a", "c"], ["b"], {}),
            ("Concat", ["b", "c"], ["y"], {"axis": 2}),
        ],
        {"axes": np.array([1]), "c": np.linspace(-1, 1, 720, dtype=np.float32).reshape(2, 4, 3, 5, 6)},
        17,
    ),
    "an exponent of whole numbers": ([("Pow", ["x", "e"], ["y"], {})], {"e": np.array([1, 2, 3, 2, 1, 0])}, 17),
    "a norm without epsilon": (
        [("LayerNormalization", ["x", "s"], ["y"], {"epsilon": 0.0})],
        {"s": np.linspace(1, 2, 6, dtype=np.float32)},
        17,
    ),
    # PyTorch writes interpolate(scale_factor=1.3, align_corners=True) so.
    "corners that are aligned where a scale gives no whole length": (
        [("Resize", ["x", "", "by"], ["y"], {"mode": "linear", "coordinate_transformation_mode": "align_corners"})],
        {"by": np.array([1, 1, 1.3, 0.7], np.float32)},
        17,
    ),
    # PyTorch writes interpolate(scale_factor=1 / 3) so.
    "every third element": (
        [
            (
                "Resize",
                ["x", "", "by"],
                ["y"],
                {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            )
        ],
        {"by": np.array([1, 1, 1, 1 / 3], np.float32)},
        17,
    ),
    # tf2onnx writes tf.image.resize(method="area") so: 9 / 5 as a float32 times 5 is 9 in float32 alone.
    "a scale whose length is whole in float32": (
        [
            (
                "Resize",
                ["x", "", "by"],
                ["y"],
                {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            )
        ],
        {"by": np.array([1, 1, 9 / 5, 5 / 6], np.float32)},
        17,
    ),
    # tf2onnx writes tf.image.resize(method="nearest") so.
    "nearest elements of TensorFlow": (
        [
            (
                "Resize",
                ["x", "", "", "to"],
                ["y"],
                {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"},
            )
        ],
        {"to": np.array([2, 3, 9, 4])},
        17,
    ),
    "a window of a constant length": (
        [("HannWindow", ["six"], ["w"], {"periodic": 0}), ("Mul", ["x", "w"], ["y"], {})],
        {"six": np.array(6)},
        17,
    ),
    "GlobalLpPool": ([("GlobalLpPool", ["x"], ["y"], {"p": 3})], {}, 17),
} | {
    f"pads of {mode} that cut": ([("Pad", ["x", "p"], ["y"], {"mode": mode})], {"p": NEGATIVE}, 19)
    for mode in ("constant", "edge", "reflect", "wrap")
}


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_onnxruntime(case, make_model, run_here, run_there):
    nodes, constants, opset = CASES[case]
    model = make_model(nodes, {"x": X.shape}, ["y"], constants, opset)
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("places", "rounding", "size", "to"),
    [
        ("half_pixel", "round_prefer_floor", 14, 19),
        ("half_pixel", "round_prefer_floor", 20, 26),
        ("half_pixel", "round_prefer_ceil", 14, 39),
        ("asymmetric", "round_prefer_ceil", 7, 2),
        ("asymmetric", "round_prefer_floor", 23, 14),
        ("align_corners", "round_prefer_floor", 8, 3),
    ],
)
def test_the_middle_of_two_elements_is_one_beside_which_float32_places_lie(
    places, rounding, size, to, make_model, run_here, run_there
):
    attributes = {"mode": "nearest", "coordinate_transformation_mode": places, "nearest_mode": rounding}
    node = ("Resize", ["x", "", "", "to"], ["y"], attributes)
    model = make_model([node], {"x": (1, 1, 1, size)}, ["y"], {"to": np.array([1, 1, 1, to])})
    x = np.arange(size, dtype=np.float32).reshape(1, 1, 1, size)
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])


@pytest.mark.parametrize(
    ("indices", "batch_dims"),
    [
        ([[0, 1], [-1, 0]], 0),
        ([1, 2, 3], 0),
        ([[[0, 1, -1, 2]], [[1, 0, 0, 0]]], 0),
        ([[[0]], [[-1]]], 1),
        ([[0, 1], [2, -5]], 1),
        ([[[1], [2], [3]], [[0], [-1], [-2]]], 2),
    ],
)
def test_elements_at_constant_places(indices, batch_dims, make_model, run_here, run_there):
    node = ("GatherND", ["x", "i"], ["y"], {"batch_dims": batch_dims})
    model = make_model([node], {"x": X.shape}, ["y"], {"i": np.array(indices)})
    np.testing.assert_array_equal(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"])


def test_outputs_may_be_inputs_constants_and_one_value_twice(make_model):
    constants = {"w": np.float32([[1, 2]]), "one": np.array(7)}
    nodes = [("Relu", ["x"], ["y"], {}), ("Identity", ["y"], ["z"], {})]
    model = make_model(nodes, {"x": (2, 3)}, ["x", "y", "w", "y", "z", "one", "x"], constants)
    module, x = Module.load(onnx_bytes(model, "float32")), X[0, 0, :2, :3]
    module.set_input("x", x)
    module.run(sync=True)
    names = [module.get_output_name(index) for index in range(module.get_num_outputs())]
    assert len({*names, "x"}) == 8
    assert (names[1], names[2], names[4], names[5]) == ("y", "w", "z", "one")
    relu = np.maximum(x, 0)
    for name, wanted in zip(names, (x, relu, constants["w"], relu, relu, [7], x), strict=True):
        np.testing.assert_array_equal(module.get_output(name).numpy(), wanted)
    np.testing.assert_array_equal(module.get_output("x").numpy(), x)


@pytest.mark.parametrize("quant", ["float16", "float32"])
@pytest.mark.parametrize("op", ["Clip", "Max", "Add"])
def test_a_divisor_is_kept_from_zero_in_every_type(op, quant, make_model, run_here):
    """PyTorch's normalize divides by at least 1e-12, which float16 does not have."""
    nodes = [
        ("ReduceL2", ["x"], ["n"], {"axes": [1]}), (op, ["n", "least"], ["m"], {}), ("Div", ["x", "m"], ["y"], {}),
    ]  # fmt: skip
    model = make_model(nodes, {"x": (2, 2)}, ["y"], {"least": np.float32(1e-12)})
    y = run_here(model, {"x": np.array([[0, 0], [3, 4]], np.float32)}, quant)["y"]
    np.testing.assert_allclose(y, [[0, 0], [0.6, 0.8]], atol=3e-4)


@pytest.mark.parametrize(("to", "dtype"), [(10, "float16"), (16, "bfloat16")])
def test_a_cast_to_a_shorter_type_rounds_in_float32(to, dtype, make_model, run_here):
    """Every number of the type, those between two, and those beside these; beyond the ends it saturates."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="comes with onnx")
    short = np.dtype(dtype) if dtype == "float16" else np.dtype(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        own = np.arange(1 << 16, dtype=np.uint16).view(short).astype(np.float32)
        own = np.unique(own[np.isfinite(own) & ((own == 0) | (np.abs(own) > 1e-30))])
        middle = (own[1:].astype(np.float64) / 2 + own[:-1] / 2).astype(np.float32)
        x = np.concatenate([own, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, -own[-1:])])
        expected = np.clip(x.astype(short).astype(np.float32), own[0], own[-1])
    infinite = np.float32([np.finfo(np.float32).max, np.finfo(np.float32).min])  # stand for infinities, and stay
    x, expected = (np.concatenate([array, infinite]) for array in (x, expected))
    nodes = [("Cast", ["x"], ["h"], {"to": to}), ("Cast", ["h"], ["y"], {"to": 1})]
    got = run_here(make_model(nodes, {"x": x.shape}, ["y"]), {"x": x})["y"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_pool_that_rounds_up_takes_a_window_larger_than_the_image(op, make_model, run_here, run_there):
    """As SqueezeNet's and GoogLeNet's do where an image is small."""
    x = X.reshape(-1)[:12].reshape(1, 2, 2, 3)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    model = make_model([(op, ["x"], ["y"], attributes)], {"x": x.shape}, ["y"], {}, 19)
    wanted = run_there(model, {"x": x})["y"]
    assert wanted.shape == (1, 2, 1, 1)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], wanted, atol=1e-6)
    model = make_model([(op, ["x"], ["y"], attributes | {"ceil_mode": 0})], {"x": x.shape}, ["y"], {}, 19)
    with pytest.raises(TcimError, match="a window of 3 over a padded input of 2"):
        run_here(model, {"x": x})


def test_a_slice_of_nothing_is_left_out_by_a_concat(make_model, run_here, run_there):
    nodes = [("Slice", ["x", "from", "from", "axis"], ["s"], {}), ("Concat", ["s", "x"], ["y"], {"axis": 1})]
    model = make_model(nodes, {"x": (2, 6)}, ["y"], {"from": np.array([3]), "axis": np.array([1])})
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])


def test_a_mask_of_the_least_float32_says_what_float16_holds(make_model):
    model = make_model(
        [("Add", ["x", "mask"], ["a"], {}), ("Softmax", ["a"], ["y"], {})], {"x": (4, 8), "mask": (4, 8)}, ["y"]
    )
    mask = np.where(np.arange(8) < 4, 0, np.finfo(np.float32).min).astype(np.float32)
    results = []
    for quant, hidden in (("float32", mask), ("float16", np.maximum(mask, -65504))):
        module = Module.load(onnx_bytes(model, quant))
        module.set_input("x", X.reshape(-1)[:32])
        module.set_input("mask", np.tile(hidden, (4, 1)))
        module.run(sync=True)
        results.append(module.get_output("y").numpy())
    np.testing.assert_allclose(*results, atol=1e-3)
    module.set_input("mask", np.tile(mask, (4, 1)))
    with pytest.raises(TcimError, match=r"'mask' .*65504, the largest float16, .* fill a mask with -65504"):
        module.run(sync=True)


@pytest.mark.parametrize("node", ["Conv", "MatMul"])
def test_an_infinite_quantised_weight_is_the_largest_float16_and_a_nan_is_refused(node, make_model, run_here, tmp_path):
    shape = {"Conv": (8, 64, 1, 1), "MatMul": (64, 8)}[node]
    x = np.ones({"Conv": (1, 64, 2, 2), "MatMul": (4, 64)}[node], np.float32)

    def model_with(odd: float):
        w = np.zeros(shape, np.float32)
        w.reshape(-1)[5] = odd  # of output 0, or 5
        return make_model([(node, ["x", "w"], ["y"], {})], {"x": x.shape}, ["y"], {"w": w})

    def result(odd: float):
        return run_here(model_with(odd), {"x": x}, "w8a8h1_sefp")["y"]

    assert result(np.inf).max() == 65504 - 65504 % 512  # codes end at 127, here of 2^9
    np.testing.assert_array_equal(result(np.inf), -result(-np.inf))
    with pytest.raises(TcimError, match=rf"node .*{node}.*: a weight is NaN, which .* cannot hold; --quant float16"):
        result(np.nan)
    path = tmp_path / "net.onnx"
    path.write_bytes(model_with(np.nan).SerializeToString())
    assert "a weight is NaN" in next(iter(check_onnx(OnnxOptions(model=path)).missing[node]))
    assert not check_onnx(OnnxOptions(model=path, quant="float16")).missing
