"""Whisper: configurations and options that do not fit are refused by name."""

from __future__ import annotations

import json

import pytest
from whisper_models import random_model

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

pytestmark = pytest.mark.oracle
pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    random_model().save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "relu"}, "activation_function='relu' is not supported; Whisper is compiled"),
        ({"scale_embedding": True}, "scale_embedding=True is not supported"),
        ({"decoder_attention_heads": 3}, "d_model=128 is not a multiple of decoder_attention_heads=3"),
        ({"vocab_size": None}, "config.json has no 'vocab_size'"),
        ({"vocab_size": 321}, r"'model.decoder.embed_tokens.weight'.* has shape \[320, 128\], expected \[321, 128\]"),
        ({"encoder_layers": 3}, "model.encoder.layers.2.self_attn_layer_norm.weight"),
        ({"architectures": ["WhisperForAudioClassification"]}, "this compiler takes WhisperForConditionalGeneration"),
    ],
)
def test_configs_that_do_not_fit_are_refused(folder, tmp_path, changes, message):
    config = json.loads((folder / "config.json").read_text())
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_text(json.dumps(config | changes))
    (copy / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(CompileError, match=message):
        compile_checkpoint(CompileOptions(checkpoint=copy, output=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefill_length": 8}, "--prefill-length: the graphs of Whisper are those of the vendor"),
        ({"batch": 2}, "--batch"),
        ({"ndevice": 2, "single_device": False}, "--(ndevice|no-single-device)"),
        ({"draft_layers": 1}, "--draft-layers"),
    ],
)
def test_options_of_language_models_are_refused(folder, tmp_path, options, message):
    with pytest.raises(CompileError, match=message):
        compile_checkpoint(CompileOptions(checkpoint=folder, output=tmp_path / "out", **options))


def test_caches_shorter_than_the_prompt_are_refused(folder, tmp_path):
    with pytest.raises(CompileError, match="--context-length 3: expected at least 4, the tokens of Whisper's prefill"):
        compile_checkpoint(CompileOptions(checkpoint=folder, output=tmp_path, context_length=3))


@pytest.mark.parametrize(
    ("file", "name", "other"),
    [
        ("a_encode_decode.hmm", "a", "a_encode"),
        ("a_encoder_decode.hmm", "a", "a_encoder"),
        ("a_audio_decode.hmm", "a", "a_audio"),
        ("a_visual_prefill.hmm", "a", "a_visual"),
        ("a_encode.hmm", "a_encode", "a"),
        ("a_audio.hmm", "a_audio", "a"),
        ("a_visual_m96.hmm", "a_visual", "a"),
    ],
)
def test_a_package_whose_files_would_be_mixed_up_is_refused(folder, tmp_path, file, name, other):
    (tmp_path / file).touch()
    options = CompileOptions(checkpoint=folder, output=tmp_path, name=name)
    with pytest.raises(CompileError, match=f"holds a package '{other}',"):
        compile_checkpoint(options)
    assert [path.name for path in tmp_path.iterdir()] == [file]
