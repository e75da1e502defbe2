"""Vision towers of MiniCPM-V: configurations and options that cannot be are refused by name."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")
from tcim_lite.cli import main
from tcim_lite.models.families import FAMILIES


@pytest.mark.parametrize(
    ("family", "changes", "tower", "options", "message"),
    [
        (
            "minicpmv4_6",
            {"insert_layer_id": 3},
            {},
            [],
            "insert_layer_id=3 must be a layer of the vision tower, 0 to 2",
        ),
        ("minicpmv4_6", {"insert_layer_id": -1}, {}, [], "insert_layer_id must be the number of a layer, 0 for"),
        (
            "minicpmv4_6",
            {"merger_times": 2},
            {},
            [],
            "merger_times=2 is not supported; the vision tower of MiniCPM-V 4",
        ),
        ("minicpmv4_6", {}, {"window_kernel_size": [4, 4]}, [], "window_kernel_size=[4, 4] is not supported"),
        ("minicpmv4_6", {}, {"hidden_act": "gelu"}, [], "hidden_act='gelu' is not supported"),
        (
            "minicpmv4_6",
            {},
            {"num_attention_heads": 3},
            [],
            "hidden_size=64 is not a multiple of num_attention_heads=3",
        ),
        ("minicpmv4_6", {}, {"image_size": 50}, [], "image_size=50 is not a multiple of patch_size=6"),
        ("minicpmv4_6", {}, {}, ["24"], "--vision 24: the number of patches must be a multiple of 16"),
        (
            "minicpmv4_6",
            {},
            {},
            ["448x448"],
            "take any image of up to so many patches; give their number, such as --vi",
        ),
        ("minicpmv4_6", {}, {}, ["0"], "--vision 0 makes 0 patches"),
        ("minicpmv4_6", {}, {}, ["16", "--vision-mask"], "--vision-mask: the graphs of this tower take no mask"),
        ("minicpmv", {}, {}, ["16384"], "--vision 16384 makes 98304 patches, expected 1 to 65536"),
        (
            "minicpmv",
            {"hidden_size": 192},
            {},
            [],
            "hidden_size=192 is not a multiple of 128, the width of a head of the",
        ),
        ("minicpmv", {"version": 2.6}, {}, [], "version=2.6 is not supported; MiniCPM-V 4.5 is compiled with 4.5 only"),
        ("minicpmv", {"drop_vision_last_layer": True}, {}, [], "drop_vision_last_layer=True is not supported"),
        (
            "minicpmv",
            {},
            None,
            [],
            "config.json has no vision_config, so there is no vision tower; MiniCPM-V 4.5 models",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, family, changes, tower, options, message):
    record = FAMILIES[family]
    config = {**record.tiny_config, **changes}
    if tower is not None:
        config["vision_config"] = {**record.vision.tiny, **tower}
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = ["compile", str(tmp_path), "--random-weights", "-o", str(tmp_path / "out"), "-q", "--vision", *options]
    assert main(asked) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
