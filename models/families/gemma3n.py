"""Gemma 3n, its language model: several hidden states for each token, inputs of each layer, MLPs with few gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import AltUpCorrect, AltUpPredict, Block, Laurel, Mlp, SparseMlp
from ..common.config_keys import Key, Only
from ..common.config_rules import Windows, read_local_rope
from ..common.errors import CompileError
from ..contract import Port
from ..family import Family, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import CONTRACT
from .shared.gemma import (
    KEYS,
    LAYER_INPUTS,
    SHARED_KEYS,
    TENSORS,
    TINY,
    attention_of_units,
    folded,
    source_of_keys,
    window_by_pattern,
)

_LAYER = "model.layers.{layer}"
_STREAMS = 4
_SPARSE_LAYERS, _SPARSITY = 10, 0.95  # of a model with more layers, in a file that does not say


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    return window_by_pattern({"sliding_window": 512, **raw, "sliding_window_pattern": 5}, layers)


def _usual_sparsity(values: Mapping[str, Any]) -> tuple[float, ...]:
    """Of a file that does not say."""
    layers = values["num_hidden_layers"]
    return tuple(_SPARSITY if layer < _SPARSE_LAYERS < layers else 0.0 for layer in range(layers))


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags, source, window = config.flags, source_of_keys(config, layer), config.windows[layer]
    shares = flags["activation_sparsity_pattern"]
    if len(shares) != config.num_layers or max(shares) >= 1:
        raise CompileError(
            f"config.json: activation_sparsity_pattern must have a number below 1 for each of {config.num_layers} "
            f"layers, got {list(shares)!r:.80}"
        )
    attention = attention_of_units(window, source)
    mlp: Block = Mlp(gelu="gelu_tanh", out_norm=True)
    if shares[layer]:
        mlp = SparseMlp(sparsity=shares[layer], inner=config.intermediate_size)
    correct = AltUpCorrect(scaled=flags["altup_correct_scale"])
    return AltUpPredict(), attention, Laurel(rank=flags["laurel_rank"]), mlp, correct


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**folded(values), "streams": _STREAMS, "layer_inputs": values["hidden_size_per_layer_input"]}


def _others(module: str) -> tuple[str, ...]:
    """Names of the Linears of all streams but the first."""
    return tuple(f"model.{module}.{stream}.weight" for stream in range(_STREAMS - 1))


FAMILY = Family(
    model_type="gemma3n",
    architecture="Gemma3nForConditionalGeneration",
    text_architecture="Gemma3nForCausalLM",
    title="Gemma 3n",
    models="Gemma 3n E2B, E4B, the language model",
    has="as Gemma 3, but norms as they are, a norm on the heads of v too, and scores without a scale; four hidden "
    "states of each token (AltUp), of which blocks read one; a low-rank residual (LAuReL, `laurel_rank`); inputs of "
    "each layer (`hidden_size_per_layer_input`); few gates kept in MLPs (`activation_sparsity_pattern`); "
    "`num_kv_shared_layers` with keys and values of earlier layers",
    keys=(
        *KEYS,
        Key("vocab_size", absent=262400),
        Key("hidden_size", absent=2048),
        Key("intermediate_size", "same_size", absent=16384),
        Key("num_hidden_layers", absent=35),
        Key("num_key_value_heads", absent=2),
        Key("max_position_embeddings", absent=32768),
        Key("final_logit_softcapping", "optional", absent=30.0),
        Key("num_kv_shared_layers", "count", absent=15),
        Key("laurel_rank", absent=64),
        Key("altup_correct_scale", "flag", absent=True),
        Key("activation_sparsity_pattern", "amounts", absent=_usual_sparsity, null=_usual_sparsity),
        Key("hidden_size_per_layer_input", absent=256),
        Key("vocab_size_per_layer_input", absent=262144),
        Only("altup_num_inputs", _STREAMS),
        Only("altup_active_idx", 0),
    ),
    window=_window,
    layer=_layer,
    tensors={
        **TENSORS,
        **SHARED_KEYS,
        **LAYER_INPUTS,
        roles.ALTUP_IN: Tensors("stack", _others("altup_projections")),
        roles.ALTUP_OUT: plain("model.altup_unembed_projections.{expert}.weight"),
        roles.ALTUP_NORM: plain(f"{_LAYER}.altup.router_norm.weight"),
        roles.ALTUP_ROUTER: plain(f"{_LAYER}.altup.modality_router.weight"),
        roles.ALTUP_PREDICT: Tensors("matrix", (f"{_LAYER}.altup.prediction_coefs.weight",)),
        roles.ALTUP_CORRECT: Tensors("matrix", (f"{_LAYER}.altup.correction_coefs.weight",)),
        roles.ALTUP_CORRECTED: plain(f"{_LAYER}.altup.correct_output_scale"),
        roles.LAUREL_DOWN: plain(f"{_LAYER}.laurel.linear_left.weight"),
        roles.LAUREL_UP: plain(f"{_LAYER}.laurel.linear_right.weight"),
        roles.LAUREL_NORM: plain(f"{_LAYER}.laurel.post_laurel_norm.weight"),
        roles.SPARSE_GATE_UP: replace(TENSORS[roles.GATE_UP], transform="stack"),
    },
    contract=replace(CONTRACT, layer_inputs=Port("per_layer_inputs", "per_layer_inputs", "")),
    folded=_folded,
    rope_theta=1e6,
    local_rope=read_local_rope,
    nested="text_config",
    tiny={
        **TINY,
        "num_hidden_layers": 4,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.5, 0.0, 0.5, 0.0],
        "laurel_rank": 64,
        "hidden_size_per_layer_input": 64,
        "vocab_size_per_layer_input": 300,
    },
)
