"""Col2Im and convolutions of other forms, against onnxruntime: of three axes, transposed, with computed weights."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.lower import conv as lower_conv

# Op, shape of the weight, attributes; over [2, 6, 5, 7, 6].
VOLUMES = {
    "patches": ("Conv", (8, 6, 2, 3, 3), {"strides": [2, 3, 3]}),
    "padded": ("Conv", (8, 6, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    "one after the other": ("Conv", (8, 6, 3, 1, 1), {"pads": [2, 0, 0, 1, 0, 0], "strides": [3, 1, 2]}),
    "dilated groups": ("Conv", (8, 3, 2, 2, 1), {"dilations": [3, 2, 1], "group": 2, "pads": [1, 2, 0, 2, 1, 0]}),
    "depthwise": ("Conv", (6, 1, 3, 3, 3), {"group": 6, "pads": [1, 0, 1, 1, 0, 1]}),
    "doubled": ("ConvTranspose", (6, 8, 2, 2, 2), {"strides": [2, 2, 2]}),
    "widened groups": (
        "ConvTranspose",
        (6, 4, 3, 2, 3),
        {"strides": [3, 2, 1], "pads": [1, 0, 1, 2, 1, 0], "output_padding": [1, 0, 0], "group": 2},
    ),
    "largest": ("MaxPool", (), {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 1]}),
    "mean": ("AveragePool", (), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1], "pads": [1] * 6, "ceil_mode": 1}),
    "mean of zeros too": ("AveragePool", (), {"kernel_shape": [3, 3, 3], "pads": [1] * 6, "count_include_pad": 1}),
    "means": ("GlobalAveragePool", (), {}),
}


@pytest.mark.parametrize("kind", VOLUMES)
def test_three_axes_are_those_of_onnxruntime(make_model, run_here, run_there, kind):
    op, shape, attributes = VOLUMES[kind]
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 6, 5, 7, 6)).astype(np.float32)
    constants = {"w": rng.standard_normal(shape).astype(np.float32)} if shape else {}
    if shape:
        outputs = shape[0] if op == "Conv" else shape[1] * attributes.get("group", 1)
        constants["b"] = rng.standard_normal(outputs).astype(np.float32)
    model = make_model([(op, ["x", *constants], ["y"], attributes)], {"x": x.shape}, ["y"], constants, 19)
    wanted = run_there(model, {"x": x})["y"]
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], wanted, atol=2e-5)
    for quant, bound in (("float16", 2e-3), ("w8a8h1_sefp", 5e-2)):
        got = run_here(model, {"x": x}, quant)["y"]
        np.testing.assert_allclose(got, wanted, atol=bound * np.abs(wanted).max())


COMPUTED = [
    ("Conv", (1, 6, 9, 8), (6, 1, 4, 4), {"group": 6}),  # a tracker's template
    ("Conv", (2, 6, 9, 8), (4, 3, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    ("Conv", (2, 6, 20), (5, 6, 3), {"auto_pad": "SAME_LOWER"}),
    ("Conv", (1, 2, 4, 5, 6), (3, 2, 1, 1, 1), {"strides": [2, 1, 2]}),
    ("ConvTranspose", (2, 6, 5, 4), (6, 2, 3, 4), {"group": 2, "strides": [2, 3], "pads": [1, 0, 0, 2]}),
    ("ConvTranspose", (1, 4, 7), (4, 3, 2), {"strides": [1], "pads": [3, 1], "output_padding": [0]}),
]


@pytest.mark.parametrize(("op", "shape", "weight", "attributes"), COMPUTED)
def test_a_weight_may_be_computed(make_model, run_here, run_there, op, shape, weight, attributes):
    rng = np.random.default_rng(6)
    outputs = weight[0] if op == "Conv" else weight[1] * attributes.get("group", 1)
    feeds = {"x": rng.standard_normal(shape), "w": rng.standard_normal(weight), "b": rng.standard_normal(outputs)}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    shapes = {name: array.shape for name, array in feeds.items()}
    model = make_model([(op, ["x", "w", "b"], ["y"], attributes)], shapes, ["y"])
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=2e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {"dilations": [6, 5], "pads": [6, 5, 6, 5]},  # one tap is left
        {"dilations": [4, 4], "pads": [4, 8, 4, 0]},
        {"dilations": [3, 7], "pads": [0, 7, 6, 7], "strides": [2, 1]},
        {"dilations": [2, 3], "pads": [9, 9, 9, 9], "strides": [3, 2]},
    ],
)
def test_taps_that_read_padding_alone(make_model, run_here, run_there, attributes):
    rng = np.random.default_rng(8)
    x, weight = rng.standard_normal((2, 8, 5, 4)), rng.standard_normal((3, 8, 3, 3))
    feeds = {"x": x.astype(np.float32)}
    constants = {"w": weight.astype(np.float32)}
    model = make_model([("Conv", ["x", "w"], ["y"], attributes)], {"x": x.shape}, ["y"], constants)
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=2e-5)


TRANSPOSED = [
    ((2, 6, 5, 4), (6, 4, 2, 2), {"strides": [2, 2]}),
    ((1, 6, 5, 4), (6, 2, 3, 4), {"group": 3, "strides": [2, 3], "pads": [1, 0, 0, 2]}),
    ((1, 6, 5, 4), (6, 1, 4, 4), {"group": 6, "strides": [2, 2], "pads": [1, 1, 1, 1]}),  # bilinear, as FCN has it
    ((1, 3, 4, 5), (3, 4, 1, 2), {"strides": [3, 4]}),  # strides beyond the kernel
    ((1, 3, 4, 5), (3, 4, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((1, 3, 4, 5), (3, 4, 3, 3), {"strides": [2, 1], "dilations": [1, 3], "auto_pad": "SAME_LOWER"}),
    ((1, 3, 4, 5), (3, 4, 3, 3), {"strides": [2, 2], "dilations": [2, 1]}),
    ((1, 3, 4, 5), (3, 4, 3, 3), {"strides": [3, 2], "output_shape": [11, 10]}),
    ((1, 3, 20), (3, 5, 16), {"strides": [8], "pads": [9, 4]}),
    ((1, 4, 3, 2, 3), (4, 2, 3, 2, 3), {"strides": [2, 2, 1], "pads": [1, 0, 1, 0, 1, 1]}),
    ((2, 4, 5, 3), (4, 3, 2, 1), {"strides": [4, 3], "output_shape": [20, 9]}),  # more than 18 and 7
    ((1, 4, 5), (4, 3, 2), {"strides": [3], "dilations": [2], "output_shape": [17], "auto_pad": "SAME_UPPER"}),
]


@pytest.mark.parametrize(("shape", "weight", "attributes"), TRANSPOSED)
def test_transposed_convolutions(make_model, run_here, run_there, shape, weight, attributes):
    rng = np.random.default_rng(7)
    outputs = weight[1] * attributes.get("group", 1)
    constants = {"w": rng.standard_normal(weight), "b": rng.standard_normal(outputs)}
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    x = rng.standard_normal(shape).astype(np.float32)
    model = make_model([("ConvTranspose", ["x", "w", "b"], ["y"], attributes)], {"x": shape}, ["y"], constants)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"], atol=2e-5)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"output_shape": [3]}, "'output_shape' does not have 2 whole numbers"),
        ({"output_shape": [1, 9, 9]}, "'output_shape' does not have 2 whole numbers"),
        ({"output_shape": [4.5, 4.5]}, "'output_shape' does not have 2 whole numbers"),
        ({"auto_pad": "UPPER"}, "auto_pad 'UPPER'"),
        ({"strides": [0, 1]}, "a stride or dilation below 1"),
        ({"pads": [0, 0, -1, 0]}, "a pad below 0"),
        ({"output_padding": [0, -1]}, "a pad below 0"),
    ],
)
def test_a_transposed_convolution_that_makes_no_sense_is_refused(attributes, message, make_model):
    node = ("ConvTranspose", ["x", "w"], ["y"], attributes)
    model = make_model([node], {"x": (1, 1, 4, 4)}, ["y"], {"w": np.ones((1, 1, 3, 3), np.float32)})
    with pytest.raises(TcimError, match=f"n0.*{message}"):
        onnx_bytes(model, "float32")


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_same_means_stride_times_the_input_if_the_kernel_is_smaller(make_model, run_here, auto_pad):
    """As in TensorFlow. onnxruntime makes fewer elements, against the text of ONNX."""
    x, w = np.float32([[[1, 2, 3]]]), np.float32([[[1, 10]]])
    model = make_model(
        [("ConvTranspose", ["x", "w"], ["y"], {"strides": [4], "auto_pad": auto_pad})], {"x": x.shape}, ["y"], {"w": w}
    )
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], [[[1, 10, 0, 0, 2, 20, 0, 0, 3, 30, 0, 0]]])


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((1, 96, 1, 1), (1, 1)),
        ((2, 20, 1, 1), (1, 1)),
        ((3, 24, 5, 7), (5, 7)),
        ((2, 70, 9), (9,)),
        ((1, 9, 2, 3, 4), (2, 3, 4)),
    ],
)
def test_a_convolution_of_one_result_is_a_linear(make_model, run_here, monkeypatch, shape, kernel, quant):
    rng = np.random.default_rng(9)
    constants = {"w": rng.standard_normal((50, shape[1], *kernel)), "b": rng.standard_normal(50)}
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
    model = make_model([("Conv", ["x", "w", "b"], ["y"], {})], {"x": shape}, ["y"], constants)
    linear = run_here(model, feeds, quant)["y"]
    monkeypatch.setattr(lower_conv, "PACKED_CONV_OUTPUTS", 1 << 40)
    np.testing.assert_array_equal(linear, run_here(model, feeds, quant)["y"])


@pytest.mark.parametrize("quant", ["float32", "w8a8h1_sefp"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_a_column_is_convolved_as_a_row(quant, op, make_model, run_here):
    """The same bits: tf2onnx puts the places of a Conv1D on either axis."""
    rng = np.random.default_rng(7)
    x, weight = rng.normal(size=(2, 16, 40)).astype(np.float32), rng.normal(size=(16, 16, 5)).astype(np.float32)
    results = []
    for axis in (2, 3):
        shape = np.expand_dims(x, axis).shape
        pads, strides = ([2, 0, 1, 0], [2, 1]) if axis == 3 else ([0, 2, 0, 1], [1, 2])
        node = (op, ["x", "w"], ["y"], {"pads": pads, "strides": strides})
        model = make_model([node], {"x": shape}, ["y"], {"w": np.expand_dims(weight, axis)})
        results.append(run_here(model, {"x": x.reshape(shape)}, quant)["y"].squeeze(axis))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("image", "block", "attributes"),
    [
        ([6, 8], [2, 2], {"strides": [2, 2]}),
        ([5, 6], [3, 2], {"pads": [1, 0, 1, 1]}),
        ([7, 9], [2, 3], {"dilations": [3, 2], "strides": [2, 3], "pads": [0, 1, 2, 0]}),
    ],
)
def test_blocks_become_images(image, block, attributes, make_model, run_here, run_there):
    """Each once, as sums, and with elements that no block has."""
    pads, dilations = attributes.get("pads", [0] * 4), attributes.get("dilations", [1, 1])
    count = 1
    for i, stride in enumerate(attributes.get("strides", [1, 1])):
        count *= (image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // stride + 1
    x = np.random.default_rng(12).normal(size=(2, 3 * block[0] * block[1], count)).astype(np.float32)
    constants = {"i": np.array(image), "b": np.array(block)}
    model = make_model([("Col2Im", ["x", "i", "b"], ["y"], attributes)], {"x": x.shape}, ["y"], constants, 18)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"], atol=1e-6)
