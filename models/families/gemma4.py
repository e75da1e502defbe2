"""Gemma 4, its language model: dense, with experts beside the MLP, and with inputs of each layer (E2B, E4B)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, LayerScale, Mlp, MlpAndExperts, PerLayerInput
from ..common.config_keys import Key, Only, size
from ..common.config_rules import Windows, read_local_rope
from ..common.errors import CompileError
from ..contract import Port
from ..family import HEADS_BY_LAYER, Family, Gguf, Tensors, plain
from ..model_config import Experts, ModelConfig
from ..sounds import gemma4 as sounds
from ..towers.gemma4 import GEMMA4
from ..weights import roles
from .shared.dense import CONTRACT, expert_tensors
from .shared.gemma import (
    KEYS,
    LAYER_INPUTS,
    SHARED_KEYS,
    TENSORS,
    TINY,
    attention_of_units,
    source_of_keys,
    window_by_pattern,
)
from .shared.gguf import GGUF_NORMS_AROUND, LOCAL_THETA, PATTERN, windows_by_layer

_LAYER = "model.layers.{layer}"
_EXPERT = f"{_LAYER}.experts.{{expert}}"
_LOCAL_MASK = Port("local_attention_mask", "sliding_attention_mask", "local_attention_mask")


def _nothing(values: Mapping[str, Any]) -> Mapping[int, Any]:
    return {}


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    """The last layer sees the whole context, whatever the file says."""
    return (*window_by_pattern({"sliding_window": 512, **raw}, layers)[:-1], None)


def _whole_sizes(values: Mapping[str, Any]) -> tuple[int, int]:
    """head_dim and KV heads of layers that see the whole context."""
    own = values["per_layer_config"]
    heads = (values["num_global_key_value_heads"] if values["attention_k_eq_v"] else 0) or values["num_key_value_heads"]
    usual = {"head_dim": values["global_head_dim"], "num_key_value_heads": heads}
    if own is None:
        return usual["head_dim"], usual["num_key_value_heads"]
    # Since transformers 5.23 files list them by layer instead; what a layer does not say is that of all layers, and
    # files with nothing to say list none.
    said = {"head_dim": values["head_dim"], "num_key_value_heads": values["num_key_value_heads"]}
    parts = [{**said, **part} for part in own.values()] or [said]
    if any(set(part) - set(usual) or part != parts[0] for part in parts):
        raise CompileError(
            f"config.json: per_layer_config={own!r:.200} is not supported, expected one head_dim and one "
            "num_key_value_heads for all layers with full_attention"
        )
    head_dim, kv_heads = (size(f"per_layer_config: {key}", parts[0][key]) for key in usual)
    return head_dim, kv_heads


def _attention(config: ModelConfig, layer: int, source: int | None) -> Attention:
    """With keys and values of its own, or those of `source`."""
    flags, window = config.flags, config.windows[layer]
    own = set(flags["per_layer_config"] or ())
    if own and own != {index for index, length in enumerate(config.windows) if length is None}:
        raise CompileError(
            f"config.json: per_layer_config names layers {sorted(own)!r:.80}, expected those with full_attention"
        )
    head_dim, kv_heads = config.head_dim, config.num_kv_heads
    if window is None:
        head_dim, kv_heads = _whole_sizes({**flags, "head_dim": head_dim, "num_key_value_heads": kv_heads})
    if config.num_heads % kv_heads:
        raise CompileError(f"num_attention_heads={config.num_heads} is not a multiple of {kv_heads} KV heads")
    if head_dim % 2:
        raise CompileError(f"global_head_dim={head_dim} is odd; RoPE rotates pairs")
    alternative = flags["attention_k_eq_v"] and window is None
    attention = attention_of_units(window, source)
    return replace(
        attention,
        values="keys" if alternative and source is None else attention.values,
        head_dim=None if head_dim == config.head_dim else head_dim,
        kv_heads=None if kv_heads == config.num_kv_heads else kv_heads,
    )


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    source = source_of_keys(config, layer)
    wide = 2 * config.intermediate_size if config.flags["use_double_wide_mlp"] and source is not None else None
    mlp: Block = Mlp(gelu="gelu_tanh", out_norm=True, inner=wide)
    if config.experts is not None:
        mlp = MlpAndExperts(gelu="gelu_tanh")
    inputs = (PerLayerInput(),) if config.layer_inputs else ()
    return _attention(config, layer, source), mlp, *inputs, LayerScale()


def _assistant_layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    """Keys and values are those of the model: of its last layer with a window, or of its last one."""
    source = config.windows[layer] is None
    return _attention(config, layer, int(source)), Mlp(gelu="gelu_tanh", out_norm=True), LayerScale()


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "embedding_scale": values["hidden_size"] ** 0.5,
        "logit_cap": values["final_logit_softcapping"],
        "layer_inputs": values["hidden_size_per_layer_input"],
        "rotary_dim": _whole_sizes(values)[0],
    }


def _experts(values: Mapping[str, Any]) -> Experts | None:
    if not values["enable_moe_block"]:
        return None
    count, chosen, inner = (size(key, values[key]) for key in ("num_experts", "top_k_experts", "moe_intermediate_size"))
    return Experts(count=count, chosen=chosen, inner=inner)


_MORE = (
    Key("num_kv_shared_layers", "count", absent=0, null=0),
    Key("use_double_wide_mlp", "flag", absent=False),
    Key("enable_moe_block", "flag", absent=False),
    Key("num_experts", "count", absent=0, null=0),
    Key("top_k_experts", "count", absent=0, null=0),
    Key("moe_intermediate_size", "count", absent=0, null=0),
    Key("hidden_size_per_layer_input", "count", absent=256, null=0),
    Key("vocab_size_per_layer_input", absent=262144),
)
_SIZES = (
    *KEYS,
    Key("vocab_size", absent=262144),
    Key("num_hidden_layers", absent=30),
    Key("global_head_dim", absent=512),
    Key("attention_k_eq_v", "flag", absent=False),
    Key("num_global_key_value_heads", "count", absent=0, null=0),
    Key("per_layer_config", "by_layer", null=_nothing),
)


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sizes of a head are those of layers that see the whole context, and in keys of their own those of the others."""
    read = {**windows_by_layer(get, config), "rope_local_base_freq": get(LOCAL_THETA) or 10000.0}
    kinds, heads, inner = read.get("layer_types"), get(HEADS_BY_LAYER), get("feed_forward_length")
    if isinstance(heads, list) and kinds is not None:
        if len(heads) < len(kinds):
            raise CompileError(
                f"{HEADS_BY_LAYER} has {len(heads)} numbers, expected one for each of {len(kinds)} layers"
            )
        for key, kind in (("num_key_value_heads", "sliding"), ("num_global_key_value_heads", "full")):
            found = {count for count, of in zip(heads, kinds, strict=False) if of.startswith(kind)}
            if len(found) > 1:
                raise CompileError(f"{HEADS_BY_LAYER} is {heads!r:.80}, expected one number for each kind of layer")
            read |= {key: found.pop()} if found else {}
    return {
        **read,
        "global_head_dim": get("attention.key_length"),
        "final_logit_softcapping": get("final_logit_softcapping"),
        "hidden_size_per_layer_input": get("embedding_length_per_layer_input") or 0,
        "vocab_size_per_layer_input": config["vocab_size"],
        "use_double_wide_mlp": isinstance(inner, list) and len(set(inner)) > 1,
        "enable_moe_block": bool(get("expert_count")),
        "top_k_experts": get("expert_used_count"),
    }


