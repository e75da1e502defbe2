"""Ministral 3, the language model: Mistral whose q grows with its position, beyond the context of its training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import window_or_none
from ..family import Gguf
from ..model_config import ModelConfig
from . import mistral
from .shared.dense import hidden_per_head


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    grows = bool(config.rope_scaling.get("llama_4_scaling_beta"))
    return Attention(window=config.windows[layer], grows=grows), Mlp()


_YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0}


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Files of Mistral Small 3.1 and 3.2 have neither a scaling nor a temperature."""
    scaling = dict(config["rope_scaling"] or {"rope_type": "default"})
    if (factor := get("rope.scaling.yarn_log_multiplier")) and scaling["rope_type"] == "yarn":
        scaling |= {"mscale": factor, "mscale_all_dim": factor}
    if beta := get("attention.temperature_scale"):
        scaling["llama_4_scaling_beta"] = beta
    return {"rope_scaling": scaling}


FAMILY = replace(
    mistral.FAMILY,
    model_type="ministral3",
    architecture="Ministral3ForCausalLM",
    title="Ministral 3 (text)",
    models="the language model of Ministral 3 alone",
    has="as Mistral, without a window if `sliding_window` is absent; by `llama_4_scaling_beta`, q grows with its "
    "position",
    keys=(
        *mistral.FAMILY.keys,
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=262144),
    ),
    window=window_or_none,
    layer=_layer,
    rope_scaling={**_YARN, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1},
    gguf=Gguf(
        arch="mistral3",
        interleaved=True,
        windowed=True,
        also=("attention.temperature_scale", "rope.scaling.yarn_log_multiplier"),
        derived=_of_gguf,
    ),
    tiny={
        **{key: value for key, value in mistral.FAMILY.tiny.items() if key != "rope_theta"},
        "rope_parameters": {**_YARN, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1},
    },
)
