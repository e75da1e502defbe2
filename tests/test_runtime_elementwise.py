"""The elementwise ops from a graph of the builder to the result, on numbers that round, overflow and cancel."""

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import _core, hmm
from tcim_lite.hmm import Graph, Op, Value

FUNCTIONS = {
    "Add": np.add,
    "Mul": np.multiply,
    "Sub": np.subtract,
    "Div": np.divide,
    "Max": lambda a, b: np.where(a < b, b, a),
    "Min": lambda a, b: np.where(b < a, b, a),
    "PRelu": lambda a, b: np.where(a < 0, a * b, a),
    "Equal": lambda a, b: (a == b).astype(np.float32),
    "Less": lambda a, b: (a < b).astype(np.float32),
}
BOUNDED = {"Pow"}  # tests/onnx/test_functions.py
SHAPE = (1, 5, 37)


@pytest.fixture
def module(tmp_path):
    """Loads y = op(a, b), both of SHAPE, with `rows` of axis 1 real."""

    def load(op, dtype):
        values = [Value(name, "input", dtype, SHAPE) for name in "ab"]
        values += [Value("rows", "input", "int32", (1,)), Value("y", "intermediate", dtype, SHAPE)]
        path = tmp_path / f"{op}_{dtype}.hmm"
        hmm.write_model(path, Graph(op, values, [Op(op, [0, 1], [3])], [0, 1, 2], [3], 2), [], producer="test")
        return rt.load(path)

    return load


def test_every_elementwise_op_is_tried():
    rows = {row["name"] for row in _core.op_table() if row["signature"].startswith("a T, b like a")}
    assert rows == FUNCTIONS.keys() | BOUNDED


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_elementwise_ops_round_once_and_saturate(module, op, dtype):
    random = np.random.default_rng(3)
    a, b = (np.ldexp(random.uniform(-1, 1, SHAPE), random.integers(-14, 17, SHAPE)) for _ in "ab")
    a, b = (x.astype(dtype) for x in (np.clip(a, -65504, 65504), np.clip(b, -65504, 65504)))
    a[0, 0, :4], b[0, 0, :4] = [65504, -65504, 0, -0.0], [65504, 65504, -1, 3 if op == "Div" else 0]
    a[0, 1, :9] = b[0, 1, :9]
    loaded = module(op, dtype)
    loaded.set_input("a", a)
    loaded.set_input("b", b)
    loaded.set_input("rows", 4)
    loaded.run(True)
    with np.errstate(over="ignore"):
        expected = FUNCTIONS[op](a.astype(np.float32), b.astype(np.float32))
    if dtype == "float16":
        expected = np.clip(expected, -65504, 65504).astype(np.float16)
    expected[0, 4:] = 0  # not live
    found = loaded.get_output("y").numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