_MODEL = Family(
    model_type="gemma4",
    architecture="Gemma4ForConditionalGeneration",
    text_architecture="Gemma4ForCausalLM",
    title="Gemma 4",
    models="Gemma 4 31B, 26B-A4B, E2B, E4B, the language model",
    has="as Gemma 3, but norms as they are, a norm on the heads of v too, and a factor behind each layer; layers "
    "without a window have `global_head_dim` and proportional RoPE, and by `attention_k_eq_v` their keys for values; "
    "`num_kv_shared_layers` with keys and values of earlier layers; `enable_moe_block`: `top_k_experts` of "
    "`num_experts` MLPs beside the MLP; `hidden_size_per_layer_input`: inputs of each layer; an "
    "[encoder of sounds](speech.md#gemma-4)",
    keys=(*_SIZES, *_MORE),
    window=_window,
    layer=_layer,
    tensors={
        **TENSORS,
        roles.QK: Tensors("stack", tuple(f"{_LAYER}.self_attn.{part}_proj.weight" for part in "qk")),
        **SHARED_KEYS,
        roles.LAYER_SCALE: plain(f"{_LAYER}.layer_scalar"),
        roles.MLP_ALONE_NORM: plain(f"{_LAYER}.post_feedforward_layernorm_1.weight"),
        roles.EXPERTS_NORM: plain(f"{_LAYER}.pre_feedforward_layernorm_2.weight"),
        roles.EXPERTS_OUT_NORM: plain(f"{_LAYER}.post_feedforward_layernorm_2.weight"),
        roles.ROUTER: plain(f"{_LAYER}.router.proj.weight"),
        roles.ROUTER_NORM: plain(f"{_LAYER}.router.scale"),
        roles.EXPERT_FACTORS: plain(f"{_LAYER}.router.per_expert_scale"),
        **expert_tensors(_EXPERT),
        **LAYER_INPUTS,
    },
    contract=replace(
        CONTRACT,
        local_mask=_LOCAL_MASK,
        masks=(_LOCAL_MASK, Port("global_attention_mask", "global_attention_mask", "full_attention_mask")),
        layer_inputs=Port("per_layer_inputs", "per_layer_inputs", ""),
    ),
    gguf=Gguf(
        arch="gemma4",
        head="attention.key_length_swa",
        windowed=True,
        names={
            **GGUF_NORMS_AROUND,
            "per_layer_token_embd": "model.embed_tokens_per_layer",
            "per_layer_model_proj": "model.per_layer_model_projection",
            "per_layer_proj_norm": "model.per_layer_projection_norm",
            "inp_gate": "per_layer_input_gate",
            "proj": "per_layer_projection",
            "post_norm": "post_per_layer_input_norm",
            "layer_output_scale.weight": "layer_scalar",
            "post_ffw_norm_1": "post_feedforward_layernorm_1",
            "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
            "post_ffw_norm_2": "post_feedforward_layernorm_2",
            "ffn_gate_inp": "router.proj",
            "ffn_gate_inp.scale": "router.scale",
            "ffn_down_exps.scale": "router.per_expert_scale",
            **{f"ffn_{part}_exps": f"experts.{{expert}}.{part}_proj" for part in ("gate", "up", "down")},
        },
        also=(
            PATTERN,
            LOCAL_THETA,
            HEADS_BY_LAYER,
            "feed_forward_length",
            "expert_count",
            "attention.key_length_swa",
            "attention.value_length_swa",
            "rope.dimension_count_swa",
            "final_logit_softcapping",
        ),
        keys={"attention.shared_kv_layers": "num_kv_shared_layers"},
        derived=_of_gguf,
    ),
    experts=_experts,
    folded=_folded,
    rope_scaling={"rope_type": "proportional", "partial_rotary_factor": 0.25},
    rope_theta=1e6,
    local_rope=read_local_rope,
    nested="text_config",
    packed_experts="rows",
    vision=GEMMA4,
    sound=sounds.GEMMA4,
    tiny={
        **TINY,
        "global_head_dim": 64,
        "sliding_window": 24,
        "sliding_window_pattern": 2,
        "hidden_size_per_layer_input": 0,
        "final_logit_softcapping": 30.0,
    },
    other_values=True,
)

# Its keys and values are the model's, and so is its embedding: a row of its input is that of a token and a hidden state
# side by side, and it also makes the hidden state of the next row.
_ASSISTANT = replace(
    _MODEL,
    model_type="gemma4_assistant",
    architecture="Gemma4AssistantForCausalLM",
    text_architecture="",
    title="the assistant of Gemma 4",
    keys=(
        *_SIZES,
        Key("backbone_hidden_size", absent=1536),
        Key("use_ordered_embeddings", "flag", absent=False),
        Key("num_centroids", absent=2048),
        Key("centroid_intermediate_top_k", absent=32),
        Only("enable_moe_block", False),
        Only("use_double_wide_mlp", False),
    ),
    layer=_assistant_layer,
    tensors={
        **_MODEL.tensors,
        roles.INPUT_PROJECTION: plain("pre_projection.weight"),
        roles.HIDDEN_PROJECTION: plain("post_projection.weight"),
        roles.CENTROIDS: plain("masked_embedding.centroids.weight"),
    },
    experts=None,
    folded=lambda values: {"rotary_dim": _whole_sizes(values)[0]},
    vision=None,
    sound=None,
    gguf=None,
)
FAMILY = replace(_MODEL, assistant=_ASSISTANT)
