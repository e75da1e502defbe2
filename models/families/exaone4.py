"""EXAONE 4.0, 1.2B and 32B: norms after attention and MLP; beside layers with a window, the others do not rotate."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import window_of_most_layers
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS, NORMS_BEHIND, TENSORS, TINY
from .shared.gguf import GGUF_NORMS, PATTERN, windows_by_layer


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    window = config.windows[layer]
    rotated = config.flags["sliding_window"] is None or window is not None
    attention = Attention(qk_norm=True, window=window, rotated=rotated, in_norm=False, out_norm=True)
    return attention, Mlp(in_norm=False, out_norm=True)


FAMILY = Family(
    model_type="exaone4",
    architecture="Exaone4ForCausalLM",
    title="EXAONE 4.0",
    models="EXAONE 4.0 1.2B, 32B",
    has="norms after attention and MLP, none before; norms on the heads of q and k; with `sliding_window`, a window "
    "in layers that `layer_types` names, or in all but every `sliding_window_pattern`th, and no rotation in the others",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=32),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("sliding_window", "optional", absent=4096),
    ),
    window=window_of_most_layers,
    layer=_layer,
    tensors={**TENSORS, **NORMS_BEHIND},
    gguf=Gguf(arch="exaone4", windowed=True, names=GGUF_NORMS, also=(PATTERN,), derived=windows_by_layer),
    tiny={**TINY, "head_dim": 64, "rms_norm_eps": 1e-5, "sliding_window": 10, "sliding_window_pattern": 2},
    other_values=True,
)
