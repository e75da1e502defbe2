"""ERNIE 4.5 dense: Llama's layers, whose heads turn in pairs of neighbours."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS as DENSE_KEYS
from .shared.dense import QKV_IN_PAIRS, TENSORS, TINY, all_heads, hidden_per_head

KEYS = (
    *DENSE_KEYS,
    Key("num_key_value_heads", absent=2, null=all_heads),
    Key("head_dim", absent=128, null=hidden_per_head),
    Key("rms_norm_eps", "number", absent=1e-5),
    Key("max_position_embeddings", absent=131072),
    Key("tie_word_embeddings", "flag", absent=True),
)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(), Mlp()


FAMILY = Family(
    model_type="ernie4_5",
    architecture="Ernie4_5ForCausalLM",
    title="ERNIE 4.5 dense",
    models="ERNIE 4.5 0.3B",
    has="as Llama; RoPE rotates pairs of neighbours",
    keys=(*KEYS, Only("use_bias", False)),
    layer=_layer,
    tensors={**TENSORS, **QKV_IN_PAIRS},
    gguf=Gguf(arch="ernie4_5"),
    rope_theta=500000.0,
    tiny={**TINY, "head_dim": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    other_values=True,
)
