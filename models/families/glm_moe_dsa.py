"""GLM-5: DeepSeek-V3.2 with sizes of its own."""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Key
from . import deepseek_v32
from .shared import latent
from .shared.deepseek_experts import expert_keys

FAMILY = replace(
    deepseek_v32.FAMILY,
    model_type="glm_moe_dsa",
    architecture="GlmMoeDsaForCausalLM",
    title="GLM-5",
    models="GLM-5 and 5.1 in contexts of 2048 tokens, without the MTP layer",
    has="as DeepSeek-V3.2",
    keys=(
        *latent.keys(query_latent=2048, unturned=192, values=256),
        Key("q_lora_rank", absent=2048),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=202752),
        *expert_keys(256, 8, 2048, 2.5),
        *deepseek_v32.KEYS,
    ),
    tiny={**deepseek_v32.FAMILY.tiny, "n_group": 1, "topk_group": 1, "qk_nope_head_dim": 128, "rms_norm_eps": 1e-5},
)
