"""Detectors of later YOLO kinds, small ones of the blocks that set each apart, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch to build and export networks")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from zoo.build import Case, Network, build, export, float32_bounds
from zoo.detectors import DETECTORS

from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.runtime import Module

pytestmark = pytest.mark.oracle

# What roundings leave of random networks, which amplify them from layer to layer; v7 and v9 do so most.
LEAST_COSINE = {"float16": 0.9985, "w8a8h1_sefp": 0.93}


def answer(model, x, quant):
    module = Module.load(onnx_bytes(model, quant))
    module.set_input("x", x)
    module.run(sync=True)
    return module.get_output(module.get_output_name(0)).numpy().astype(np.float64)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_is_within_its_bounds_of_onnxruntime(name):
    case = Case((1, 3, 192, 192), (8,))
    module, x = build(Network(DETECTORS[name], case, case), case)
    model = export(module, x)
    (wanted,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (bound,) = float32_bounds(module, x)
    assert np.abs(answer(model, x, "float32") - wanted).max() < bound
    for quant, least in LEAST_COSINE.items():
        found = answer(model, x, quant)
        assert found.shape == wanted.shape
        if name != "yolov10":  # whose boxes change places where scores are close
            cosine = np.vdot(found, wanted) / np.linalg.norm(found) / np.linalg.norm(wanted)
            assert cosine > least
