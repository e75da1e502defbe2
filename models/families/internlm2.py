"""InternLM2 and 2.5: Llama's layers under names of their own, with q, k and v of each KV head together."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Tensors, plain, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TINY

_LAYER = "model.layers.{layer}"
_ATTENTION, _MLP = f"{_LAYER}.attention", f"{_LAYER}.feed_forward"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["bias"]
    return Attention(qkv_bias=bias, out_bias=bias), Mlp()


FAMILY = Family(
    model_type="internlm2",
    architecture="InternLM2ForCausalLM",
    title="InternLM2",
    models="InternLM2 and 2.5, 1.8B, 7B, 20B",
    has="as Llama; `bias` on q, k, v, o",
    keys=(*KEYS, Key("max_position_embeddings", absent=2048), Key("bias", "flag", absent=True)),
    layer=_layer,
    tensors={
        roles.EMBEDDING: plain("model.tok_embeddings.weight"),
        roles.ATTENTION_NORM: plain(f"{_LAYER}.attention_norm.weight"),
        roles.QKV: Tensors("by_heads", (f"{_ATTENTION}.wqkv.weight",)),
        roles.QKV_BIAS: Tensors("by_heads", (f"{_ATTENTION}.wqkv.bias",)),
        **tensors_of({(roles.ATTENTION_OUT, roles.ATTENTION_OUT_BIAS): f"{_ATTENTION}.wo"}),
        roles.MLP_NORM: plain(f"{_LAYER}.ffn_norm.weight"),
        roles.GATE_UP: Tensors("alternate", (f"{_MLP}.w1.weight", f"{_MLP}.w3.weight")),
        roles.DOWN: plain(f"{_MLP}.w2.weight"),
        roles.FINAL_NORM: plain("model.norm.weight"),
        roles.HEAD: Tensors("tied", ("output.weight",)),
    },
    tiny={**TINY, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "bias": True},
)
