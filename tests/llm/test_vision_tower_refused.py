"""Vision towers, sizes and gears that cannot be are refused by name."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")
from tower_features import sizes
from vision_language import TOWERS, random_model

from tcim_lite.cli import main
from tcim_lite.models.families import FAMILIES


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vision", "448"], "--vision 448: expected height x width"),
        (["--vision", "40x64"], "--vision 40x64: both sides must be multiples of 16, the side of a token"),
        (["--vision", "0x16"], "both sides must be multiples of 16"),
        (["--vision", "9600x9600"], "makes 1440000 patches, expected 1 to 65536"),
        (["--vision", "--vision-mask"], "--vision-mask: the graphs of this tower take no mask of windows"),
        (["--vision", "--vision-quant", "w4a8h0_ssfp"], "choose from w8a8h1_sefp, float16, float32"),
        (["--vision-mask"], "--vision-mask is for the graph of a vision tower; give --vision as well"),
        (["--vision-quant", "float16"], "--vision-quant is for the graph of a vision tower"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, options, message):
    config = {**FAMILIES["qwen3_vl"].tiny_config, "vision_config": FAMILIES["qwen3_vl"].vision.tiny}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["compile", str(tmp_path), "--random-weights", "-o", str(tmp_path / "out"), *options, "-q"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("qwen3_vl", None, "config.json has no vision_config"),
        ("qwen3_vl", 3, "vision_config must be an object, got 3"),
        ("qwen3_vl", {"depth": None}, "depth"),
        ("qwen3_vl", {"hidden_act": "gelu"}, "hidden_act='gelu' is not supported; the vision tower of Qwen3-VL dense"),
        ("qwen3_vl", {"in_channels": 1}, "in_channels=1 is not supported"),
        ("qwen3_vl", {"num_heads": 3}, "makes heads of 21.3333 with num_heads=3, expected a multiple of 4"),
        ("qwen3_vl", {"out_hidden_size": 64}, "out_hidden_size=64, but the language model's hidden_size is 192"),
        ("qwen3_vl", {"num_position_embeddings": 65}, "num_position_embeddings=65 is no square"),
        ("qwen3_vl", {"deepstack_visual_indexes": [0, 2, 1]}, "must name layers in order, got [0, 2, 1]"),
        ("qwen3_vl", {"deepstack_visual_indexes": [0, 1, 4]}, "deepstack_visual_indexes names layer 4, of 4"),
        ("qwen3_vl", {"deepstack_visual_indexes": [0, 1]}, "names 2 layers, but 3 layers of the language model"),
        ("qwen3_vl", {"rope_parameters": [1]}, "rope_parameters must be an object, got [1]"),
        ("qwen2_5_vl", {"fullatt_block_indexes": [-1]}, "fullatt_block_indexes must be a list of layers"),
        ("paddleocr_vl", {"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 is not supported; the vision tower of Paddle"),
        ("paddleocr_vl", {"image_size": 5}, "num_position_embeddings must be a positive integer, got 0"),
        ("qwen3", {}, "--vision: Qwen3 dense has no vision tower"),
    ],
)
def test_towers_that_cannot_be_are_refused(tmp_path, capsys, family, changes, message):
    record = FAMILIES[family]
    tiny = record.vision.tiny | changes if record.vision and isinstance(changes, dict) else changes
    (tmp_path / "config.json").write_text(json.dumps(record.tiny_config | ({"vision_config": tiny} if tiny else {})))
    asked = ["compile", str(tmp_path), "--random-weights", "-o", str(tmp_path / "out"), "--vision", "-q"]
    assert main(asked) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("4 by 4", "give their numbers, such as --vision 96,196"),
        ("0", "makes 0 patches"),
        ("4x4x4", "expected height x width of the images in pixels"),
        ("445x448", "both sides must be multiples of 16"),
    ],
)
def test_gears_that_cannot_be_are_refused(tmp_path, capsys, asked, message):
    record = FAMILIES["qwen3_5"]
    (tmp_path / "config.json").write_text(json.dumps({**record.tiny_config, "vision_config": record.vision.tiny}))
    out = ["-o", str(tmp_path / "out"), "-q"]
    assert main(["compile", str(tmp_path), "--random-weights", "--vision", asked, *out]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("family", TOWERS)
def test_a_language_model_alone_has_no_tower(family, tmp_path, capsys):
    from safetensors.numpy import load_file, save_file

    random_model(family).save_pretrained(tmp_path / "hf")
    path = tmp_path / "hf" / "model.safetensors"
    save_file({name: values for name, values in load_file(path).items() if "visual" not in name}, path)
    asked = sizes(family, 64, 96)
    assert main(["compile", str(tmp_path / "hf"), "-o", str(tmp_path / "out"), *asked, "-q"]) == 2
    message = "has no tensors model.visual.*, visual.* or thinker.visual.*; expected the checkpoint of the whole"
    assert message in capsys.readouterr().err
