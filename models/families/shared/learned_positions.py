"""What families share whose positions are learned: a table with a row for each, and no rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...common.config_keys import Key, Only
from ...family import Tensors
from ...model_config import ContextLimit
from ...weights import roles
from .dense import KEYS
from .layer_norm import centred

# Heads of such models are as wide as hidden states, whatever else a file says.
UNREAD = {"head_dim": "", "num_key_value_heads": ""}


# Masks that older files have among their tensors.
MASKS = r"\.attn\.(attention\.)?(masked_)?bias$"


def four_times(values: Mapping[str, Any]) -> int:
    """The usual intermediate size."""
    return 4 * int(values["hidden_size"])


POSITION_KEYS: tuple[Key | Only, ...] = (
    *KEYS,
    Key("intermediate_size", absent=four_times, null=four_times),
    Key("rms_norm_eps", "number", absent=1e-5),
    Key("tie_word_embeddings", "flag", absent=True),
    Key("hidden_act", "choice", absent="gelu_new"),
    Only("add_cross_attention", False),
)
# Names that GPT-2 gave to keys.
GPT2_SPELLING = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
    **UNREAD,
}


def learned(values: Mapping[str, Any], first: int = 0) -> Mapping[str, Any]:
    """What learned positions and centred norms are to `ModelConfig`; `first` rows of the table are of no position."""
    tokens = values["max_position_embeddings"]
    reason = f"config.json has learned positions for {tokens} tokens"
    limit = ContextLimit(tokens=tokens, reason=reason)
    return {**centred(values), "positions": tokens + first, "first_position": first, "context_limit": limit}


def table_of_positions(name: str) -> Mapping[roles.Role, Tensors]:
    """Where the table comes from."""
    return {roles.POSITIONS: Tensors("matrix", (name,))}
