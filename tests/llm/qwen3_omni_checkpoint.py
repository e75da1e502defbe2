"""A random Qwen3-Omni of transformers, as small as its parts allow."""

from __future__ import annotations

from typing import Any

import qwen3_tts_checkpoint
import torch
from oracle import random_weights
from tiny_sounds import QWEN3
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as omni

from tcim_lite.models.families import FAMILIES

IMAGE, SOUND, GROUPS, ACCEPTED = 300, 301, 5, 4
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_AXES = {**_ROPE, "mrope_section": [12, 10, 10], "interleaved": True}
SIZES: dict[str, Any] = {"initializer_range": 0.05, "rms_norm_eps": 1e-6}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
AUDIO = {**QWEN3, "n_window_infer": 100}  # rows see those of their chunk, as in the vendor's program
VISION = dict(FAMILIES["qwen3_vl"].vision.tiny)
TEXT = {
    **SIZES,
    **EXPERTS,
    "hidden_size": 192,
    "intermediate_size": 320,
    "num_hidden_layers": 5,  # more than have deepstack inputs and one more: what transformers shows lacks these
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 331,
    "max_position_embeddings": 4096,
    "norm_topk_prob": True,
    "rope_parameters": _AXES,
}
TALKER = {
    **SIZES,
    **EXPERTS,
    "hidden_size": 128,
    "intermediate_size": 64,
    "shared_expert_intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 131,
    "max_position_embeddings": 512,
    "norm_topk_prob": False,
    "rope_parameters": _AXES,
}
PREDICTOR = {**qwen3_tts_checkpoint.PREDICTOR, **SIZES, "rope_parameters": _ROPE}
CODEC = {
    **SIZES,
    "codebook_size": 67,
    "hidden_size": 32,
    "max_position_embeddings": 512,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "sliding_window": 9,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_quantizers": GROUPS,
    "upsample_rates": [3, 2],
    "upsampling_ratios": [2, 2],
    "decoder_dim": 16,
    "rope_parameters": _ROPE,
}


def random_omni(**changes: Any) -> omni.Qwen3OmniMoeForConditionalGeneration:
    """The model in float32."""
    torch.manual_seed(4)
    config = omni.Qwen3OmniMoeConfig(
        thinker_config={
            "audio_config": AUDIO,
            "vision_config": VISION,
            "text_config": TEXT,
            "image_token_id": IMAGE,
            "audio_token_id": SOUND,
            "audio_start_token_id": 302,
            "vision_start_token_id": 303,
            "initializer_range": 0.05,
        },
        talker_config={
            "text_config": TALKER,
            "code_predictor_config": PREDICTOR,
            "num_code_groups": GROUPS,
            "thinker_hidden_size": TEXT["hidden_size"],
            "accept_hidden_layer": ACCEPTED,
            "spatial_merge_size": 2,
        },
        code2wav_config=CODEC,
        attn_implementation="eager",
        experts_implementation="eager",
        **changes,
    )
    model = omni.Qwen3OmniMoeForConditionalGeneration(config).float().eval()
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() > 1:
                tensor.normal_(std=0.1 if tensor.dim() == 2 else 0.05)
    random_weights(model)
    return model
