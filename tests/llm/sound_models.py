"""What tests of language models with an encoder of sounds share: other names of tensors, and what all must do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from llm_packages import LoadedPackage
from oracle import assert_close, logit_bound
from safetensors.torch import load_file, save_file

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

# What names of tensors begin with: in files of transformers -> in those of Qwen.
QWEN_NAMES = {
    "model.multi_modal_projector.linear_": "thinker.audio_tower.proj",
    "model.language_model.": "thinker.model.",
    "model.": "thinker.",
    "lm_head.": "thinker.lm_head.",
    "score.": "thinker.lm_head.",
}


def rename_tensors(folder: Path, names: Mapping[str, str]) -> None:
    """Each by the first of the beginnings that it has."""
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        old = next(old for old in names if name.startswith(old))
        tensors[names[old] + name.removeprefix(old)] = tensor
    save_file(tensors, folder / "model.safetensors")


def check_language_model(model: torch.nn.Module, loaded: LoadedPackage) -> None:
    """That prefill of 32 tokens and decode of 18 agree with transformers, in float32."""
    config = model.config.text_config
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 50).tolist()
    with torch.no_grad():
        want = model(input_ids=torch.tensor([tokens])).logits[0].numpy()
    bound = logit_bound(config)
    assert_close(loaded.prefill(tokens[:32]), want[31], bound, "prefill")
    for position in range(32, 50):
        assert_close(loaded.decode(tokens[position], position), want[position], bound, f"decode at {position}")


def check_missing_layer(folder: Path, tmp_path: Path, changes: Mapping[str, object], tensor: str) -> None:
    """That a tensor which `changes` to `audio_config` ask for is named, and nothing is written."""
    config = json.loads((folder / "config.json").read_text())
    config.get("thinker_config", config)["audio_config"].update(changes)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    sizes = {"prefill_length": 32, "context_length": 128, "audio_frames": 400}
    with pytest.raises(CompileError, match=tensor):
        compile_checkpoint(CompileOptions(checkpoint=tmp_path, output=tmp_path / "out", **sizes))
    assert not (tmp_path / "out").exists()
