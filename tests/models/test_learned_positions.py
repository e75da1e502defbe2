"""Files of families whose positions are learned: names without a prefix, masks among tensors, contexts too long."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_checkpoints import family_tensors
from safetensors.numpy import save_file

from tcim_lite.models.common.errors import CheckpointError, CompileError, CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES, read_config

TABLED = {name: read_config(family.tiny_config) for name, family in FAMILIES.items()}
LEARNED = [name for name, config in TABLED.items() if config.positions is not None and not config.sinusoids]
TURNED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def write(folder: Path, family: str, **changes: Any) -> tuple[Path, dict[str, np.ndarray]]:
    """A folder with config.json, and the tensors to save in it as its files have them."""
    folder.mkdir()
    config = {**FAMILIES[family].tiny_config, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = family_tensors(config)
    turn = FAMILIES[family].columns_first
    return folder, {
        name: np.ascontiguousarray(x.T) if turn and name.endswith(TURNED) else x for name, x in tensors.items()
    }


def package(folder: Path, **options: Any) -> dict[str, bytes]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CompileWarning)
        compile_checkpoint(
            CompileOptions(
                checkpoint=folder,
                output=folder / "out",
                quant="float16",
                **{"prefill_length": 8, "context_length": 64, **options},
            )
        )
    assert not [str(each.message) for each in caught if "tokenizer" not in str(each.message)]
    return {path.name: path.read_bytes() for path in (folder / "out").glob("*.hm*")}


@pytest.mark.parametrize("family", [name for name in LEARNED if name != "biogpt"])
def test_names_without_the_prefix_and_masks_change_nothing(tmp_path: Path, family: str) -> None:
    whole, tensors = write(tmp_path / "whole", family)
    save_file(tensors, whole / "model.safetensors")
    bare, _ = write(tmp_path / "bare", family)
    prefix = "model." if family == "opt" else "transformer."
    named = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    if FAMILIES[family].left_out:
        named |= {f"h.0.attn.{name}": np.ones((1, 1, 8, 8), np.float16) for name in ("bias", "attention.masked_bias")}
    save_file(named, bare / "model.safetensors")
    assert package(bare) == package(whole)


@pytest.mark.parametrize("family", LEARNED)
def test_a_context_beyond_the_learned_positions_is_refused(tmp_path: Path, family: str) -> None:
    key = FAMILIES[family].spelled.get("max_position_embeddings", "max_position_embeddings")
    folder, tensors = write(tmp_path / family, family, **{key: 48})
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CompileError, match="learned positions for 48 tokens; give --context-length 48 or less"):
        package(folder, context_length=49)
    assert package(folder, context_length=48)


def test_a_matrix_that_is_not_transposed_is_refused(tmp_path: Path) -> None:
    folder, tensors = write(tmp_path / "gpt2", "gpt2")
    name = "transformer.h.1.mlp.c_fc.weight"
    save_file({**tensors, name: np.ascontiguousarray(tensors[name].T)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"c_fc.weight.* has shape \[320, 192\], expected \[192, 320\]"):
        package(folder)


def test_numbers_of_a_transposed_matrix_must_be_finite(tmp_path: Path) -> None:
    folder, tensors = write(tmp_path / "gpt2", "gpt2")
    tensors["transformer.h.0.attn.c_proj.weight"][3, 5] = np.inf
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"c_proj\.weight.* holds NaN or infinity"):
        package(folder)
