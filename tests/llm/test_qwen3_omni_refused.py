"""Qwen3-Omni: voices, sounds and graphs that cannot be are refused by name."""

from __future__ import annotations

import json

import pytest

from tcim_lite.models.common.errors import CompileError

pytestmark = pytest.mark.oracle
pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers.models.qwen3_omni_moe", reason="the oracle has no Qwen3-Omni")
from qwen3_omni_checkpoint import PREDICTOR, random_omni
from qwen3_omni_package import compiled


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("omni")
    random_omni().save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accept_hidden_layer": 5}, "accept_hidden_layer=5 must be below the 5 layers"),
        ({"num_code_groups": 6}, "num_code_groups is 6 in talker_config and 5 in its code_predictor_config"),
        ({"thinker_hidden_size": 128}, "talker.hidden_projection.linear_fc1.weight"),
        ({"text_config": None}, "text_config must be an object, got None"),
        ({"code_predictor_config": {**PREDICTOR, "hidden_size": 192}}, "hidden_size is 128 in text_config"),
    ],
)
def test_voices_that_do_not_fit_are_refused(folder, tmp_path, changes, message):
    config = json.loads((folder / "config.json").read_text())
    config["talker_config"] |= changes
    copy = tmp_path / "in"
    copy.mkdir()
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(CompileError, match=message):
        compiled(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("audio_config", {"n_window": 4, "n_window_infer": 8}, "n_window=4 makes one row, expected 5 or more"),
        ("code2wav_config", {"upsampling_ratios": [2, 0]}, r"upsampling_ratios=\[2, 0\] is not supported by the codec"),
    ],
)
def test_sounds_that_cannot_be_are_refused(folder, tmp_path, part, changes, message):
    config = json.loads((folder / "config.json").read_text())
    (config if part in config else config["thinker_config"])[part] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(CompileError, match=message):
        compiled(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pipeline": 2}, "--pipeline 2: graphs of this Qwen3-Omni also return hidden states of a layer"),
        ({"audio_frames": 100}, "--audio-frames is for Gemma 4, GLM-ASR and Qwen3-ASR"),
        ({"batch": 2}, "--batch 2: the vendor has no graph of several slots with positions along time"),
    ],
)
def test_what_its_graphs_do_not_have_is_refused(folder, tmp_path, options, message):
    with pytest.raises(CompileError, match=message):
        compiled(folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
