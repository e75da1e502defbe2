"""GLM-4: norms before and behind attention and MLP, heads of which a part turns in pairs of neighbours."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, QKV_IN_PAIRS, TENSORS, TINY, hidden_per_head

_LAYER = "model.layers.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(qkv_bias=config.flags["attention_bias"], out_norm=True), Mlp(out_norm=True)


FAMILY = Family(
    model_type="glm4",
    architecture="Glm4ForCausalLM",
    title="GLM-4",
    models="GLM-4 and GLM-Z1 0414, 9B, 32B",
    has="norms before and behind attention and MLP; RoPE rotates pairs of neighbours in part of a head, "
    "`partial_rotary_factor`; `attention_bias` on q, k, v",
    keys=(
        *KEYS,
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("rms_norm_eps", "number", absent=1.5625e-7),
        Key("max_position_embeddings", absent=131072),
        Key("attention_bias", "flag", absent=True),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        **QKV_IN_PAIRS,
        roles.ATTENTION_OUT_NORM: plain(f"{_LAYER}.post_self_attn_layernorm.weight"),
        roles.GATE_UP: Tensors("alternate", (f"{_LAYER}.mlp.gate_up_proj.weight",)),
        roles.MLP_OUT_NORM: plain(f"{_LAYER}.post_mlp_layernorm.weight"),
    },
    gguf=Gguf(
        arch="glm4",
        names={
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_up": "mlp.gate_up_proj",
        },
    ),
    rotary=0.5,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
        "pad_token_id": None,  # transformers' default is beyond the vocabulary
    },
    other_values=True,
)
