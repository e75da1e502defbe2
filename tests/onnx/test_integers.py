"""Integers that a network gets or computes, as such, as numbers, truths and masks, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from integer_casts import BOOL, FLOAT, INT, NUMBERS

from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError, TcimError
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.runtime import Module


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


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_bits(op, dtype, of_integers, run_here, run_there):
    ends = np.iinfo(np.int32 if dtype == "int64" else dtype)
    rng = np.random.default_rng(4)
    n, mask = (rng.integers(ends.min, ends.max, shape, dtype, endpoint=True) for shape in ((3, 4), (4,)))
    both = [("n", "mask"), ("n", "c")] if op != "BitwiseNot" else [("n",), ("mask",)]
    nodes = [(op, list(names), [f"r{i}"], {}) for i, names in enumerate(both)]
    nodes += [("Cast", [f"r{i}"], [f"y{i}"], FLOAT) for i in range(2)]
    model = of_integers(nodes, {"n": n.shape, "mask": mask.shape}, ["y0", "y1"], {"c": n[:, :1]}, dtype)
    model.opset_import[0].version = 18
    here = run_here(model, {"n": n.astype(np.int32), "mask": mask.astype(np.int32)})
    for name, wanted in run_there(model, {"n": n, "mask": mask}).items():
        np.testing.assert_array_equal(here[name], wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_any_number_of_bits(direction, dtype, of_integers, run_here):
    ends = np.iinfo(dtype)
    n = np.array([0, 1, 5, ends.max, ends.max - 1, ends.min, ends.min + 1, (ends.min + ends.max) // 3], dtype)[:, None]
    counts = np.array([0, 1, 3, 7, ends.bits - 1, ends.bits, ends.bits + 3], dtype)
    nodes = [("BitShift", ["n", "c"], ["r"], {"direction": direction}), ("Cast", ["r"], ["y"], FLOAT)]
    model = of_integers(nodes, {"n": n.shape}, ["y"], {"c": counts}, dtype)
    whole = n.astype(object) << counts if direction == "LEFT" else n.astype(object) >> counts
    wanted = ((whole - ends.min) % (1 << ends.bits) + ends.min).astype(np.float64)
    np.testing.assert_array_equal(run_here(model, {"n": n.astype(np.int32)})["y"], wanted.astype(np.float32))


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


ROW = np.array([3, -3, 7, 1, -1, 2, 2**31 - 1, -(2**31)])
# From "n" and "mask" int64 [4, 8] to "y", numbers of any size in "n", small ones in "mask".
COMPUTED = {
    "1 less the mask": [("Sub", ["one", "mask"], ["y"], {})],
    "sums, differences and products": [
        ("Add", ["n", "row"], ["a"], {}), ("Mul", ["a", "mask"], ["b"], {}), ("Sub", ["b", "n"], ["y"], {}),
    ],
    "quotients": [("Div", ["n", "row"], ["a"], {}), ("Div", ["a", "three"], ["y"], {})],
    "rests": [("Mod", ["n", "row"], ["a"], {}), ("Mod", ["a", "three"], ["b"], {}), ("Add", ["a", "b"], ["y"], {})],
    "rests as of C": [("Mod", ["n", "row"], ["y"], {"fmod": 1})],
    "limits": [("Max", ["n", "row", "mask"], ["a"], {}), ("Min", ["a", "three"], ["y"], {})],
    "Clip": [("Clip", ["n", "one", "large"], ["a"], {}), ("Clip", ["a", "", "three"], ["y"], {})],
    "functions": [
        ("Neg", ["n"], ["a"], {}), ("Abs", ["a"], ["b"], {}), ("Sign", ["n"], ["c"], {}),
        ("Mul", ["b", "c"], ["y"], {}),
    ],
    "a power": [("Pow", ["mask", "three"], ["y"], {})],
    "comparisons of computed ones": [
        ("Equal", ["n", "mask"], ["a"], {}), ("Less", ["mask", "n"], ["b"], {}), ("Xor", ["a", "b"], ["c"], {}),
        ("Not", ["c"], ["d"], {}), ("Cast", ["d"], ["y"], INT),
    ],
    "Where": [("Greater", ["n", "large"], ["a"], {}), ("Where", ["a", "mask", "n"], ["y"], {})],
    "Where of a mask": [("Cast", ["mask"], ["a"], BOOL), ("Where", ["a", "n", "row"], ["y"], {})],
    "the places of tokens, as RoBERTa counts them": [
        ("Equal", ["mask", "one"], ["a"], {}), ("Not", ["a"], ["b"], {}), ("Cast", ["b"], ["c"], {"to": 6}),
        ("CumSum", ["c", "axis"], ["d"], {}), ("Mul", ["d", "c"], ["e"], {}), ("Cast", ["e"], ["f"], INT),
        ("Add", ["f", "one"], ["y"], {}),
    ],
    "running sums from the end": [("CumSum", ["n", "zero"], ["y"], {"reverse": 1, "exclusive": 1})],
    "reductions": [
        ("ReduceSum", ["n", "axes"], ["a"], {}), ("ReduceMax", ["n"], ["b"], {"axes": [1]}),
        ("ReduceMin", ["n"], ["c"], {"axes": [1]}), ("ReduceProd", ["mask"], ["d"], {"axes": [1]}),
        ("Concat", ["a", "b", "c", "d"], ["y"], {"axis": 1}),
    ],
    "the largest and their places": [
        ("TopK", ["n", "k"], ["a", "b"], {}), ("Add", ["a", "b"], ["c"], {}), ("ArgMax", ["n"], ["d"], {"axis": 1}),
        ("Concat", ["c", "d"], ["y"], {"axis": 1}),
    ],
    "a constant around them": [("Pad", ["n", "pads", "three"], ["y"], {})],
    "elements at computed places": [
        ("Mod", ["mask", "three"], ["a"], {}), ("GatherElements", ["n", "a"], ["y"], {"axis": 0}),
    ],
    "elements at places of two axes": [
        ("Slice", ["mask", "zeros", "ends"], ["a"], {}), ("Mod", ["a", "three"], ["b"], {}),
        ("GatherND", ["n", "b"], ["y"], {}),
    ],
    "8 bits": [("Cast", ["n"], ["a"], {"to": 3}), ("Add", ["a", "a"], ["b"], {}), ("Cast", ["b"], ["y"], INT)],
    "8 bits without a sign": [
        ("Cast", ["n"], ["a"], {"to": 2}), ("Mul", ["a", "a"], ["b"], {}), ("Cast", ["b"], ["y"], INT),
    ],
    "16 bits": [
        ("Cast", ["n"], ["a"], {"to": 5}), ("Cast", ["n"], ["b"], {"to": 4}), ("Cast", ["a"], ["c"], INT),
        ("Cast", ["b"], ["d"], INT), ("Sub", ["c", "d"], ["y"], {}),
    ],
}  # fmt: skip
NUMBERS_OF = {"one": 1, "three": 3, "large": 2**30, "zero": 0, "axis": 1, "axes": [1], "k": [3], "row": ROW}
NUMBERS_OF |= {"pads": [0, 1, 2, 0], "zeros": [0, 0], "ends": [4, 2]}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_results_wrap_at_32_bits_and_are_exact(name, quant, of_integers, run_here, run_there):
    rng = np.random.default_rng(8)
    n = np.concatenate([NUMBERS, rng.integers(-(2**31), 2**31, 10)]).reshape(4, 8)
    feeds = {"n": n, "mask": rng.integers(0, 3, (4, 8))}
    constants = {key: np.asarray(value, np.int64) for key, value in NUMBERS_OF.items()}
    model = of_integers(COMPUTED[name], {key: array.shape for key, array in feeds.items()}, ["y"], constants)
    model.graph.output[0].type.tensor_type.elem_type = 7
    there = run_there(model, feeds)["y"]
    module = Module.load(onnx_bytes(model, quant))
    for key in {info.name for info in model.graph.input}:
        module.set_input(key, feeds[key].astype(np.int32))
    module.run(sync=True)
    np.testing.assert_array_equal(module.get_output("y").numpy(), there.astype(np.int32))  # modulo 2^32


@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_numbers_lose_their_fractions(quant, make_model):
    x = np.array([0.5, -0.5, 1.99, -1.99, 255.7, -300.2, 65000.0, -0.0], np.float32)
    model = make_model([("Cast", ["x"], ["y"], INT), ("Cast", ["x"], ["z"], {"to": 2})], {"x": x.shape}, ["y", "z"])
    for info, kind in zip(model.graph.output, (7, 2), strict=True):
        info.type.tensor_type.elem_type = kind
    module = Module.load(onnx_bytes(model, quant))
    module.set_input("x", x)
    module.run(sync=True)
    dtype = np.float16 if quant == "float16" else np.float32
    whole = np.trunc(x.astype(dtype)).astype(np.int64)
    np.testing.assert_array_equal(module.get_output("y").numpy(), whole)
    np.testing.assert_array_equal(module.get_output("z").numpy(), whole % 256)


def test_what_has_no_fixed_int32_is_the_nearest():
    """Out of the ends of int32, and NaN, which no input may have: a quotient makes it."""
    values = [hmm.Value("x", "input", "float32", (4,)), hmm.Value("zero", "weight", "float32", (1,), "dense", weight=0)]
    values += [hmm.Value("q", "intermediate", "float32", (4,)), hmm.Value("y", "intermediate", "int32", (4,))]
    ops = [hmm.Op("Div", [0, 1], [2], {"broadcast": 1}), hmm.Op("Cast", [2], [3])]
    zero = hmm.WeightData("zero", "float32", "dense", (1,), np.zeros(1, np.float32))
    module = Module.load(hmm.model_bytes(hmm.Graph("g", values, ops, [0], [3]), [zero]))
    module.set_input("x", np.array([0, 1, -1, 3e38], np.float32))
    module.run(sync=True)
    assert module.get_output("y").numpy().tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1]


REFUSED = {
    "with numbers": ([("Mul", ["n", "half"], ["y"], {})], "operands of integers and of floating point numbers"),
    "of a function": ([("Exp", ["n"], ["y"], {})], "holds integers; Exp takes floating point numbers only"),
    "of a product": ([("MatMul", ["n", "n"], ["y"], {})], "holds integers; MatMul takes floating point numbers only"),
    "of a matrix": ([("MatMul", ["n", "m"], ["y"], {})], "holds integers; MatMul takes floating point numbers only"),
    "by 0": ([("Div", ["n", "c"], ["y"], {})], "a division by 0"),
    "a rest of 0": ([("Mod", ["n", "c"], ["y"], {})], "a division by 0"),
    "a computed power": (
        [("Pow", ["n", "n"], ["y"], {})],
        "the exponent is not one constant whole number from 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused_by_name(name, of_integers):
    nodes, message = REFUSED[name]
    constants = {"c": np.array([3, 0, 1, 1]), "half": np.float32(0.5), "m": np.ones((4, 2), np.int64)}
    model = of_integers(nodes, {"n": (4,)}, ["y"], constants)
    with pytest.raises(TcimError, match=f"'n0'.*{message}"):
        onnx_bytes(model, "float16")


def test_a_package_converts_integers_alone():
    def load(x: hmm.Value, y: str = "float16") -> None:
        values = [x, hmm.Value("y", "intermediate", y, (2, 3)), hmm.Value("z", "intermediate", y, (2, 3))]
        ops = [hmm.Op("Cast", [0], [1]), hmm.Op("Reshape", [1], [2])]
        weight = hmm.WeightData("x", "int32", "dense", (2, 3), np.zeros((2, 3), np.int32))
        inputs, weights = ([], [weight]) if x.kind == "weight" else ([0], [])
        Module.load(hmm.model_bytes(hmm.Graph("g", values, ops, inputs, [2]), weights))

    load(hmm.Value("x", "input", "int32", (2, 3)))
    load(hmm.Value("x", "input", "float16", (2, 3)), "int32")
    for x, message in (
        (hmm.Value("x", "input", "float16", (2, 3)), r"\(Cast\): 'x' is input float16 .*, expected int32"),
        (hmm.Value("x", "input", "int32", (3, 2)), r"\(Cast\): 'y' is float16 \[2, 3\], expected float16 \[3, 2\]"),
        (hmm.Value("x", "weight", "int32", (2, 3), "dense", weight=0), r"\(Cast\): 'x' is a weight"),
    ):
        with pytest.raises(HmmFormatError, match=message):
            load(x)
    with pytest.raises(HmmFormatError, match=r"\(Cast\): 'x' is input int32 .*, expected float16 or float32"):
        load(hmm.Value("x", "input", "int32", (2, 3)), "int32")


def test_ops_refuse_integers_that_they_do_not_compute():
    def load(kind: str, attributes=(), dtypes=("int32", "int32", "int32")) -> None:
        names = "abc" if kind == "Where" else "ab"
        values = [hmm.Value(name, "input", dtype, (2,)) for name, dtype in zip(names, dtypes, strict=False)]
        ids = list(range(len(values)))
        op = hmm.Op(kind, ids, [len(values)], dict(attributes))
        values.append(hmm.Value("y", "intermediate", dtypes[0], (2,)))
        Module.load(hmm.model_bytes(hmm.Graph("g", values, [op], ids, [len(ids)]), []))

    broadcast = {"broadcast": 1}
    load("Add", broadcast)
    load("Where")
    for kind, attributes, message in (
        ("Pow", broadcast, "'y' is int32 .*, expected float16 or float32"),
        ("PRelu", broadcast, "'y' is int32 .*, expected float16 or float32"),
        ("Add", {}, "'a' is input int32 .*, expected float16 or float32"),
    ):
        with pytest.raises(HmmFormatError, match=message):
            load(kind, attributes)
    with pytest.raises(HmmFormatError, match=r"'b' is input float16 .*, expected int32"):
        load("Add", broadcast, ("int32", "float16"))
    with pytest.raises(HmmFormatError, match=r"'b' is input int32 .*, expected float16 or float32"):
        load("Add", broadcast, ("float16", "int32"))
