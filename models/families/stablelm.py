"""StableLM 3B and StableLM 2: norms that centre rows, heads of which a part turns."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf, Tensors
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TINY
from .shared.layer_norm import CENTRED_TENSORS, centred

_ATTENTION = "model.layers.{layer}.self_attn"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    beside = config.flags["use_parallel_residual"]
    attention = Attention(qkv_bias=config.flags["use_qkv_bias"], head_norms=config.flags["qk_layernorm"])
    return attention, Mlp(beside=beside, in_norm=not beside)


FAMILY = Family(
    model_type="stablelm",
    architecture="StableLmForCausalLM",
    title="StableLM",
    models="StableLM 3B, StableLM 2 1.6B, 12B, Stable Code 3B",
    has="layer norms with biases; RoPE rotates part of a head, `partial_rotary_factor`; `use_qkv_bias` on q, k, v; "
    "with `use_parallel_residual` the MLP beside attention, behind the same norm; with `qk_layernorm` a layer norm for "
    "each head of q and k",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=32),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=4096),
        Key("use_qkv_bias", "flag", absent=False),
        Key("use_parallel_residual", "flag", absent=False),
        Key("qk_layernorm", "flag", absent=False),
    ),
    spelled={"rms_norm_eps": "layer_norm_eps"},
    layer=_layer,
    tensors={
        **CENTRED_TENSORS,
        roles.QKV_FACTORS: Tensors(
            "of_heads", tuple(f"{_ATTENTION}.{part}_layernorm.norms.{{expert}}.weight" for part in "qk")
        ),
    },
    folded=centred,
    gguf=Gguf(
        arch="stablelm",
        names={f"attn_{part}_norm": f"self_attn.{part}_layernorm.norms.{{expert}}" for part in "qk"},
        keys={"attention.layer_norm_epsilon": "layer_norm_eps"},
        derived=lambda get, config: {"use_qkv_bias": config["qkv_bias"], "qk_layernorm": config["use_qk_norm"]},
    ),
    rotary=0.25,
    tiny={
        **TINY,
        "layer_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "use_qkv_bias": True,
        "use_parallel_residual": True,
        "qk_layernorm": True,
    },
    other_values=True,
)
