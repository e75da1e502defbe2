"""The packages that check_packages.py runs: what is in config.json, and how each is compiled.

Models have few layers; widths of heads are those of released models.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
import check_networks
import pi05_checkpoint

from tcim_lite.models.families import FAMILIES

PATCHES = 256
ALL = tuple(check_networks.LIMITS)
TEXT = {
    "hidden_size": 512, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 331, "max_position_embeddings": 512,
}  # fmt: skip
LLAMA = {**{key: value for key, value in TEXT.items() if key != "head_dim"}, "model_type": "llama"}
QWEN_AUDIO = {
    "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 768, "d_model": 256, "output_dim": 512,
}  # fmt: skip
GLM_AUDIO = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256, "intermediate_size": 1024}
TALKER = {
    **TEXT, "rope_theta": 1e6, "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20]},
    "num_code_groups": 16, "text_hidden_size": 768, "text_vocab_size": 97,
    "code_predictor_config": {**TEXT, "hidden_size": 256, "vocab_size": 67, "num_code_groups": 16},
}  # fmt: skip
OMNI_ROPE = {"rope_type": "default", "rope_theta": 1e4}
OMNI_TEXT = {
    **TEXT, "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    "rope_parameters": {**OMNI_ROPE, "mrope_section": [24, 20, 20], "interleaved": True},
}  # fmt: skip
OMNI_TALKER = {**OMNI_TEXT, "hidden_size": 256, "shared_expert_intermediate_size": 192, "norm_topk_prob": False}
OMNI = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "audio_config": {**QWEN_AUDIO, "n_window": 50, "n_window_infer": 100},
        "vision_config": {**FAMILIES["qwen3_omni_moe"].vision.tiny, "out_hidden_size": 512},
        "text_config": {**OMNI_TEXT, "norm_topk_prob": True},
    },
    "talker_config": {
        "text_config": OMNI_TALKER, "num_code_groups": 16, "thinker_hidden_size": 512, "accept_hidden_layer": 2,
        "code_predictor_config": {**TALKER["code_predictor_config"], "rope_parameters": OMNI_ROPE},
    },
}  # fmt: skip
CHAT_AUDIO = {
    "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 768, "d_model": 256, "output_dim": 512,
    "codebook_size": 61, "crq_transformer_config": {**TEXT, "hidden_size": 256, "model_type": "qwen3"},
}  # fmt: skip
CHAT = {
    "model_type": "funaudiochat", "audio_config": CHAT_AUDIO, "text_config": {**TEXT, "model_type": "qwen3"},
}  # fmt: skip
CODEC = {
    "codebook_size": 61, "codebook_dim": 128, "hidden_size": 256, "latent_dim": 256, "intermediate_size": 512,
    "decoder_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
    "num_quantizers": 16, "sliding_window": 24,
}  # fmt: skip
SIGLIP = {
    "hidden_size": 1152, "num_attention_heads": 16, "intermediate_size": 2152, "patch_size": 14, "image_size": 112,
}  # fmt: skip
MINICPM_O = {
    **LLAMA, "model_type": "minicpmo", "version": "2.6", "query_num": 64, "audio_pool_step": 2,
    "vision_config": {**FAMILIES["minicpmv"].vision.tiny, **SIGLIP},
    "audio_config": {
        "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 768, "d_model": 256,
        "max_source_positions": 500,
    },
    "tts_config": {
        "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_audio_tokens": 61, "num_text_tokens": 97, "llm_dim": 512,
    },
}  # fmt: skip
GEMMA4 = {
    **{key: value for key, value in FAMILIES["gemma4"].tiny_config.items() if key != "sliding_window_pattern"},
    "layer_types": ["sliding_attention", "full_attention"], "num_attention_heads": 4, "head_dim": 256,
    "global_head_dim": 512, "sliding_window": 24,
}  # fmt: skip
GEMMA4_E = {
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True, "hidden_size_per_layer_input": 64,
    "vision_config": {**FAMILIES["gemma4"].vision.tiny, "use_clipped_linears": True},
    "audio_config": {
        "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "subsampling_conv_channels": [128, 32],
        "output_proj_dims": 384,
    },
}  # fmt: skip
GEMMA4_SIZED = {**GEMMA4, "vision_config": {**FAMILIES["gemma4"].vision.tiny, "position_embedding_size": 200}}
GEMMA4_MOE = {
    "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 8,
    "top_k_experts": 2, "moe_intermediate_size": 128,
}  # fmt: skip
GEMMA4_ASSISTANT = {
    "model_type": "gemma4_assistant", "backbone_hidden_size": GEMMA4["hidden_size"],
    "text_config": {
        **GEMMA4, "model_type": "gemma4_text", "hidden_size": 128, "intermediate_size": 192, "num_kv_shared_layers": 2,
    },
}  # fmt: skip
GEMMA4_RANKED = {**GEMMA4, "vocab_size": 320}
RANKING_ASSISTANT = {
    **GEMMA4_ASSISTANT, "use_ordered_embeddings": True, "num_centroids": 20, "centroid_intermediate_top_k": 3,
    "text_config": {**GEMMA4_ASSISTANT["text_config"], "vocab_size": 320},
}  # fmt: skip
GEMMA4_HALF = {**GEMMA4, **GEMMA4_E, "head_dim": 64, "global_head_dim": 128}


@dataclass(frozen=True)
class Case:
    """A package: what is in config.json, how it is compiled, and what limits are multiplied by. Those of Gemma 4 are
    wider: its scores have no scale, so with random weights its softmaxes are sharp, and differences grow. Where float16
    may choose other experts, or moves states, a model is compiled in float32 alone. Without `write`, which writes a
    checkpoint's tensors, the compiler draws them."""

    name: str
    config: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    quants: tuple[str, ...] = ALL
    factor: float = 1
    draft: dict[str, Any] | None = None  # config.json of `--draft`
    write: Callable[[Path], None] | None = None


