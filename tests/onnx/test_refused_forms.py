"""Forms of ops that a package could not hold are refused with the node."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

X = np.ones((2, 3, 5, 6), np.float32)
WEIGHT = np.ones((2, 3, 3, 3), np.float32)
REFUSED = {
    "alpha is inf": ("LeakyRelu", {"alpha": float("inf")}, []),
    "value is nan": ("Pad", {}, [np.array([0, 0, 1, 1] * 2), np.float32(np.nan)]),
    "epsilon is -1.0, expected 0 or more": ("LayerNormalization", {"epsilon": -1.0}, [np.ones(6, np.float32)]),
    "epsilon is nan": ("InstanceNormalization", {"epsilon": float("nan")}, [np.ones(3, np.float32)] * 2),
    "kernel_shape [2, 3] for a weight with the kernel [3, 3]": ("Conv", {"kernel_shape": [2, 3]}, [WEIGHT]),
    "pads [-1, 0, 0, 0], expected no negative ones": ("Conv", {"pads": [-1, 0, 0, 0]}, [WEIGHT]),
    "indices beyond axes 0 to 1": ("GatherND", {}, [np.array([[2, 0]])]),
    "with 1 batch_dims": ("GatherND", {"batch_dims": 1}, [np.array([[0]])]),
    "a cast to STRING; expected floating point of 16 bits": ("Cast", {"to": 8}, []),
    "a cast to FLOAT8E4M3FN; expected": ("Cast", {"to": 17}, []),
    "expected half_pixel, ": (
        "Resize",
        {"coordinate_transformation_mode": "half"},
        [np.ones(0, np.float32), np.ones(4, np.float32) * 2],
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_package_could_not_hold_is_refused_with_the_node(text, make_model):
    op, attributes, constants = REFUSED[text]
    names = [f"c{i}" for i in range(len(constants))]
    model = make_model(
        [(op, ["x", *names], ["y"], attributes)], {"x": X.shape}, ["y"], dict(zip(names, constants, strict=True))
    )
    with pytest.raises(TcimError, match="n0") as error:
        onnx_bytes(model, "float32")
    assert text in str(error.value)


def test_an_empty_input_is_refused_as_such(make_model):
    model = make_model([("Relu", ["x"], ["y"], {})], {"x": (0, 6)}, ["y"])
    with pytest.raises(TcimError, match=r"input 'x' has the shape \[0, 6\]: empty tensors are not supported"):
        onnx_bytes(model, "float32", shapes={"x": (0, 6)})
    with pytest.raises(TcimError, match=r"'x' has the shape \[0,6\] in the file: empty .* with --shape such as x=1,6"):
        onnx_bytes(model, "float32")
