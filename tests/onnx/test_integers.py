"""Integers that a network gets or computes, as floating point numbers, truths and masks, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError, TcimError
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.runtime import Module

FLOAT, BOOL = {"to": 1}, {"to": 9}
# Around what float16 and float32 hold exactly, and the ends of int32.
NUMBERS = np.array(
    [
        0, 1, -1, 7, 2047, 2048, 2049, 2050, 2051, -2049, 4098, 65504, 65519, 65520, -65536,
        2**24 - 1, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**31 - 1, -(2**31),
    ]
)  # fmt: skip


@pytest.fixture
def of_integers(make_model):
    """A model whose inputs "n" and "mask" are integers; make_model makes inputs of floats."""

    def make(nodes, inputs, outputs, constants, dtype="int64"):
        from onnx import TensorProto

        model = make_model(nodes, inputs, outputs, constants)
        for info in model.graph.input:
            if info.name in ("n", "mask"):
                info.type.tensor_type.elem_type = TensorProto.DataType.Value(dtype.upper())
        return model

    return make


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
def test_an_integer_becomes_the_nearest_number(quant, dtype, of_integers, run_here):
    x = np.concatenate([NUMBERS, np.random.default_rng(3).integers(-(2**31), 2**31, 9000)])  # several tasks and a tail
    model = of_integers([("Cast", ["n"], ["y"], FLOAT)], {"n": x.shape}, ["y"], {}, dtype)
    y = run_here(model, {"n": x.astype(np.int32)}, quant)["y"]
    if quant == "float32":
        expected = x.astype(np.float32)
    else:
        expected = np.clip(x.astype(np.float64), -65504, 65504).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(y, expected)


COMPARISONS = {
    "Equal": [("Equal", ["n", "c"], ["r"], {})],
    "Less": [("Less", ["n", "c"], ["r"], {})],
    "Greater": [("Greater", ["n", "c"], ["r"], {})],
    "a constant that is greater": [("Greater", ["c", "n"], ["r"], {})],
    "GreaterOrEqual": [("GreaterOrEqual", ["n", "c"], ["r"], {})],
    "LessOrEqual": [("LessOrEqual", ["n", "c"], ["r"], {})],
    "Not": [("Equal", ["n", "c"], ["e"], {}), ("Not", ["e"], ["r"], {})],
    "And": [("Cast", ["n"], ["t"], BOOL), ("Less", ["n", "c"], ["l"], {}), ("And", ["t", "l"], ["r"], {})],
    "a truth": [("Cast", ["n"], ["r"], BOOL)],
}


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_with_a_constant_are_exact(name, quant, of_integers, run_here, run_there):
    limit = 2**24 - 1 if quant == "float32" else 2**11 - 1
    constants = {"c": np.array([[limit], [-limit], [0], [7]])}
    nodes = [*COMPARISONS[name], ("Cast", ["r"], ["y"], FLOAT)]
    near = np.array([limit - 1, limit, limit + 1, limit + 2, limit + 3, -limit + 1, -limit, -limit - 1, -limit - 2])
    x = np.concatenate([NUMBERS, near])
    model = of_integers(nodes, {"n": x.shape}, ["y"], constants)
    there = run_there(model, {"n": x})["y"]
    np.testing.assert_array_equal(run_here(model, {"n": x.astype(np.int32)}, quant)["y"], there)


REFUSED = {
    "a sum": ([("Add", ["n", "c"], ["r"], {}), ("Cast", ["r"], ["y"], FLOAT)], "integers that the network computes"),
    "of two integers": (
        [("Equal", ["n", "n"], ["r"], {}), ("Cast", ["r"], ["y"], FLOAT)],
        "integers that the network computes",
    ),
    "with a large constant": (
        [("Less", ["n", "large"], ["r"], {}), ("Cast", ["r"], ["y"], FLOAT)],
        "compared with one beyond 2047, the last that float16 tells",
    ),
    "back to integers": (
        [("Cast", ["n"], ["r"], FLOAT), ("Cast", ["r"], ["y"], {"to": 7})],
        "a cast between integers and floating point numbers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_be_exact_is_refused_by_name(name, of_integers):
    nodes, message = REFUSED[name]
    model = of_integers(nodes, {"n": (4,)}, ["y"], {"c": np.array(3), "large": np.array([5, -2048])})
    with pytest.raises(TcimError, match=f"'n[01]'.*{message}"):
        onnx_bytes(model, "float16")


LOWEST = {"lowest": np.float32(np.finfo(np.float32).min), "one": np.float32(1), "nothing": np.float32(0)}
# From "mask" int64 [2, 6], 1 where a token counts, to "bias" [2, 1, 1, 6], as versions of transformers export BERT.
MASKS = {
    "1 less the mask, times the lowest": [
        ("Unsqueeze", ["mask", "axes"], ["m"], {}), ("Cast", ["m"], ["f"], FLOAT),
        ("Sub", ["one", "f"], ["s"], {}), ("Mul", ["s", "lowest"], ["bias"], {}),
    ],
    "the lowest where a cast of that is true": [
        ("Unsqueeze", ["mask", "axes"], ["m"], {}), ("Cast", ["m"], ["f"], FLOAT),
        ("Sub", ["one", "f"], ["s"], {}), ("Cast", ["s"], ["b"], BOOL), ("Where", ["b", "lowest", "s"], ["bias"], {}),
    ],
    "the lowest where the mask is 0": [
        ("Unsqueeze", ["mask", "axes"], ["m"], {}), ("Equal", ["m", "zero"], ["e"], {}),
        ("Where", ["e", "lowest", "nothing"], ["bias"], {}),
    ],
    "0 where the elements of a mask of truths are true": [
        ("Cast", ["mask"], ["b"], BOOL), ("Flatten", ["b"], ["flat"], {"axis": 2}),
        ("Gather", ["flat", "places"], ["rows"], {"axis": 0}), ("Reshape", ["rows", "shape"], ["t"], {}),
        ("Where", ["t", "nothing", "lowest"], ["bias"], {}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_hides_tokens_from_attention(name, of_integers, run_here, run_there):
    rng = np.random.default_rng(5)
    constants = LOWEST | {"axes": np.array([1, 2]), "zero": np.array(0)}
    constants |= {"places": np.arange(12).reshape(2, 6), "shape": np.array([2, 1, 1, 6]), "axis": np.array([1])}
    constants["table"] = rng.normal(size=(20, 8)).astype(np.float32)
    nodes = [
        ("Gather", ["table", "n"], ["embedded"], {}), ("Unsqueeze", ["embedded", "axis"], ["x"], {}),
        ("Transpose", ["x"], ["xt"], {"perm": [0, 1, 3, 2]}), ("MatMul", ["x", "xt"], ["scores"], {}),
        *MASKS[name], ("Add", ["scores", "bias"], ["masked"], {}), ("Softmax", ["masked"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "x"], ["y"], {}),
    ]  # fmt: skip
    model = of_integers(nodes, {"n": (2, 6), "mask": (2, 6)}, ["y", "shares"], constants)
    feeds = {"n": rng.integers(0, 20, (2, 6)), "mask": np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0]])}
    there = run_there(model, feeds)
    assert there["shares"][1, ..., [0, 4, 5]].max() == 0
    for quant, bound in (("float32", 1e-5), ("float16", 2e-2)):
        here = run_here(model, {name: array.astype(np.int32) for name, array in feeds.items()}, quant)
        assert here["shares"][1, ..., [0, 4, 5]].max() == 0
        np.testing.assert_allclose(here["y"], there["y"], atol=bound)


def test_a_package_converts_integers_alone():
    def load(x: hmm.Value, y: str = "float16") -> None:
        values = [x, hmm.Value("y", "intermediate", y, (2, 3)), hmm.Value("z", "intermediate", "float16", (2, 3))]
        ops = [hmm.Op("Cast", [0], [1]), hmm.Op("Reshape", [1], [2])]
        weight = hmm.WeightData("x", "int32", "dense", (2, 3), np.zeros((2, 3), np.int32))
        inputs, weights = ([], [weight]) if x.kind == "weight" else ([0], [])
        Module.load(hmm.model_bytes(hmm.Graph("g", values, ops, inputs, [2]), weights))

    load(hmm.Value("x", "input", "int32", (2, 3)))
    for x, message in (
        (hmm.Value("x", "input", "float16", (2, 3)), r"\(Cast\): 'x' is input float16 .*, expected int32"),
        (hmm.Value("x", "input", "int32", (3, 2)), r"\(Cast\): 'y' is float16 \[2, 3\], expected float16 \[3, 2\]"),
        (hmm.Value("x", "weight", "int32", (2, 3), "dense", weight=0), r"\(Cast\): 'x' is a weight"),
    ):
        with pytest.raises(HmmFormatError, match=message):
            load(x)
    with pytest.raises(HmmFormatError, match=r"\(Cast\): 'y' is int32 .*, expected float16 or float32"):
        load(hmm.Value("x", "input", "int32", (2, 3)), "int32")
