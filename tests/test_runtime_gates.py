"""Products of gate and up: clamped, as gpt-oss has them, and with GELU."""

import numpy as np
import pytest
from built_graphs import load, run
from graph_maker import GraphMaker

import tcim_lite.runtime as rt
from tcim_lite.errors import HmmFormatError
from tcim_lite.models.graphs.builder import Clamp, GraphBuilder


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_clamped_product(dtype):
    builder = GraphBuilder("product", dtype, [])
    y = builder.silu_mul("y", builder.input("x", (1, 3, 64)), Clamp(alpha=1.702, limit=7.0))
    x = (np.random.default_rng(0).standard_normal((1, 3, 64)) * 8).astype(dtype)
    x[0, 0, :4] = x[0, 0, 16:20] = [7, -7, 60, -60]
    (found,) = run(load(builder, [y], []), x=x)
    gate, up = x.reshape(3, 2, 2, 16).astype(np.float64).transpose(2, 0, 1, 3).reshape(2, 3, 32)
    assert (gate > 7).any()
    assert (abs(up) > 7).any()
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    expected = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
    np.testing.assert_allclose(found[0], expected, rtol=1e-6 if dtype == "float32" else 1e-3, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gelu_of_the_gate(dtype):
    builder = GraphBuilder("product", dtype, [])
    y = builder.silu_mul("y", builder.input("x", (1, 3, 64)), "gelu_tanh")
    x = (np.random.default_rng(0).standard_normal((1, 3, 64)) * 3).astype(dtype)
    (found,) = run(load(builder, [y], []), x=x)
    gate, up = x.reshape(3, 2, 2, 16).astype(np.float64).transpose(2, 0, 1, 3).reshape(2, 3, 32)
    expected = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up
    # 1 + tanh loses what is small beside 1.
    bound = (1e-6 if dtype == "float32" else 1e-3) * abs(expected) + 2e-7 * abs(gate * up) + 6e-8
    assert (abs(found[0] - expected) <= bound).all()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [({"function": "relu"}, "'function'"), ({"function": "gelu_tanh", "alpha": 1.0, "limit": 1.0}, "does not go with")],
)
def test_the_function_of_the_gate_is_gelu_alone(attributes, message):
    maker = GraphMaker("product", "float32")
    product = maker.op("SiluMul", [maker.input("x", (1, 3, 64))], "y", (1, 3, 32), **attributes)
    with pytest.raises(HmmFormatError, match=rf"SiluMul.*{message}"):
        rt.load(maker.file(product))


@pytest.mark.parametrize("attributes", [{"alpha": 1.0}, {"limit": 1.0}, {"alpha": 1.0, "limit": -1.0}])
def test_the_clamp_has_two_positive_numbers(attributes):
    maker = GraphMaker("product", "float32")
    product = maker.op("SiluMul", [maker.input("x", (1, 3, 64))], "y", (1, 3, 32), **attributes)
    with pytest.raises(HmmFormatError, match=r"SiluMul.*'(alpha|limit)' is (missing|-1)"):
        rt.load(maker.file(product))
