"""Contexts beyond which a model would be another one, and tensors that matter only there."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from family_checkpoints import family_tensors
from safetensors.numpy import save_file

from tcim_lite import hmm
from tcim_lite.cli import main
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES

LIMITS = {
    "deepseek_v32": ("index_topk", "index_topk=48 of config.json chooses among tokens of a longer context"),
    "glm_moe_dsa": ("index_topk", "index_topk=48 of config.json chooses among tokens of a longer context"),
    "llama4": ("attention_chunk_size", "attention_chunk_size=48 of config.json hides tokens of a longer context"),
}


def options(folder: Path, context: int | None, **more: bool) -> CompileOptions:
    return CompileOptions(
        checkpoint=folder, output=folder / "out", quant="float16", prefill_length=8, context_length=context, **more
    )


@pytest.mark.parametrize("family", LIMITS)
def test_a_context_beyond_the_limit_is_refused(tmp_path: Path, family: str) -> None:
    key, message = LIMITS[family]
    (tmp_path / "config.json").write_text(json.dumps({**FAMILIES[family].tiny_config, key: 48}))
    with pytest.raises(CompileError, match=f"--context-length 49: {message}.*give --context-length 48 or less"):
        compile_checkpoint(options(tmp_path, 49, random_weights=True))
    with pytest.warns(match="no tokenizer"):
        compile_checkpoint(options(tmp_path, 48, random_weights=True))


@pytest.mark.parametrize("family", [*LIMITS, "gpt2"])
def test_without_an_option_the_context_is_the_longest_that_the_model_has(tmp_path: Path, family: str) -> None:
    key = LIMITS[family][0] if family in LIMITS else "n_positions"
    (tmp_path / "config.json").write_text(json.dumps({**FAMILIES[family].tiny_config, key: 48}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile_checkpoint(options(tmp_path, None, random_weights=True))
    (said,) = [text for each in caught if "tokenizer" not in (text := str(each.message))]
    assert said.startswith("the context is 48 tokens, not 2048: ")
    assert "config.json" in said
    for stage in ("prefill", "decode"):
        model = hmm.read(tmp_path / "out" / f"{family}_{stage}.hmm")
        assert json.loads(model.custom_msg)["context_length"] == 48


def test_a_chunk_longer_than_the_longest_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**FAMILIES["gpt2"].tiny_config, "n_positions": 4}))
    with pytest.warns(match="4 tokens"), pytest.raises(CompileError, match="--prefill-length 8 is greater than"):
        compile_checkpoint(options(tmp_path, None, random_weights=True))


def test_a_draft_with_fewer_positions_than_the_context_is_refused(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    for folder, positions in ((tmp_path, 64), (draft, 48)):
        config = {**FAMILIES["gpt2"].tiny_config, "n_positions": positions}
        (folder / "config.json").write_text(json.dumps(config))
    pair = replace(options(tmp_path, None, random_weights=True), draft=draft)
    with pytest.warns(match="64 tokens"), pytest.raises(CompileError, match="give --context-length 48 or less"):
        compile_checkpoint(pair)


def test_the_command_says_on_stderr_that_the_context_is_shorter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**FAMILIES["gpt2"].tiny_config, "n_positions": 48}))
    arguments = ["compile", str(tmp_path), "-o", str(tmp_path / "out"), "--random-weights", "--prefill-length", "8"]
    assert main([*arguments, "--context-length", "49"]) == 2
    assert "learned positions for 48 tokens; give --context-length 48 or less" in capsys.readouterr().err
    assert main(arguments) == 0
    said = capsys.readouterr().err.splitlines()
    assert "warning: the context is 48 tokens, not 2048: config.json has learned positions for 48 tokens" in said


def test_layers_without_chunks_have_no_limit(tmp_path: Path) -> None:
    changes = {"attention_chunk_size": 16, "layer_types": ["full_attention"] * 2}
    (tmp_path / "config.json").write_text(json.dumps({**FAMILIES["llama4"].tiny_config, **changes}))
    with pytest.warns(match="no tokenizer"):
        compile_checkpoint(options(tmp_path, 64, random_weights=True))


def test_tensors_of_an_index_are_left_out_without_a_warning(tmp_path: Path) -> None:
    config = FAMILIES["deepseek_v32"].tiny_config
    (tmp_path / "config.json").write_text(json.dumps(config))
    index = {f"model.layers.{layer}.self_attn.indexer.wk.weight": np.ones((64, 192), np.float16) for layer in (0, 1)}
    save_file({**family_tensors(config), **index}, tmp_path / "model.safetensors")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile_checkpoint(options(tmp_path, 64))
    assert not [str(each.message) for each in caught if "tokenizer" not in str(each.message)]
