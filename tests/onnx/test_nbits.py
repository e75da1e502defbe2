"""MatMulNBits, which onnxruntime's quantiser of weights writes, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 3, 80)).astype(np.float32)  # 80: the last block of a row is not full
OUTPUTS, BLOCKS, BLOCK = 5, 3, 32


def network(make_model, bits, zeros=None, bias=False, **attributes):
    constants = {
        "codes": RNG.integers(0, 256, (OUTPUTS, BLOCKS, BLOCK * bits // 8)).astype(np.uint8),
        "scales": RNG.uniform(0.01, 0.1, OUTPUTS * BLOCKS).astype(np.float32),
    }
    names = ["x", "codes", "scales"]
    if zeros is not None:
        constants["zeros"] = zeros
        names.append("zeros")
    if bias:
        constants["bias"] = RNG.normal(size=OUTPUTS).astype(np.float32)
        names += [""] * (5 - len(names)) + ["bias"]
    how = {"K": 80, "N": OUTPUTS, "bits": bits, "block_size": BLOCK, "domain": "com.microsoft", **attributes}
    model = make_model([("MatMulNBits", names, ["y"], how)], {"x": X.shape}, ["y"], constants)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


@pytest.mark.parametrize(("bits", "zeros"), [(4, "none"), (4, "packed"), (4, "floats"), (8, "none"), (8, "packed")])
def test_a_product_with_codes_is_one_of_what_they_stand_for(bits, zeros, make_model, run_here, run_there):
    packed = RNG.integers(0, 256, OUTPUTS * -(-BLOCKS * bits // 8)).astype(np.uint8)
    floats = RNG.uniform(0, 2**bits, OUTPUTS * BLOCKS).astype(np.float32)
    model = network(make_model, bits, {"none": None, "packed": packed, "floats": floats}[zeros], bias=zeros == "packed")
    want = run_there(model, {"x": X})["y"]
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"K": 96}, r"codes of 4 bits in blocks of 32, N = 5, K = 96, for an operand \[2, 3, 80\]"),
        ({"bits": 3}, "codes of 3 bits"),
        ({"block_size": 64}, "the scales: 15 of float32, expected 10 floats"),
        ({"N": 6}, "the codes: 240 of uint8, expected 288 of uint8"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(attributes, message, make_model):
    model = network(make_model, **{"bits": 4, **attributes})
    if "block_size" in attributes:
        model.graph.initializer[0].dims[:] = [240]
        model.graph.initializer[0].raw_data = bytes(5 * 2 * 32)
        model.graph.initializer[0].dims[:] = [5, 2, 32]
    with pytest.raises(TcimError, match=rf"'n0' \(com.microsoft.MatMulNBits\): {message}"):
        onnx_bytes(model, "float32")
