"""GPT-Neo: GPT-2 with windows in every other layer, scores without a scale, and no biases on q, k and v."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, size
from ..common.config_rules import Windows, windows_in
from ..common.errors import CompileError
from ..family import Family, Tensors
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import TINY
from .shared.gpt2 import GPT2_LAYER
from .shared.layer_norm import function_of
from .shared.learned_positions import MASKS, POSITION_KEYS, UNREAD, gpt2_tensors, learned

_KINDS = ("global", "local")


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    attention = Attention(rotated=False, out_bias=True, scale=1.0, window=config.windows[layer])
    return attention, Mlp(alone=function_of(config.flags), bias=True)


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    """`window_size` in the layers that `attention_types` calls local."""
    kinds = _kinds(raw.get("attention_types"), layers)
    if (listed := raw.get("attention_layers", kinds)) != kinds:
        raise CompileError(f"config.json: attention_layers={listed!r:.80} are not those of attention_types, {kinds}")
    return windows_in([kind == "local" for kind in kinds], size("window_size", raw.get("window_size", 256)))


def _kinds(types: object, layers: int) -> list[str]:
    """The kind of each layer, of what the file has for them: names that repeat, and how often they do."""
    types = [[list(_KINDS), 12]] if types is None else types
    try:
        kinds = [kind for names, times in types for kind in names * times]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != layers or any(kind not in _KINDS for kind in kinds):
        raise CompileError(
            f"config.json: attention_types={types!r:.80} must be lists of global and local, each with how often it "
            f"repeats, for {layers} layers"
        )
    return kinds


FAMILY = Family(
    model_type="gpt_neo",
    architecture="GPTNeoForCausalLM",
    title="GPT-Neo",
    models="GPT-Neo 125M to 2.7B, TinyStories",
    has="layer norms with biases; a learned row for each of `max_position_embeddings` positions, and no RoPE; scores "
    "without a scale; windows of `window_size` in layers that `attention_types` calls local; no gate in the MLP, GELU "
    "for SiLU (`activation_function`); biases on the MLP and on what ends attention",
    keys=(*POSITION_KEYS, Key("max_position_embeddings", absent=2048)),
    spelled={
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "rms_norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation_function",
        **UNREAD,
    },
    window=_windows,
    layer=_layer,
    tensors={
        **gpt2_tensors("attn.attention.out_proj"),
        roles.QKV: Tensors("stack", tuple(f"{GPT2_LAYER}.attn.attention.{part}_proj.weight" for part in "qkv")),
    },
    folded=learned,
    tiny={
        "hidden_size": TINY["hidden_size"],
        "intermediate_size": TINY["intermediate_size"],
        "num_layers": TINY["num_hidden_layers"],
        "num_heads": TINY["num_attention_heads"],
        "max_position_embeddings": TINY["max_position_embeddings"],
        "vocab_size": TINY["vocab_size"],
        "attention_types": [[["global", "local"], 1]],
        "window_size": 24,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    },
    left_out=MASKS,
)
