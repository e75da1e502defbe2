"""Whole networks, exported by torch, against onnxruntime: a small one of each kind, and some of the full ones.

TCIM_LITE_NETWORKS=all takes every full network, ten minutes of a processor, and computes every bound.
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch", reason="needs torch to build and export networks")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from model_cases import NETWORKS, PROFILES, measure, printed
from zoo import build
from zoo.build import float32_bounds

pytestmark = pytest.mark.oracle

TRANSFORMERS = {"whisper_tiny_encoder", "clip_vit_b_32_image", "clip_vit_b_32_text"}
# The detectors' small forms end in maps of a few pixels and 8 channels, where 8-bit codes cost most.
LEAST_COSINE = {"yolov5s": 0.93, "yolov8s": 0.97, "deeplabv3": 0.985, "resnet50": 0.985}
# float32_bounds of full networks: four runs in float64 are most of what such a test takes.
BOUNDS = {
    "resnet18": [6.2534e-06],
    "squeezenet1_1": [1.3607e-07],
    "whisper_tiny_encoder": [3.4802e-05],
    "yolov8s": [0.044265],
}
EVERY = os.environ.get("TCIM_LITE_NETWORKS") == "all"


@pytest.fixture(params=NETWORKS)
def name(request):
    if request.param in TRANSFORMERS:
        pytest.importorskip("transformers", reason="needs transformers")
    return request.param


@pytest.mark.filterwarnings("ignore")
def test_a_small_network_is_within_its_bounds_of_onnxruntime(name):
    result = measure(name, small=True)
    assert max(result.error) < 1
    assert min(result.cosines["float16"]) > 0.9999
    assert min(result.cosines["w8a8h1_sefp"]) > LEAST_COSINE.get(name, 0.995)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("network", ["yolov8s", "convnext_tiny"])
def test_the_newer_exporter_gives_the_same_network(network):
    pytest.importorskip("onnxscript", reason="torch's newer exporter needs onnxscript")
    result = measure(network, small=True, dynamo=True, profiles=["float32"])
    assert max(result.error) < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS if EVERY else BOUNDS, indirect=True)
@pytest.mark.filterwarnings("ignore")
def test_a_full_network_is_as_the_page_says(name):
    """The page rounds: half a unit of its last digit, and what onnxruntime's CPU changes."""
    half, quantised = printed()[name]
    result = measure(name, small=False, bounds=None if EVERY else BOUNDS[name])
    assert max(result.error) < 1
    assert list(result.cosines["float16"]) == pytest.approx(half, abs=2e-6)
    assert list(result.cosines["w8a8h1_sefp"]) == pytest.approx(quantised, abs=2e-3)


def test_a_bound_that_is_written_down_is_what_it_would_be_computed_as():
    case = NETWORKS["squeezenet1_1"]
    module, x = build(case, case.full)
    assert float32_bounds(module, x) == pytest.approx(BOUNDS["squeezenet1_1"], rel=0.01)


def test_the_page_has_every_network():
    assert list(printed()) == list(NETWORKS)
    assert PROFILES == ("float32", "float16", "w8a8h1_sefp")
