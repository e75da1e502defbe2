"""GPT-NeoX and Pythia: attention and an MLP without a gate beside each other, each behind a norm of its own."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf, Tensors, plain, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TINY
from .shared.layer_norm import centred, function_of, with_biases

_LAYER = "gpt_neox.layers.{layer}"
_QKV = f"{_LAYER}.attention.query_key_value"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = Attention(qkv_bias=flags["attention_bias"], out_bias=flags["attention_bias"])
    return attention, Mlp(alone=function_of(flags), bias=True, beside=flags["use_parallel_residual"])


FAMILY = Family(
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    title="GPT-NeoX",
    models="GPT-NeoX 20B, Pythia 14M to 12B, RedPajama-INCITE, Dolly 2",
    has="layer norms with biases; with `use_parallel_residual` the MLP beside attention; no gate in the MLP, GELU for "
    "SiLU (`hidden_act`); biases on all Linears, on those of attention by `attention_bias`; RoPE rotates part of a "
    "head, `rotary_pct`",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("hidden_act", "choice", absent="gelu"),
        Key("attention_bias", "flag", absent=True),
        Key("use_parallel_residual", "flag", absent=True),
    ),
    spelled={
        "rms_norm_eps": "layer_norm_eps",
        "rope_theta": "rotary_emb_base",
        "partial_rotary_factor": "rotary_pct",
        "num_key_value_heads": "num_attention_heads",
    },
    layer=_layer,
    tensors={
        roles.EMBEDDING: plain("gpt_neox.embed_in.weight"),
        roles.QKV: Tensors("by_heads", (f"{_QKV}.weight",)),
        roles.QKV_BIAS: Tensors("by_heads", (f"{_QKV}.bias",)),
        **with_biases(
            {
                roles.ATTENTION_NORM: plain(f"{_LAYER}.input_layernorm.weight"),
                roles.MLP_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
                roles.FINAL_NORM: plain("gpt_neox.final_layer_norm.weight"),
            }
        ),
        **tensors_of(
            {
                (roles.ATTENTION_OUT, roles.ATTENTION_OUT_BIAS): "attention.dense",
                (roles.UP, roles.UP_BIAS): "mlp.dense_h_to_4h",
                (roles.DOWN, roles.DOWN_BIAS): "mlp.dense_4h_to_h",
            },
            f"{_LAYER}.",
        ),
        roles.HEAD: Tensors("tied", ("embed_out.weight",)),
    },
    folded=centred,
    gguf=Gguf(
        arch="gptneox",
        head_by_head=True,
        layers="gpt_neox.layers",
        names={
            "token_embd": "gpt_neox.embed_in",
            "output_norm": "gpt_neox.final_layer_norm",
            "output": "embed_out",
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
            "ffn_up": "mlp.dense_h_to_4h",
            "ffn_down": "mlp.dense_4h_to_h",
        },
        keys={"attention.layer_norm_epsilon": "layer_norm_eps", "use_parallel_residual": "use_parallel_residual"},
        derived=lambda get, config: {"hidden_act": "gelu"},
    ),
    rotary=0.25,
    tiny={
        **{key: value for key, value in TINY.items() if key != "num_key_value_heads"},
        "layer_norm_eps": 1e-5,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "hidden_act": "gelu",
    },
    other_values=True,
)
