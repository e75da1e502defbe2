"""The elementwise ops from a graph of the builder to the result, on numbers that round, overflow and cancel."""

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import _core, hmm
from tcim_lite.hmm import Role
from tcim_lite.models.common.graph_builder import GraphBuilder

FUNCTIONS = {"add": np.add, "mul": np.multiply}
SHAPE = (1, 5, 37)


@pytest.fixture
def module(tmp_path):
    """Loads y = op(a, b), both of SHAPE, with `rows` of axis 1 real."""

    def load(op, dtype):
        builder = GraphBuilder(op, dtype, [])
        a, b = builder.input("a", SHAPE), builder.input("b", SHAPE)
        rows = builder.input("rows", (1,), "int32")
        y = getattr(builder, op)("y", a, b)
        path = tmp_path / f"{op}_{dtype}.hmm"
        hmm.write_model(path, builder.build({y: Role("result")}, rows), [], producer="test")
        return rt.load(path)

    return load


def test_every_elementwise_op_is_tried():
    rows = {row["name"] for row in _core.op_table() if row["signature"] == "a T, b like a -> like a"}
    assert rows == {name.capitalize() for name in FUNCTIONS}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_elementwise_ops_round_once_and_saturate(module, op, dtype):
    random = np.random.default_rng(3)
    a, b = (np.ldexp(random.uniform(-1, 1, SHAPE), random.integers(-14, 17, SHAPE)) for _ in "ab")
    a, b = (x.astype(dtype) for x in (np.clip(a, -65504, 65504), np.clip(b, -65504, 65504)))
    a[0, 0, :4], b[0, 0, :4] = [65504, -65504, 0, -0.0], [65504, 65504, -1, 0]
    loaded = module(op, dtype)
    loaded.set_input("a", a)
    loaded.set_input("b", b)
    loaded.set_input("rows", 4)
    loaded.run(True)
    expected = FUNCTIONS[op](a.astype(np.float32), b.astype(np.float32))
    if dtype == "float16":
        expected = np.clip(expected, -65504, 65504).astype(np.float16)
    expected[0, 4:] = 0  # not live
    found = loaded.get_output("y").numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
