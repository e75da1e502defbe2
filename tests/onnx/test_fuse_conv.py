"""Batch norms become part of the convolution before them, where nobody else reads its result."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.errors import UnsupportedNodeError

RNG = np.random.default_rng(17)
X = {"x": (2, 6, 9, 8)}
STATS = ["scale", "shift", "mean", "variance"]
NORM = ("BatchNormalization", ["c", *STATS], ["n"], {"epsilon": 1e-3})
RELU = ("Relu", ["n"], ["y"], {})


def stats(channels):
    values = [1 + RNG.random(channels), RNG.standard_normal(channels), RNG.standard_normal(channels)]
    values.append(0.5 + RNG.random(channels))
    return dict(zip(STATS, (value.astype(np.float32) for value in values), strict=True))


def weights(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


FORMS = {
    "Conv without bias": ("Conv", weights(4, 6, 3, 3), None, {}, 4),
    "Conv in groups": ("Conv", weights(8, 3, 3, 3), weights(8, 1)[:, 0], {"group": 2}, 8),
    "depthwise Conv": ("Conv", weights(6, 1, 3, 3), weights(6, 1)[:, 0], {"group": 6, "strides": [2, 1]}, 6),
    "ConvTranspose": ("ConvTranspose", weights(6, 4, 3, 2), weights(4, 1)[:, 0], {"strides": [2, 2]}, 4),
    "ConvTranspose in groups": ("ConvTranspose", weights(6, 4, 3, 2), None, {"group": 3, "strides": [1, 2]}, 12),
}


def network(form):
    op, weight, bias, attributes, channels = FORMS[form]
    constants = {"w": weight, **stats(channels)} | ({} if bias is None else {"b": bias})
    return (op, ["x", "w", *([] if bias is None else ["b"])], ["c"], attributes), constants


def ops_of(model, tmp_path):
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model, "float32"))
    moves = ("Reshape", "StridedSlice", "Transpose")
    return Counter(op.kind for op in hmm.read(path).graphs[0].ops if op.kind not in moves)


def check_values(model, run_here, run_there, outputs):
    """At most 54 terms, and the batch norm's own roundings, on each side."""
    x = RNG.standard_normal(X["x"]).astype(np.float32)
    got, wanted = run_here(model, {"x": x}), run_there(model, {"x": x})
    for name in outputs:
        bound = 2 * (np.sqrt(54) + 4) * 2**-24 * np.abs(wanted[name]).max()
        np.testing.assert_allclose(got[name], wanted[name], rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_norm_becomes_part_of_the_convolution(form, make_model, run_here, run_there, tmp_path):
    conv, constants = network(form)
    model = make_model([conv, NORM, RELU], X, ["y"], constants)
    assert ops_of(model, tmp_path) == {"Conv": 1, "Relu": 1}
    check_values(model, run_here, run_there, ["y"])


@pytest.mark.parametrize("form", ["Conv in groups", "ConvTranspose"])
@pytest.mark.parametrize(("more", "outputs"), [([("Neg", ["c"], ["z"], {})], ["y", "z"]), ([], ["y", "c"])])
def test_a_batch_norm_stays_where_others_read_the_convolution(
    form, more, outputs, make_model, run_here, run_there, tmp_path
):
    conv, constants = network(form)
    model = make_model([conv, NORM, RELU, *more], X, outputs, constants)
    ops = ops_of(model, tmp_path)
    assert (ops["Conv"], ops["Mul"], ops["Add"]) == (1, 1, 1)
    check_values(model, run_here, run_there, outputs)


@pytest.mark.parametrize("form", FORMS)
def test_factors_and_summands_of_channels_become_part_of_the_convolution(
    form, make_model, run_here, run_there, tmp_path
):
    """As TensorFlow's converters write a batch norm."""
    conv, constants = network(form)
    per_channel = {name: array.reshape(-1, 1, 1) for name, array in constants.items() if name in STATS}
    nodes = [
        conv,
        ("Mul", ["scale", "c"], ["m"], {}),
        ("Sub", ["m", "mean"], ["s"], {}),
        ("Add", ["s", "shift"], ["n"], {}),
        RELU,
    ]
    model = make_model(nodes, X, ["y"], {**constants, **per_channel})
    assert ops_of(model, tmp_path) == {"Conv": 1, "Relu": 1}
    check_values(model, run_here, run_there, ["y"])


@pytest.mark.parametrize("form", ["Conv without bias", "Conv in groups"])
@pytest.mark.parametrize("extents", [(8,), (1, 9, 8), (1, 1, 1, 1)])
def test_other_factors_stay(form, extents, make_model, run_here, run_there, tmp_path):
    (op, inputs, outputs, attributes), constants = network(form)
    conv = (op, inputs, outputs, {**attributes, "pads": [1, 1, 1, 1]})
    factors = {"f": (1 + RNG.random(extents)).astype(np.float32)}
    model = make_model([conv, ("Mul", ["c", "f"], ["n"], {}), RELU], X, ["y"], constants | factors)
    assert ops_of(model, tmp_path)["Mul"] == 1
    check_values(model, run_here, run_there, ["y"])


PADS = {
    "zeros": ({"p": np.array([0, 0, 0, 1, 0, 0, 1, 2])}, ["x", "p"], {}, 0),
    "a constant of zero": ({"p": np.array([0, 0, 2, 1, 0, 0, 0, 2]), "v": np.float32(0)}, ["x", "p", "v"], {}, 0),
    "some axes": (
        {"p": np.array([1, 2, 0, 3]), "v": np.float32(0), "axes": np.array([3, -2])},
        ["x", "p", "v", "axes"],
        {},
        0,
    ),
    "ones": ({"p": np.array([0, 0, 0, 1, 0, 0, 1, 2]), "v": np.float32(1)}, ["x", "p", "v"], {}, 1),
    "channels": ({"p": np.array([0, 1, 0, 1, 0, 1, 0, 0])}, ["x", "p"], {}, 1),
    "a part that is cut": ({"p": np.array([0, 0, -1, 1, 0, 0, 0, 0])}, ["x", "p"], {}, 1),
    "a mirror": ({"p": np.array([0, 0, 0, 1, 0, 0, 1, 2])}, ["x", "p"], {"mode": "reflect"}, 1),
}


@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize("own", [{}, {"pads": [1, 0, 2, 1]}, {"auto_pad": "VALID"}, {"auto_pad": "SAME_UPPER"}])
def test_zeros_around_the_planes_become_pads(pads, own, make_model, run_here, run_there, tmp_path):
    constants, inputs, attributes, left = PADS[pads]
    channels = 8 if pads == "channels" else 6
    pad = ("Pad", inputs, ["a"], attributes)
    conv = ("Conv", ["a", "w"], ["y"], {"strides": [2, 1], **own})
    model = make_model([pad, conv], X, ["y"], {"w": weights(4, channels, 3, 3), **constants}, opset=18)
    ops = ops_of(model, tmp_path)
    assert (sum(ops.values()) > 1) == bool(left or own.get("auto_pad") == "SAME_UPPER")
    check_values(model, run_here, run_there, ["y"])


@pytest.mark.parametrize(
    ("pads", "axes", "own", "message"),
    [
        ([1, 1], None, {}, "Pad"),
        ([1, 1], [2, 3], {}, "Pad"),
        ([1, 1, 1], [3], {}, "Pad"),
        ([0, 0, 1, 1, 0, 0, 1, 1], None, {"pads": [1]}, "'pads' does not have 4 whole numbers"),
        ([0, 0, 1, 1, 0, 0, 1, 1], None, {"pads": [1, 1]}, "'pads' does not have 4 whole numbers"),
    ],
)
def test_pads_of_another_length_are_no_numbers_for_all_sides(pads, axes, own, message, make_model):
    constants = {"w": weights(4, 6, 3, 3), "p": np.array(pads)} | ({} if axes is None else {"axes": np.array(axes)})
    pad = ("Pad", ["x", "p", *([] if axes is None else ["", "axes"])], ["a"], {})
    model = make_model([pad, ("Conv", ["a", "w"], ["y"], own)], X, ["y"], constants, opset=18)
    with pytest.raises(UnsupportedNodeError, match=message):
        onnx_bytes(model, "float32")
