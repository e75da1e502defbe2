"""Checkpoints of the families that GGUF files hold, as such files, and what is compiled from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from family_checkpoints import family_config, family_tensors
from gguf_files import gguf, gguf_tensors, metadata_of, write_gguf

from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

Type = gguf.GGMLQuantizationType
SIZES: dict[str, Any] = {"prefill_length": 8, "context_length": 64}
# llama.cpp's name of the architecture, and what a family's tiny config is without.
ARCH = {
    "gpt_oss": "gpt-oss",
    "granite": "granite",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
}
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
CHANGES: dict[str, dict[str, Any]] = {
    "gpt_oss": {"max_position_embeddings": 131072, "rope_parameters": {**YARN, "rope_theta": 150000.0}},
    "mistral": {"sliding_window": 20},
    "phi3": {"sliding_window": 20},
    "smollm3": {"no_rope_layer_interval": 4, "num_hidden_layers": 4},  # which llama.cpp takes for granted
}


def make_gguf(path: Path, family: str, kind: Type = Type.F32, *, parts: int = 1, **metadata: Any) -> Path:
    """The family's checkpoint as a GGUF file."""
    config = family_config(family, **CHANGES.get(family, {}))
    keys = {"general.architecture": ARCH[family], **metadata_of(config, ARCH[family]), **metadata}
    return write_gguf(path, keys, gguf_tensors(config, family_tensors(config), ARCH[family]), kind, parts=parts)


def compiled(source: Path, output: Path, **options: Any) -> dict[str, bytes]:
    compile_checkpoint(CompileOptions(checkpoint=source, output=output, **{**SIZES, **options}))
    kinds = (".hmm", ".hmw", ".bin")
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.suffix in kinds}