def thinker(**keys: Any) -> dict[str, Any]:
    return {"model_type": "qwen3_asr", "thinker_config": {"audio_config": QWEN_AUDIO, "text_config": TEXT, **keys}}


def seeing(family: str, **keys: Any) -> dict[str, Any]:
    """The family's tiny configuration with its tower."""
    record = FAMILIES[family]
    return {**record.tiny_config, "vision_config": record.vision.tiny, **keys}


def minicpm(family: str) -> dict[str, Any]:
    record = FAMILIES[family]
    return {**record.tiny_config, "vision_config": {**record.vision.tiny, **SIGLIP}}


CASES = [
    Case("glmasr", {"model_type": "glmasr", "audio_config": GLM_AUDIO, "text_config": LLAMA}, {"audio_frames": 400}),
    Case("qwen3_asr", thinker(), {"audio_frames": 1500}),
    Case("aligner", thinker(model_type="qwen3_forced_aligner", classify_num=47), {"audio_frames": 400}),
    Case("qwen3_tts", {"model_type": "qwen3_tts", "talker_config": TALKER}),
    Case("minicpmv4_6", minicpm("minicpmv4_6"), {"vision": str(PATCHES)}, ("float32",)),
    Case("minicpmv", minicpm("minicpmv"), {"vision": str(PATCHES)}),
    Case("minicpmo", MINICPM_O, {"vision": str(PATCHES)}),
    Case("funaudiochat", CHAT, {"audio_frames": 400}),
    Case("qwen3_omni", OMNI, {"vision": "64x96"}, ("float32",)),
    Case("qwen3_vl_moe", seeing("qwen3_vl_moe"), {"vision": "64x96"}, ("float32",)),
    Case("qwen2_vl", seeing("qwen2_vl"), {"vision": "64x96"}),
    Case("glm_ocr", seeing("glm_ocr"), {"vision": "64x96"}),
    Case("paddleocr_vl", seeing("paddleocr_vl"), {"vision": "64x96"}),
    Case("gemma4_e", {**GEMMA4, **GEMMA4_E}, {"vision": "12", "audio_frames": 124}, ("float32",), 5),
    Case("gemma4_half", GEMMA4_HALF, {"vision": "12", "audio_frames": 124}, ("float16",), 10),
    Case("gemma4_sized", GEMMA4_SIZED, {"vision": "448x448"}, ("float32",), 5),
    Case("gemma4_moe", {**GEMMA4, **GEMMA4_MOE}, {}, ("float32",), 5),
    Case("gemma4_assisted", GEMMA4, {}, ("float32",), 5, GEMMA4_ASSISTANT),
    Case("gemma4_ranked", GEMMA4_RANKED, {}, ("float32",), 5, RANKING_ASSISTANT),
    Case("gemma4_masks", GEMMA4, {"masks": True}, ("float32",), 5),
    Case("pi05", pi05_checkpoint.CONFIG, write=pi05_checkpoint.write),
    Case("hidden_states", {**FAMILIES["qwen3"].tiny_config, **TEXT}, {"hidden_states": -1, "batch": 2}),
]
