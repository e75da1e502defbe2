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
    "arcee": "arcee",
    "bailing_moe_v2": "bailingmoe2",
    "cohere": "command-r",
    "cohere2": "cohere2",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "dots1": "dots1",
    "ernie4_5": "ernie4_5",
    "ernie4_5_moe": "ernie4_5-moe",
    "exaone": "exaone",
    "exaone4": "exaone4",
    "falcon_h1": "falcon-h1",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma4": "gemma4",
    "glm": "chatglm",
    "glm4": "glm4",
    "glm4_moe": "glm4moe",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "granitemoehybrid": "granitehybrid",
    "hunyuan_v1_dense": "hunyuan-dense",
    "jais2": "jais2",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "llama": "llama",
    "minicpm": "minicpm",
    "minimax_m2": "minimax-m2",
    "ministral3": "mistral3",
    "mistral": "llama",
    "mixtral": "llama",
    "nemotron": "nemotron",
    "nemotron_h": "nemotron_h_moe",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "olmoe": "olmoe",
    "phi": "phi2",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2_5_vl": "qwen2vl",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_5": "qwen35",
    "qwen3_5_moe": "qwen35moe",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_vl": "qwen3vl",
    "qwen3_vl_moe": "qwen3vlmoe",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "youtu": "deepseek2",
}
STATE_SPACE = ("falcon_h1", "granitemoehybrid", "nemotron_h")
WITH_RATES = ("qwen3_5", "qwen3_5_moe", "qwen3_next", *STATE_SPACE)  # of which the file has the exponential
LATENT = tuple(family for family, arch in ARCH.items() if arch == "deepseek2")
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
# Of Falcon-H1, which the converter multiplies the weights by.
FACTORS = (
    *("attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier"),
    *("ssm_out_multiplier", "embedding_multiplier", "lm_head_multiplier"),
)
GEMMA4: dict[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "global_head_dim": 96,
    "vocab_size_per_layer_input": 331,
}
# What llama.cpp takes for granted, or the file says in another way.
CHANGES: dict[str, dict[str, Any]] = {
    "cohere2": {"sliding_window_pattern": 4, "num_hidden_layers": 4},
    "ernie4_5": {"rope_theta": 500000.0},
    "ernie4_5_moe": {"rope_theta": 500000.0},
    "exaone4": {"layer_types": ["sliding_attention", "full_attention"]},
    "gemma2": {"query_pre_attn_scalar": 64, "final_logit_softcapping": 3.0},
    "gemma3": {"query_pre_attn_scalar": 64, "sliding_window_pattern": 6, "num_hidden_layers": 6},
    "gemma4": GEMMA4,
    "hunyuan_v1_dense": {"rope_parameters": None, "rope_theta": 50000.0},  # a scaled theta stands for `alpha`
    "qwen2_moe": {"mlp_only_layers": []},
    "gpt_oss": {"max_position_embeddings": 131072, "rope_parameters": {**YARN, "rope_theta": 150000.0}},
    "lfm2": {"rope_theta": 1e6},
    "lfm2_moe": {"rope_theta": 1e6},
    "mistral": {"sliding_window": 20},
    "falcon_h1": {"mlp_multipliers": None, "ssm_multipliers": None, **dict.fromkeys(FACTORS, 1.0)},
    "nemotron_h": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "full_attention", "moe", "linear_attention"],
    },
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
