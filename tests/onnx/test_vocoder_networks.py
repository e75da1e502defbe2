"""A flow and a vocoder as speech synthesis has them, exported by torch, against onnxruntime."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="builds and exports networks")
pytest.importorskip("onnxscript", reason="torch's exporter needs it")

from model_cases import cosine
from vocoder_networks import Flow, Vocoder
from zoo.build import float32_bounds

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def flow_feeds() -> dict[str, np.ndarray]:
    mask = (np.arange(40) < 33).astype(np.float32) * np.ones((2, 1, 1), np.float32)
    x, mu, cond = random(2, 20, 40), random(2, 20, 40) * 0.5, random(2, 20, 40) * 0.3
    return {"x": x, "mask": mask, "mu": mu, "t": np.array([0.3, 0.3], np.float32), "spks": random(2, 20), "cond": cond}


CASES = {
    "flow": (Flow, flow_feeds, "velocity"),
    "vocoder": (Vocoder, lambda: {"speech_feat": random(1, 20, 24)}, "generated_speech"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A module, what it gets, and its export: with the newer exporter, as the vendor's."""
    make, feeds, output = CASES[request.param]
    torch.manual_seed(4)
    module, feeds = make().eval(), feeds()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        names = {"input_names": list(feeds), "output_names": [output]}
        inputs = tuple(map(torch.from_numpy, feeds.values()))
        model = torch.onnx.export(module, inputs, opset_version=18, dynamo=True, verbose=False, **names).model_proto
    return module, feeds, output, model


def test_float32_is_within_its_bound_of_onnxruntime(case, run_here, run_there):
    module, feeds, output, model = case
    got, want = run_here(model, feeds)[output], run_there(model, feeds)[output]
    (bound,) = float32_bounds(module, *feeds.values())
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= bound


@pytest.mark.parametrize(("quant", "least"), [("float16", 0.9999), ("w8a8h1_sefp", 0.97)])
def test_other_profiles_are_close(case, quant, least, run_here, run_there):
    _, feeds, output, model = case
    assert cosine(run_here(model, feeds, quant)[output], run_there(model, feeds)[output]) > least
