"""LFM2: short convolutions with gates in most layers, attention in the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp, ShortConv
from ..common.config_keys import Key
from ..common.errors import CompileError
from ..contract import Port
from ..family import HEADS_BY_LAYER, Family, Gguf, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY

_LAYER = "model.layers.{layer}"
_ATTENTION, _CONV, _MLP = f"{_LAYER}.self_attn", f"{_LAYER}.conv", f"{_LAYER}.feed_forward"


def mixer(config: ModelConfig, layer: int) -> Block:
    """What mixes tokens in a layer."""
    flags = config.flags
    if flags["layer_types"][layer] == "full_attention":
        return Attention(qk_norm=True)
    return ShortConv(channels=config.hidden_size, taps=flags["conv_L_cache"], bias=flags["conv_bias"])


def check_layers(values: Mapping[str, Any]) -> None:
    """Raises CompileError unless each layer has one of the two kinds, and one has attention."""
    types, layers = values["layer_types"], values["num_hidden_layers"]
    if len(types) != layers or not {"conv", "full_attention"}.issuperset(types) or "full_attention" not in types:
        raise CompileError(
            f"config.json: layer_types must name {layers} layers conv or full_attention, one of them the latter, got "
            f"{types!r:.80}"
        )


def epsilon(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """That of all norms, by its own name."""
    return {"rms_norm_eps": values["norm_eps"]}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return mixer(config, layer), Mlp()


def _all_layers(values: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(range(values["num_hidden_layers"]))


def _types(values: Mapping[str, Any]) -> tuple[str, ...]:
    attention = values["full_attn_idxs"]
    return tuple("full_attention" if layer in attention else "conv" for layer in range(values["num_hidden_layers"]))


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    check_layers(values)
    inner, factor, multiple = values["block_ff_dim"], values["block_ffn_dim_multiplier"], values["block_multiple_of"]
    if values["block_auto_adjust_ff_dim"]:
        inner = int(2 * inner / 3)
        if factor is not None:
            inner = -(-int(factor * inner) // multiple) * multiple
    if inner < 1:
        raise CompileError(f"config.json: block_ffn_dim_multiplier={factor} leaves no intermediate size")
    return {"intermediate_size": inner, **epsilon(values)}


def _inner(values: Mapping[str, Any]) -> int:
    return int(values["intermediate_size"])


def of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A file has the intermediate size as it is, and no heads of keys in layers that have a convolution."""
    own = {"norm_eps": config["rms_norm_eps"], "block_auto_adjust_ff_dim": False}
    if isinstance(heads := get(HEADS_BY_LAYER), list):
        own["layer_types"] = ["full_attention" if count else "conv" for count in heads]
    return own


GGUF_NAMES = {
    "token_embd_norm": "model.embedding_norm",
    "attn_norm": "operator_norm",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "attn_output": "self_attn.out_proj",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": "conv.conv",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_norm": "ffn_norm",
}
SHARED_KEYS = (
    *KEYS,
    Key("num_key_value_heads", absent=8),
    Key("norm_eps", "number", absent=1e-5),
    Key("tie_word_embeddings", "flag", absent=True, also="tie_embedding"),
    Key("max_position_embeddings", absent=128000),
    Key("conv_bias", "flag", absent=False),
    Key("conv_L_cache", absent=3),
)

FAMILY = Family(
    model_type="lfm2",
    architecture="Lfm2ForCausalLM",
    title="LFM2",
    models="LFM2 350M, 700M, 1.2B, 2.6B",
    has="[short convolutions](compile.md#short-convolutions) of `conv_L_cache` tokens, `conv_bias`, except in layers "
    "that `layer_types` or `full_attn_idxs` gives attention, with norms on the heads of q and k; "
    "`block_auto_adjust_ff_dim`, `block_ffn_dim_multiplier` and `block_multiple_of` of the intermediate size",
    keys=(
        *SHARED_KEYS,
        Key("intermediate_size", absent=12288),
        Key("block_ff_dim", absent=_inner),
        Key("block_auto_adjust_ff_dim", "flag", absent=True),
        Key("block_ffn_dim_multiplier", "optional", absent=1.0),
        Key("block_multiple_of", absent=256),
        Key("full_attn_idxs", "layers", absent=_all_layers, null=_all_layers),
        Key("layer_types", "names", absent=_types, null=_types),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ATTENTION_NORM: plain(f"{_LAYER}.operator_norm.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.ffn_norm.weight"),
        roles.FINAL_NORM: plain("model.embedding_norm.weight"),
        roles.Q_NORM: plain(f"{_ATTENTION}.q_layernorm.weight"),
        roles.K_NORM: plain(f"{_ATTENTION}.k_layernorm.weight"),
        roles.ATTENTION_OUT: plain(f"{_ATTENTION}.out_proj.weight"),
        roles.CONV_IN: plain(f"{_CONV}.in_proj.weight"),
        roles.CONV_IN_BIAS: plain(f"{_CONV}.in_proj.bias"),
        roles.CONV_TAPS: plain(f"{_CONV}.conv.weight"),
        roles.CONV_BIAS: plain(f"{_CONV}.conv.bias"),
        roles.CONV_OUT: plain(f"{_CONV}.out_proj.weight"),
        roles.CONV_OUT_BIAS: plain(f"{_CONV}.out_proj.bias"),
        roles.GATE_UP: Tensors("alternate", (f"{_MLP}.w1.weight", f"{_MLP}.w3.weight")),
        roles.DOWN: plain(f"{_MLP}.w2.weight"),
    },
    contract=replace(
        CONTRACT,
        linear_mask=Port("linear_mask", "linear_attn_mask", ""),
        carried=(Port("conv_state", "past_conv_cache_{layer}", ""),),
        carried_outputs=("conv_cache_out_{layer}",),
    ),
    folded=_folded,
    gguf=Gguf(
        arch="lfm2",
        names={
            **GGUF_NAMES,
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
        },
        keys={"shortconv.l_cache": "conv_L_cache"},
        also=(HEADS_BY_LAYER,),
        derived=of_gguf,
    ),
    rope_theta=1000000.0,
    tiny={
        **TINY,
        "num_hidden_layers": 4,
        "tie_word_embeddings": True,
        "norm_eps": 1e-5,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
    },
)
