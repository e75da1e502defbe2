"""Phi-3, 3.5 and 4: q, k and v in one tensor of a checkpoint, and gate and up in one."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import window_or_none
from ..family import Family, Gguf, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY

_LAYER = "model.layers.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(window=config.windows[layer]), Mlp()


FAMILY = Family(
    model_type="phi3",
    architecture="Phi3ForCausalLM",
    title="Phi-3",
    models="Phi-3 mini and medium, Phi-3.5 mini, Phi-4, Phi-4 mini",
    has="`sliding_window` in all layers, none if it is absent; LongRoPE; RoPE rotates part of a head, "
    "`partial_rotary_factor`",
    keys=(*KEYS, Key("rms_norm_eps", "number", absent=1e-5), Key("max_position_embeddings", absent=4096)),
    window=window_or_none,
    layer=_layer,
    tensors={
        **TENSORS,
        roles.QKV: plain(f"{_LAYER}.self_attn.qkv_proj.weight"),
        roles.GATE_UP: Tensors("alternate", (f"{_LAYER}.mlp.gate_up_proj.weight",)),
    },
    gguf=Gguf(arch="phi3", windowed=True, names={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}),
    rotary=1.0,
    rope_types={"su": "longrope", "yarn": "longrope"},  # early files
    tiny={
        **TINY,
        "rms_norm_eps": 1e-5,
        "pad_token_id": None,  # transformers' default is beyond the vocabulary
        "rope_theta": 10000.0,
    },
)
