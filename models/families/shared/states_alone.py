"""What families share all of whose layers are state-space layers: nothing of theirs knows how long a context is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...common.config_keys import Key, Only
from ...family import Tensors, plain
from ...weights import roles
from .dense import CONTRACT, TINY
from .state_space import with_states

# No file has attention, or a length that the model was made for.
SPELLED = {
    "rms_norm_eps": "layer_norm_epsilon",
    "num_attention_heads": "",
    "num_key_value_heads": "",
    "max_position_embeddings": "",
}
KEYS: tuple[Key | Only, ...] = (
    Key("vocab_size"),
    Key("hidden_size"),
    Key("num_hidden_layers"),
    Key("num_attention_heads", absent=1),
    Key("num_key_value_heads", absent=1),
    Key("max_position_embeddings", absent=1 << 20),
    Key("rms_norm_eps", "number", absent=1e-5),
    Key("expand", absent=2),
    Key("conv_kernel", absent=4),
    Key("use_bias", "flag", absent=False),
    Key("use_conv_bias", "flag", absent=True),
    Only("hidden_act", "silu", also=("swish",)),
)
LAYER = "backbone.layers.{layer}"
TENSORS: Mapping[roles.Role, Tensors] = {
    roles.EMBEDDING: plain("backbone.embeddings.weight"),
    roles.ATTENTION_NORM: plain(f"{LAYER}.norm.weight"),
    roles.FINAL_NORM: plain("backbone.norm_f.weight"),
    roles.HEAD: Tensors("tied", ("lm_head.weight",)),
}
STATES = with_states(CONTRACT)
TINY_SIZES: Mapping[str, Any] = {
    **{key: TINY[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers")},
    "layer_norm_epsilon": 1e-5,
}


def inner_of(values: Mapping[str, Any]) -> int:
    """The channels of a layer, of a file that does not say."""
    return int(values["expand"] * values["hidden_size"])
