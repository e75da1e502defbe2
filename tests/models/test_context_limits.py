"""Contexts beyond which a model would be another one, and tensors that matter only there."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from family_checkpoints import family_tensors
from safetensors.numpy import save_file

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES

LIMITS = {
    "deepseek_v32": ("index_topk", "index_topk=48 of config.json chooses among tokens of a longer context"),
    "glm_moe_dsa": ("index_topk", "index_topk=48 of config.json chooses among tokens of a longer context"),
    "llama4": ("attention_chunk_size", "attention_chunk_size=48 of config.json hides tokens of a longer context"),
}


def options(folder: Path, context: int, **more: bool) -> CompileOptions:
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
