"""Metadata of GGUF files that ask for what is not done here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf_families import SIZES, make_gguf

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint


@pytest.mark.parametrize(
    ("family", "metadata", "message"),
    [
        (
            "qwen2",
            {"general.architecture": "mamba"},
            "general.architecture is 'mamba', supported are arcee, bailingmoe2, chatglm",
        ),
        ("qwen2", {"general.architecture": "rwkv7"}, "; compile the Hugging Face folder of the model instead"),
        ("qwen2", {"qwen2.rope.scaling.type": "longrope"}, "rope.scaling.type is 'longrope', supported are none"),
        ("qwen2", {"qwen2.rope.dimension_count": 8}, "qwen2.rope.dimension_count is 8, expected the 32 of a head"),
        ("qwen2", {"qwen2.attention.clamp_kqv": 3.0}, "qwen2.attention.clamp_kqv=3.0 is not supported; known are"),
        ("qwen2", {"qwen2.attention.causal": [True, False]}, "qwen2.attention.causal=array.* is not supported"),
        ("qwen2", {"qwen2.block_count": "x"}, "block_count='x', expected a positive number of layers"),
        ("exaone4", {"exaone4.block_count": 2.5}, "block_count=2.5, expected a positive number of layers"),
        ("qwen2", {"qwen2.attention.causal": False}, "qwen2.attention.causal=False is not supported"),
        ("qwen2", {"qwen2.attention.sliding_window": 9}, "qwen2.attention.sliding_window is not supported here"),
        ("llama", {"llama.expert_count": 8}, "has no key llama.expert_used_count"),
        (
            "mixtral",
            {"llama.expert_count": 9},
            r"'blk.0.ffn_gate_inp.weight' in .* has shape \[8, 192\], expected \[9, 192\]",
        ),
        ("granite", {"granite.logit_scale": 0.0}, "logits_scaling must be a positive number"),
        (
            "phi3",
            {"phi3.rope.dimension_count": 23},
            "count is 23, expected the 32 of a head of keys, or an even part of",
        ),
        ("phi3", {"phi3.attention.key_length": "x"}, "the keys of a head have 'x' elements, expected a positive"),
        ("phi3", {"phi3.attention.key_length": 16.5}, "the keys of a head have 16.5 elements"),
        ("qwen2", {"qwen2.rope.scaling.attn_factor": "x"}, "attn_factor is 'x', expected a positive number"),
        ("qwen2", {"qwen2.rope.scaling.factor": -2.0}, "qwen2.rope.scaling.factor is -2.0, expected a positive number"),
        ("phi3", {"phi3.rope.dimension_count": 34}, "phi3.rope.dimension_count is 34, expected the 32 of a head of ke"),
        ("phi3", {"phi3.rope.dimension_count": 0}, "phi3.rope.dimension_count is 0, expected the 32 of a head of keys"),
        ("smollm3", {"smollm3.attention.sliding_window": 9}, "smollm3.attention.sliding_window is not supported here"),
        (
            "llama",
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
            "both rope_freqs.weight and",
        ),
        ("qwen3", {"qwen3.attention.head_count_kv": [2, 1]}, "head_count_kv differs between layers"),
        ("qwen3", {"qwen3.block_count": 3}, r"has no tensor 'blk.2.attn_norm.weight' \(model.layers.2.input_layernorm"),
        (
            "qwen3",
            {"qwen3.feed_forward_length": 640},
            r"'blk.0.ffn_gate.weight' in .* has shape \[320, 192\], expected",
        ),
        (
            "qwen3_moe",
            {"qwen3moe.expert_count": 9},
            r"'blk.0.ffn_gate_inp.weight' in .* has shape \[8, 192\], expected \[9, 192\]",
        ),
        ("qwen3_moe", {"qwen3moe.expert_used_count": 9}, "num_experts_per_tok=9 is more than the 8 experts of a layer"),
        ("qwen3_moe", {"qwen3moe.expert_shared_count": 1}, "qwen3moe.expert_shared_count=1 is not supported"),
        (
            "gpt_oss",
            {"gpt-oss.expert_count": 9},
            r"'blk.0.ffn_gate_inp.weight' in .* has shape \[8, 192\], expected \[9, 192\]",
        ),
        ("gpt_oss", {"gpt-oss.block_count": 3}, r"no tensor 'blk.2.attn_norm.weight'"),
        ("gpt_oss", {"gpt-oss.expert_gating_func": 2}, "gpt-oss.expert_gating_func=2 is not supported"),
        ("glm4_moe", {"glm4moe.expert_gating_func": 1}, "expert_gating_func=1 is not supported, expected 2, a sigmoid"),
        ("glm4_moe", {"glm4moe.nextn_predict_layers": 2}, "nextn_predict_layers=2 of block_count=2, expected fewer"),
        ("glm4", {"glm4.rope.dimension_sections": [8, 8, 0, 0]}, "glm4.rope.dimension_sections=.* is not supported"),
        ("olmo3", {"olmo2.attention.sliding_window_pattern": [True]}, "expected one flag for each of 2 layers"),
        ("olmo3", {"olmo2.attention.sliding_window_pattern": 4}, "sliding_window_pattern is 4, expected one flag"),
        (
            "olmo",
            {"olmo.attention.layer_norm_epsilon": 1e-6},
            "layer_norm_epsilon=1e-06 is not supported, expected 1e-05",
        ),
        ("exaone4", {"exaone4.expert_count": 4}, "exaone4.expert_count=4 is not supported"),
        ("qwen3_5", {"qwen35.ssm.inner_size": 193}, "ssm.inner_size=193, ssm.time_step_rank=4 and ssm.group_count=2"),
        ("qwen3_5", {"qwen35.ssm.time_step_rank": 0}, "ssm.time_step_rank=0 and ssm.group_count=2 must be positive"),
        ("qwen3_5", {"qwen35.ssm.group_count": 3}, "must be positive, each a multiple of the next"),
        (
            "nemotron_h",
            {"nemotron_h_moe.ssm.time_step_rank": 0},
            "ssm.inner_size=192 and ssm.time_step_rank=0 must be positive, the first a multiple of the second",
        ),
        ("nemotron_h", {"nemotron_h_moe.ssm.time_step_rank": "x"}, "ssm.time_step_rank='x' must be positive"),
        ("deepseek_v2", {"deepseek2.expert_gating_func": 3}, "expert_gating_func=3 is not supported, expected 1, a so"),
        ("deepseek_v2", {"deepseek2.expert_gating_func": [1, 2]}, r"expert_gating_func=\[1, 2\] is not supported"),
        (
            "deepseek_v3",
            {
                "deepseek2.rope.scaling.type": "yarn",
                "deepseek2.rope.scaling.factor": 4.0,
                "deepseek2.rope.scaling.original_context_length": 64,
                "deepseek2.rope.scaling.yarn_log_multiplier": "x",
            },
            "rope.scaling.yarn_log_multiplier='x', expected a number",
        ),
        ("gemma3", {"gemma3.attn_logit_softcapping": 50.0}, "gemma3.attn_logit_softcapping=50.0 is not supported"),
        ("qwen3_vl", {"qwen3vl.rope.dimension_sections": [8, 8]}, r"dimension_sections is \[8, 8\], expected three"),
        ("qwen3", {"qwen3.embedding_length": 0}, "embedding_length=0 and attention.head_count=6 must be positive"),
    ],
)
def test_what_the_metadata_asks_for_is_refused_by_name(
    tmp_path: Path, family: str, metadata: dict[str, Any], message: str
) -> None:
    path = make_gguf(tmp_path / "m.gguf", family, **metadata)
    with pytest.raises(CompileError, match=message) as raised:
        compile_checkpoint(CompileOptions(checkpoint=path, output=tmp_path / "out", **SIZES))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()
