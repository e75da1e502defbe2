"""GPT-2: learned positions, norms with biases, an MLP without a gate, matrices that files keep transposed."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.gpt2 import GPT2_LAYER, GPT2_SPELLING, GPT2_TINY
from .shared.layer_norm import function_of
from .shared.learned_positions import MASKS, POSITION_KEYS, UNREAD, gpt2_tensors, learned


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    scale = config.head_dim**-0.5 if flags["scale_attn_weights"] else 1.0
    if flags["scale_attn_by_inverse_layer_idx"]:
        scale /= layer + 1
    return Attention(rotated=False, qkv_bias=True, out_bias=True, scale=scale), Mlp(alone=function_of(flags), bias=True)


FAMILY = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    title="GPT-2",
    models="GPT-2 124M to 1.5B, DistilGPT-2, DialoGPT, GPT-SW3, Cerebras-GPT",
    has="layer norms with biases; a learned row for each of `n_positions` positions, and no RoPE; no gate in the MLP, "
    "GELU for SiLU (`activation_function`); biases on all Linears; scores without a scale if `scale_attn_weights` "
    "is false, and divided by the number of the layer with `scale_attn_by_inverse_layer_idx`",
    keys=(
        *POSITION_KEYS,
        Key("max_position_embeddings", absent=1024),
        Key("scale_attn_weights", "flag", absent=True),
        Key("scale_attn_by_inverse_layer_idx", "flag", absent=False),
    ),
    spelled={**GPT2_SPELLING, **UNREAD},
    layer=_layer,
    tensors={
        **gpt2_tensors("attn.c_proj"),
        roles.QKV: plain(f"{GPT2_LAYER}.attn.c_attn.weight"),
        roles.QKV_BIAS: plain(f"{GPT2_LAYER}.attn.c_attn.bias"),
    },
    folded=learned,
    tiny={**GPT2_TINY, "tie_word_embeddings": True},
    other_types=("gpt-sw3",),
    columns_first=True,
    left_out=MASKS,
)
