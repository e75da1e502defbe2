"""Nemotron 4 and Minitron: norms that centre rows, stored less 1, and MLPs of up, the square of Relu, and down."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Gguf, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import BIASES, KEYS, TINY
from .shared.gemma import with_norms_less_one
from .shared.layer_norm import CENTRED_TENSORS, centred


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qkv_bias=bias, out_bias=bias), Mlp(alone="relu2", bias=config.flags["mlp_bias"])


FAMILY = Family(
    model_type="nemotron",
    architecture="NemotronForCausalLM",
    title="Nemotron",
    models="Nemotron-4, Nemotron-Mini, Minitron 4B, 8B",
    has="layer norms with biases, stored less 1; no gate in the MLP, the square of ReLU for SiLU; RoPE rotates part of "
    "a head, `partial_rotary_factor`; `attention_bias` and `mlp_bias` as Llama",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=4096),
        *BIASES,
        Only("hidden_act", "relu2"),
    ),
    spelled={"rms_norm_eps": "norm_eps"},
    layer=_layer,
    tensors=with_norms_less_one(
        {**CENTRED_TENSORS, **tensors_of({(roles.UP, roles.UP_BIAS): "model.layers.{layer}.mlp.up_proj"})}
    ),
    folded=centred,
    gguf=Gguf(
        arch="nemotron",
        keys={"attention.layer_norm_epsilon": "norm_eps"},
        derived=lambda get, config: {"hidden_act": "relu2"},
    ),
    rotary=0.5,
    tiny={
        **TINY,
        "head_dim": 64,
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "hidden_act": "relu2",
    },
)
