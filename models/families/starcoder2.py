"""StarCoder2 3B to 15B: norms that centre rows, MLPs without a gate, biases everywhere."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import window_or_none
from ..family import Family, Gguf, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TINY, all_heads
from .shared.layer_norm import CENTRED_TENSORS, centred, function_of

_MLP = "model.layers.{layer}.mlp"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["use_bias"]
    attention = Attention(qkv_bias=bias, out_bias=bias, window=config.windows[layer])
    return attention, Mlp(alone=function_of(config.flags), bias=bias)


FAMILY = Family(
    model_type="starcoder2",
    architecture="Starcoder2ForCausalLM",
    title="StarCoder2",
    models="StarCoder2 3B, 7B, 15B",
    has="layer norms with biases; no gate in the MLP, GELU for SiLU (`hidden_act`); `use_bias` on all Linears; "
    "`sliding_window` in all layers, none if it is absent",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=2, null=all_heads),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=4096),
        Key("tie_word_embeddings", "flag", absent=True),
        Key("hidden_act", "choice", absent="gelu_pytorch_tanh"),
        Key("use_bias", "flag", absent=True),
    ),
    spelled={"rms_norm_eps": "norm_epsilon"},
    window=window_or_none,
    layer=_layer,
    tensors={
        **CENTRED_TENSORS,
        **tensors_of({(roles.UP, roles.UP_BIAS): f"{_MLP}.c_fc", (roles.DOWN, roles.DOWN_BIAS): f"{_MLP}.c_proj"}),
    },
    folded=centred,
    gguf=Gguf(
        arch="starcoder2",
        names={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        keys={"attention.layer_norm_epsilon": "norm_epsilon"},
        derived=lambda get, config: {"hidden_act": "gelu_pytorch_tanh", "use_bias": config["attention_bias"]},
    ),
    tiny={
        **TINY,
        "norm_epsilon": 1e-5,
        "rope_theta": 1e5,
        "tie_word_embeddings": True,
        "hidden_act": "gelu_pytorch_tanh",
        "sliding_window": None,
    },
)
