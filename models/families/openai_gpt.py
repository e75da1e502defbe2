"""GPT-1: GPT-2 with norms of the sums behind attention and MLP, and no final one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..blocks.mlp import Alone
from ..common.config_keys import Key
from ..common.errors import CompileError
from ..family import plain
from ..model_config import ModelConfig
from ..weights import roles
from . import gpt2
from .shared.dense import KEYS, four_times
from .shared.gpt2 import GPT2_SPELLING
from .shared.learned_positions import UNREAD, learned

_FINAL = (roles.FINAL_NORM, roles.NORM_BIASES[roles.FINAL_NORM])
# As `afn` has them; GELU is GPT-2's.
_FUNCTIONS: Mapping[str, Alone] = {"gelu": "gelu_tanh", "relu": "relu"}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    attention = Attention(rotated=False, qkv_bias=True, out_bias=True, in_norm=False, sum_norm=True)
    return attention, Mlp(alone=_FUNCTIONS[config.flags["afn"]], bias=True, in_norm=False, sum_norm=True)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    if values["afn"] not in _FUNCTIONS:
        raise CompileError(f"config.json: afn={values['afn']!r:.40} is not supported, expected gelu or relu")
    return {**learned(values), "final_norm": False}


FAMILY = replace(
    gpt2.FAMILY,
    model_type="openai-gpt",
    architecture="OpenAIGPTLMHeadModel",
    title="GPT-1",
    models="the first GPT, 117M",
    has="layer norms with biases, of the sums behind attention and MLP, and no final one; a learned row for each of "
    "`n_positions` positions, and no RoPE; no gate in the MLP, GELU for SiLU (`afn`); biases on all Linears",
    keys=(
        *KEYS,
        Key("intermediate_size", absent=four_times),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=512),
        Key("tie_word_embeddings", "flag", absent=True),
        Key("hidden_act", "choice", absent="gelu"),
        Key("afn", "choice", absent="gelu"),
    ),
    spelled={**GPT2_SPELLING, **UNREAD, "intermediate_size": "", "hidden_act": ""},
    layer=_layer,
    tensors={
        **{role: source for role, source in gpt2.FAMILY.tensors.items() if role not in _FINAL},
        roles.EMBEDDING: plain("transformer.tokens_embed.weight"),
        roles.POSITIONS: replace(gpt2.FAMILY.tensors[roles.POSITIONS], names=("transformer.positions_embed.weight",)),
    },
    folded=_folded,
    tiny={key: value for key, value in gpt2.FAMILY.tiny.items() if key != "activation_function"},
    other_types=(),
    other_values=True,
)
