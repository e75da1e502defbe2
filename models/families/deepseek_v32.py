"""DeepSeek-V3.2: DeepSeek-V3, as long as its index of sparse attention chooses every token there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block
from ..common.config_keys import Key, Only
from ..common.config_rules import dense_layers
from ..model_config import ContextLimit, ModelConfig
from . import deepseek_v3
from .shared import latent
from .shared.deepseek_experts import expert_keys, mlp_or_experts


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    dense = config.flags["mlp_layer_types"][layer] == "dense"
    return latent.attention(config, in_pairs=True), mlp_or_experts(config, dense)


def _dense_first(values: Mapping[str, Any]) -> tuple[str, ...]:
    layers = values["num_hidden_layers"]
    return tuple("dense" if layer < values["first_k_dense_replace"] else "sparse" for layer in range(layers))


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    dense_layers(values["mlp_layer_types"], values["num_hidden_layers"])
    tokens = values["index_topk"]
    reason = f"index_topk={tokens} of config.json chooses among tokens of a longer context, which is not supported"
    return {**latent.sizes(values), "context_limit": ContextLimit(tokens=tokens, reason=reason)}


KEYS: tuple[Key | Only, ...] = (
    Key("first_k_dense_replace", "count", absent=3),
    Key("mlp_layer_types", "names", absent=_dense_first, null=_dense_first),
    Key("index_topk", absent=2048),
    Only("rope_interleave", True),
)
FAMILY = replace(
    deepseek_v3.FAMILY,
    model_type="deepseek_v32",
    architecture="DeepseekV32ForCausalLM",
    title="DeepSeek-V3.2",
    models="DeepSeek-V3.2 and V3.2-Exp in contexts of 2048 tokens, without the MTP layer",
    other_types=(),
    has="as DeepSeek-V3, which it is in a context of `index_topk` tokens or fewer; a longer one is refused; dense "
    "layers by `mlp_layer_types` or `first_k_dense_replace`",
    keys=(
        *latent.keys(),
        Key("q_lora_rank", absent=1536),
        Key("max_position_embeddings", absent=163840),
        *expert_keys(256, 8, 2048, 2.5, (8, 4)),
        *KEYS,
    ),
    layer=_layer,
    folded=_folded,
    tiny={**deepseek_v3.FAMILY.tiny, "index_topk": 4096, "index_head_dim": 64, "index_n_heads": 2},
    gguf=None,
    left_out=r"\.self_attn\.indexer\.",
)
