"""What families share whose positions are learned: a table with a row for each, and no rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...common.config_keys import Key, Only
from ...family import Tensors, plain, tensors_of
from ...model_config import ContextLimit
from ...weights import roles
from .dense import KEYS, four_times
from .gpt2 import GPT2_LAYER
from .layer_norm import centred, with_biases

FAIRSEQ_ROWS_BEFORE = 2  # of the table of positions, which are of none
# Heads of such models are as wide as hidden states, whatever else a file says.
UNREAD = {"head_dim": "", "num_key_value_heads": ""}
# Masks that older files have among their tensors.
MASKS = r"\.attn\.(attention\.)?(masked_)?bias$"


POSITION_KEYS: tuple[Key | Only, ...] = (
    *KEYS,
    Key("intermediate_size", absent=four_times, null=four_times),
    Key("rms_norm_eps", "number", absent=1e-5),
    Key("tie_word_embeddings", "flag", absent=True),
    Key("hidden_act", "choice", absent="gelu_new"),
    Only("add_cross_attention", False),
)


def learned(values: Mapping[str, Any], first: int = 0) -> Mapping[str, Any]:
    """What learned positions and centred norms are to `ModelConfig`; `first` rows of the table are of no position."""
    tokens = values["max_position_embeddings"]
    reason = f"config.json has learned positions for {tokens} tokens"
    limit = ContextLimit(tokens=tokens, reason=reason)
    return {**centred(values), "positions": tokens + first, "first_position": first, "context_limit": limit}


def gpt2_tensors(out: str) -> Mapping[roles.Role, Tensors]:
    """Where all but q, k and v come from with GPT-2's names; `out` is the module that ends attention."""
    norms = {
        roles.ATTENTION_NORM: plain(f"{GPT2_LAYER}.ln_1.weight"),
        roles.MLP_NORM: plain(f"{GPT2_LAYER}.ln_2.weight"),
        roles.FINAL_NORM: plain("transformer.ln_f.weight"),
    }
    modules = {
        (roles.ATTENTION_OUT, roles.ATTENTION_OUT_BIAS): out,
        (roles.UP, roles.UP_BIAS): "mlp.c_fc",
        (roles.DOWN, roles.DOWN_BIAS): "mlp.c_proj",
    }
    return {
        roles.EMBEDDING: plain("transformer.wte.weight"),
        **_table_of_positions("transformer.wpe.weight"),
        **with_biases(norms),
        **tensors_of(modules, f"{GPT2_LAYER}."),
        roles.HEAD: Tensors("tied", ("lm_head.weight",)),
    }


def fairseq_tensors(decoder: str, final_norm: str) -> Mapping[roles.Role, Tensors]:
    """Where all but the head comes from with the names of fairseq, below the module `decoder`."""
    layer = f"{decoder}.layers.{{layer}}"
    norms = {
        roles.ATTENTION_NORM: plain(f"{layer}.self_attn_layer_norm.weight"),
        roles.MLP_NORM: plain(f"{layer}.final_layer_norm.weight"),
        roles.FINAL_NORM: plain(f"{decoder}.{final_norm}.weight"),
    }
    modules = {
        (roles.ATTENTION_OUT, roles.ATTENTION_OUT_BIAS): "self_attn.out_proj",
        (roles.UP, roles.UP_BIAS): "fc1",
        (roles.DOWN, roles.DOWN_BIAS): "fc2",
    }
    qkv = {
        role: Tensors("stack", tuple(f"{layer}.self_attn.{part}_proj.{what}" for part in "qkv"))
        for role, what in ((roles.QKV, "weight"), (roles.QKV_BIAS, "bias"))
    }
    return {
        roles.EMBEDDING: plain(f"{decoder}.embed_tokens.weight"),
        **_table_of_positions(f"{decoder}.embed_positions.weight"),
        **qkv,
        **with_biases(norms),
        **tensors_of(modules, f"{layer}."),
    }


def _table_of_positions(name: str) -> Mapping[roles.Role, Tensors]:
    return {roles.POSITIONS: Tensors("matrix", (name,))}
