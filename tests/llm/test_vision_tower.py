"""Vision towers of transformers, exported and compiled as docs/compile.md says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("onnx", reason="needs the extra [onnx]")

import torch
from vision_language import MODELS, random_model

import tcim_lite.runtime as rt
from tcim_lite.cli import main

# Largest difference of a feature over the largest feature: fp32 sums in another order; roundings to fp16, and of codes,
# over four layers.
LIMITS = {"float32": 4e-6, "float16": 4e-3, "w8a8h1_sefp": 0.05}


@pytest.fixture(scope="module", params=MODELS)
def tower(request, tmp_path_factory):
    """An ONNX file, an image, and what transformers makes of it."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import export_vision

    model, path = random_model(request.param), tmp_path_factory.mktemp(request.param) / "vision.onnx"
    export_vision.export(model, str(path), 64, 96)
    image = np.random.default_rng(1).uniform(-1, 1, (1, 3, 64, 96)).astype(np.float16).astype(np.float32)
    with torch.no_grad():
        want = [found.numpy() for found in export_vision.Tower(model.model.visual, 8, 12)(torch.tensor(image))]
    return path, image, want


@pytest.mark.parametrize("quant", LIMITS)
def test_features_are_those_of_transformers(tower, tmp_path, quant):
    path, image, want = tower
    assert main(["compile", str(path), "-o", str(tmp_path), "--quant", quant, "--name", "visual", "-q"]) == 0
    module = rt.load(tmp_path / "visual.hmm")
    assert [module.get_input_name(i) for i in range(module.get_num_inputs())] == ["image"]
    assert module.get_num_outputs() == len(want) == (4 if len(want) > 1 else 1)
    module.set_input("image", image)
    module.run(True)
    for index, expected in enumerate(want):
        name = module.get_output_name(index)
        assert name == (f"deepstack_embeds_{index - 1}" if index else "image_embeds")
        found = module.get_output(name).numpy().astype(np.float64)
        assert np.abs(found - expected).max() <= LIMITS[quant] * np.abs(expected).max(), name


def test_a_network_leaves_the_files_of_a_language_package(tower, tiny_package, tmp_path):
    import shutil

    folder = tmp_path / "package"
    shutil.copytree(tiny_package("qwen3_vl", prefill_length=16, context_length=64).folder, folder)
    before = sorted(folder.rglob("*"))
    assert main(["compile", str(tower[0]), "-o", str(folder), "--name", "qwen3_vl_visual", "-q"]) == 0
    assert sorted(folder.rglob("*")) == sorted([*before, folder / "qwen3_vl_visual.hmm"])
