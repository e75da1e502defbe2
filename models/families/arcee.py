"""Arcee AFM: Llama's layers, whose MLP is up, the square of Relu, and down."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Gguf, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import BIASES, KEYS, TENSORS, TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qkv_bias=bias, out_bias=bias), Mlp(alone="relu2", bias=config.flags["mlp_bias"])


FAMILY = Family(
    model_type="arcee",
    architecture="ArceeForCausalLM",
    title="Arcee",
    models="AFM-4.5B",
    has="no gate in the MLP, the square of ReLU for SiLU; `attention_bias` and `mlp_bias` as Llama",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=4096),
        *BIASES,
        Only("hidden_act", "relu2"),
    ),
    layer=_layer,
    tensors={**TENSORS, **tensors_of({(roles.UP, roles.UP_BIAS): "model.layers.{layer}.mlp.up_proj"})},
    gguf=Gguf(arch="arcee", interleaved=True, derived=lambda get, config: {"hidden_act": "relu2"}),
    tiny={**TINY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "relu2"},
)
