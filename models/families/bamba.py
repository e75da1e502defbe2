"""Bamba: Llama whose layers are state-space layers, all but a few."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import BIASES, CONTRACT, KEYS, TENSORS, TINY
from .shared.state_space import KEYS as STATE_KEYS
from .shared.state_space import TINY as STATE_TINY
from .shared.state_space import layer_kinds, state_space, tensors, with_states

_LAYER = "model.layers.{layer}"
MLP = {
    roles.MLP_NORM: plain(f"{_LAYER}.pre_ff_layernorm.weight"),
    roles.GATE_UP: Tensors(
        "alternate", (f"{_LAYER}.feed_forward.gate_proj.weight", f"{_LAYER}.feed_forward.up_proj.weight")
    ),
    roles.GATE_UP_BIAS: Tensors(
        "alternate", (f"{_LAYER}.feed_forward.gate_proj.bias", f"{_LAYER}.feed_forward.up_proj.bias")
    ),
    roles.DOWN: plain(f"{_LAYER}.feed_forward.down_proj.weight"),
    roles.DOWN_BIAS: plain(f"{_LAYER}.feed_forward.down_proj.bias"),
    roles.FINAL_NORM: plain("model.final_layernorm.weight"),
}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags, layers = config.flags, range(config.num_layers)
    kinds = ["full_attention" if each in flags["attn_layer_indices"] else "linear_attention" for each in layers]
    layer_kinds("attn_layer_indices", kinds, len(layers), sorted(set(kinds)))
    mlp = Mlp(bias=flags["mlp_bias"])
    if kinds[layer] == "full_attention":
        bias = flags["attention_bias"]
        return Attention(qkv_bias=bias, out_bias=bias), mlp
    bias = flags["mamba_proj_bias"]
    return state_space(config, flags["mamba_expand"] * config.hidden_size, in_bias=bias, out_bias=bias), mlp


FAMILY = Family(
    model_type="bamba",
    architecture="BambaForCausalLM",
    title="Bamba",
    models="Bamba 9B v1 and v2",
    has="[state-space layers](compile.md#state-space-layers), and attention in layers of `attn_layer_indices`, where "
    "half of each head turns; `attention_bias`, `mlp_bias`, `mamba_conv_bias`, `mamba_proj_bias`",
    keys=(
        *KEYS,
        *STATE_KEYS,
        *BIASES,
        Key("mamba_proj_bias", "flag", absent=False),
        Key("num_key_value_heads", absent=8),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=262144),
        Key("attn_layer_indices", "layers", absent=(), null=()),
        Only("partial_rotary_factor", 0.5),  # transformers reads it in `rope_parameters` alone
    ),
    layer=_layer,
    tensors={**TENSORS, **MLP, **tensors(f"{_LAYER}.mamba")},
    contract=with_states(CONTRACT),
    rotary=0.5,
    tiny={
        **TINY,
        **STATE_TINY,
        "num_hidden_layers": 4,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attn_layer_indices": [1, 3],
    },
)
