"""Windows, layers without rotation and heads that turn in part, against transformers in float32."""

import pytest
from oracle import assert_float32_graphs_agree, random_model

from tcim_lite.models.families import FAMILIES

pytestmark = pytest.mark.oracle

LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1 + index / 64 for index in range(16)],
    "long_factor": [1 + index / 4 for index in range(16)],
}
# Sliding windows, by family and a tag: in all layers, some, one of both kinds; shorter than a chunk and than a block.
WINDOWS = {
    "mistral, all layers": {"sliding_window": 100},
    "mistral, two tokens": {"sliding_window": 2},
    "mistral, longer than a block": {"sliding_window": 270, "num_attention_heads": 2, "head_dim": 128},
    "mixtral, all layers": {"sliding_window": 33, "num_experts_per_tok": 3},
    "olmo3, three layers, each with RoPE of its kind": {
        "num_hidden_layers": 3,
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 5e5,
                "factor": 8.0,
                "original_max_position_embeddings": 64,
                "attention_factor": 1.2,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "phi3, all layers, the short factors": {
        "sliding_window": 40,
        "original_max_position_embeddings": 512,
        "rope_parameters": LONG,
    },
    "phi3, the long factors": {"original_max_position_embeddings": 64, "rope_parameters": LONG},
    "phi3, factors that only Phi-3.5-MoE has": {
        "original_max_position_embeddings": 64,
        "rope_parameters": {**LONG, "short_mscale": 1.2, "long_mscale": 1.3},
    },
    "phimoe, the short factors, and those of cosines and sines": {
        "rope_parameters": {
            **LONG,
            "original_max_position_embeddings": 512,
            "short_mscale": 1.2,
            "long_mscale": 1.3,
            "factor": 2.0,
        },
    },
    "qwen2, the last layer": {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1},
    "exaone4, none": {"sliding_window": None, "layer_types": ["full_attention"] * 2},
    "exaone4, the last of three layers, no rotation in the others": {
        "num_hidden_layers": 3,
        "sliding_window": 40,
        "layer_types": ["full_attention", "full_attention", "sliding_attention"],
    },
    "gpt_oss, three layers, values that are clamped": {
        "num_hidden_layers": 3,
        "sliding_window": 130,
        "swiglu_limit": 0.5,
        "attention_bias": False,
    },
    "gpt_oss, the last layer": {"sliding_window": 5, "layer_types": ["full_attention", "sliding_attention"]},
    "laguna, gates of elements, biases, dense layers": {
        "gating": "per-element",
        "attention_bias": True,
        "num_attention_heads_per_layer": None,
        "mlp_layer_types": ["sparse", "dense"],
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 130,
    },
    "laguna, three layers that differ": {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "mlp_layer_types": ["sparse", "sparse", "dense"],
        "num_attention_heads_per_layer": [2, 6, 8],
        "sliding_window": 33,
    },
    "laguna, no window, what configs leave out": {
        "gating": True,
        "layer_types": None,
        "mlp_layer_types": None,
        "num_attention_heads_per_layer": None,
        "rope_parameters": None,
    },
    "qwen2_moe, the first layer, experts in every other": {
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "sliding_window": 40,
        "max_window_layers": 2,
        "decoder_sparse_step": 2,
        "norm_topk_prob": True,
        "qkv_bias": False,
    },
    "smollm3, layers without rotation": {
        "num_hidden_layers": 4,
        "no_rope_layers": [0, 1, 1, 0],
        "use_sliding_window": True,
        "sliding_window": 50,
    },
    "qwen3, the first layer": {
        "use_sliding_window": True,
        "sliding_window": 33,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}
# Parts of heads that turn, as in Phi-4 mini.
PARTS = {
    "three quarters": {"partial_rotary_factor": 0.75, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "a half, the long factors": {
        "partial_rotary_factor": 0.5,
        "original_max_position_embeddings": 64,
        "rope_parameters": {**LONG, "short_factor": [1.0] * 8, "long_factor": [1 + index / 4 for index in range(8)]},
    },
}


@pytest.mark.parametrize("window", WINDOWS)
def test_sliding_windows_agree_with_transformers(tmp_path, window):
    family = window.split(",")[0]
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES[family].tiny, **WINDOWS[window]}, family))


@pytest.mark.parametrize("part", PARTS)
def test_heads_of_phi3_that_turn_in_part_agree_with_transformers(tmp_path, part):
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES["phi3"].tiny, **PARTS[part]}, "phi3"))
