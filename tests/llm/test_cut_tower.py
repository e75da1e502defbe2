"""Vision towers whose graphs take the patches of images of some sizes, against transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from vision_language import features_of, patches_for, random_model

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.llm.vision import VisionTower
from tcim_lite.models.families import FAMILIES

COMMON = ("--prefill-length", "8", "--context-length", "16", "-q")
LISTED = "hmquant/mineru_visual_buckets.json"


def seen(model, pixels: np.ndarray) -> np.ndarray:
    """Features of an image, of transformers."""
    patches, grid = patches_for(model, pixels)
    (features,) = features_of(model, patches, [grid])
    return features.numpy()


def image(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).uniform(-1, 1, (3, height, width)).astype(np.float16)


def test_a_graph_for_each_size_and_a_file_that_lists_them(tmp_path):
    sizes = [(64, 96), (96, 64), (32, 160)]
    model = random_model("qwen2_vl")
    model.save_pretrained(tmp_path / "hf")
    out = tmp_path / "out"
    command = ["compile", str(tmp_path / "hf"), "-o", str(out), "--quant", "float32", *COMMON]
    assert main([*command, "--vision", ",".join(f"{height}x{width}" for height, width in sizes)]) == 0
    named = {f"qwen2_vl_visual_{height}x{width}.hmm" for height, width in sizes}
    assert {path.name for path in out.glob("*visual*")} == named | {"qwen2_vl_visual.hmw"}
    assert json.loads((out / LISTED).read_text()) == {
        "buckets": [{"max_size_h": 96, "max_size_w": 64}, {"max_size_h": 32, "max_size_w": 160}],
        "fallback_bucket": {"max_size_h": 64, "max_size_w": 96},
        "patch_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    tower = VisionTower(out, "qwen2_vl")
    assert set(tower.sizes) == set(sizes)
    for size in sizes:
        (found,), want = tower.see(image(*size)), seen(model, image(*size))
        assert np.abs(found - want).max() <= 4e-6 * np.abs(want).max()
    with pytest.raises(ValueError, match=r"an image of 64 x 64 pixels: the graphs take .*64 x 96"):
        tower.see(image(64, 64))
    assert [tower.fitting(*size) for size in ((640, 900), (50, 30), (10, 60))] == sizes
    assert main(command) == 0
    assert not list(out.glob("*visual*"))
    assert not (out / LISTED).exists()


@pytest.mark.parametrize(("quant", "difference"), [("float32", 4e-6), ("float16", 4e-3), ("w8a8h1_sefp", 0.05)])
def test_patches_of_odd_sizes_are_padded(tmp_path, quant, difference):
    """A patch of 6 pixels has 216 numbers, which are no whole groups of a quantised weight."""
    model = random_model("qwen2_vl", vision={"patch_size": 6, "mlp_ratio": 2, "depth": 2})
    model.save_pretrained(tmp_path / "hf")
    asked = ("--vision", "36x60", "--vision-quant", quant, "--quant", "float16", *COMMON)
    assert main(["compile", str(tmp_path / "hf"), "-o", str(tmp_path / "out"), *asked]) == 0
    (found,), want = VisionTower(tmp_path / "out", "qwen2_vl").see(image(36, 60)), seen(model, image(36, 60))
    assert np.abs(found - want).max() <= difference * np.abs(want).max()


def test_sizes_are_the_vendors_unless_asked(tmp_path):
    record = FAMILIES["qwen2_vl"]
    vision = {**record.vision.tiny, "depth": 1, "patch_size": 14}
    (tmp_path / "config.json").write_text(json.dumps({**record.tiny_config, "vision_config": vision}))
    out = tmp_path / "out"
    asked = ["--random-weights", "--vision", "--name", "mineru2.5-pro-2604-1.2b", *COMMON]
    assert main(["compile", str(tmp_path), "-o", str(out), *asked]) == 0
    listed = json.loads((out / LISTED).read_text())
    assert listed["fallback_bucket"] == {"max_size_h": 1036, "max_size_w": 1036}
    assert len(listed["buckets"]) == 10
    for size in [listed["fallback_bucket"], *listed["buckets"]]:
        height, width = size["max_size_h"], size["max_size_w"]
        module = rt.load(out / f"mineru2.5-pro-2604-1.2b_visual_{height}x{width}.hmm")
        shapes = module.get_input_info("pixel_values").shape, module.get_output_info("image_embeds").shape
        assert shapes == ((height * width // 196, 1176), (height * width // 784, 384))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("64x96,", "--vision : expected height x width of the images in pixels"),
        ("64x96,64", "--vision 64: expected height x width"),
        ("64x96,40x64", "--vision 40x64: both sides must be multiples of 16"),
    ],
)
def test_sizes_that_cannot_be_are_refused(tmp_path, capsys, asked, message):
    record = FAMILIES["qwen2_vl"]
    (tmp_path / "config.json").write_text(json.dumps({**record.tiny_config, "vision_config": record.vision.tiny}))
    options = ("--random-weights", "--vision", asked, *COMMON)
    assert main(["compile", str(tmp_path), "-o", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "out_hidden_size=64, but the language model's hidden_size is 384"),
        ({"mlp_ratio": 2.5}, "mlp_ratio must be a positive integer, got 2.5"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported; the vision tower of Qwen2-VL"),
    ],
)
def test_towers_that_cannot_be_are_refused(tmp_path, capsys, changes, message):
    record = FAMILIES["qwen2_vl"]
    vision = record.vision.tiny | changes
    (tmp_path / "config.json").write_text(json.dumps({**record.tiny_config, "vision_config": vision}))
    options = ("--random-weights", "--vision", *COMMON)
    assert main(["compile", str(tmp_path), "-o", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
