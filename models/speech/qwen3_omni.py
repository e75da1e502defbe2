"""Qwen3-Omni's models that speak: a talker, a predictor of each frame's other codes, and a projection of text.

The talker is a Qwen3 with experts, one of them shared, whose tokens are the first codes of frames. Positions along
three axes are equal in the vendor's graphs: one is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key, Only, read_keys
from ..common.config_rules import no_window
from ..common.errors import CompileError
from ..contract import Port
from ..families import qwen3_moe
from ..families.qwen3_5_moe import SHARED_TENSORS
from ..families.shared.dense import CONTRACT, hidden_per_head, tensors_below
from ..family import Tensors, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .qwen3_tts import CODE_PREDICTOR, TextProjection, part_of

MODEL_TYPE, TITLE = "qwen3_omni_moe", "Qwen3-Omni"
_TALKER_TITLE, _PREDICTOR_TITLE = f"the talker of {TITLE}", f"the code predictor of {TITLE}"
_PREDICTOR = "talker.code_predictor."
_FEWEST_GROUPS = 3  # of which the predictor has two heads
_KEYS: tuple[Key | Only, ...] = (Key("thinker_hidden_size"), Key("num_code_groups"))


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    normalise = config.flags["norm_topk_prob"]
    return (
        Attention(qk_norm=True, qkv_bias=bias, out_bias=bias),
        Moe(order="softmax_topk", normalise=normalise),
    )


_PROJECTIONS = {
    (roles.TEXT_UP, roles.TEXT_UP_BIAS): "text_projection.linear_fc1",
    (roles.TEXT_DOWN, roles.TEXT_DOWN_BIAS): "text_projection.linear_fc2",
    (roles.OTHER_UP, roles.OTHER_UP_BIAS): "hidden_projection.linear_fc1",
    (roles.OTHER_DOWN, roles.OTHER_DOWN_BIAS): "hidden_projection.linear_fc2",
}
# Programs find these inputs by their places.
TALKER = replace(
    qwen3_moe.FAMILY,
    model_type=MODEL_TYPE,
    title=_TALKER_TITLE,
    keys=(
        *(key for key in qwen3_moe.FAMILY.keys if key.name not in ("tie_word_embeddings", "mlp_only_layers")),
        Key("head_dim", absent=hidden_per_head, null=hidden_per_head),
        Key("shared_expert_intermediate_size"),
        Only("use_sliding_window", False),
    ),
    folded=lambda values: {"tie_word_embeddings": False},
    window=no_window,
    layer=_layer,
    tensors={
        **tensors_below(
            "talker.",
            "model.codec_embedding.weight",
            "codec_head.weight",
            {**qwen3_moe.FAMILY.tensors, **SHARED_TENSORS},
        ),
        **tensors_of(_PROJECTIONS, "talker."),
    },
    contract=replace(
        CONTRACT,
        shared=(
            Port("embeddings", "hidden_state", ""),
            Port("role_mask", "role_mask", ""),
            Port("bypass_embeddings", "bypass_embeds", ""),
            Port("bypass_mask", "bypass_mask", ""),
        ),
        hidden="hidden_states",
    ),
    packed_experts="rows",
    gguf=None,
)
_ONE_OF_HEADS = replace(
    CODE_PREDICTOR,
    model_type=MODEL_TYPE,
    title=_PREDICTOR_TITLE,
    contract=replace(CONTRACT, shared=(*CONTRACT.shared, Port("head_mask", "head_mask", ""))),
    hidden_after=lambda raw: 0,
)


def _talker_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    return read_keys(_KEYS, part_of(raw, "talker_config"), _TALKER_TITLE)


def read_talker(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the talker's keys of a parsed `config.json`.

    Raises:
        CompileError: A value that is missing, malformed or not supported.
    """
    config = TALKER.read(part_of(part_of(raw, "talker_config"), "text_config"))
    return replace(config, source_size=_talker_keys(raw)["thinker_hidden_size"])


def read_code_predictor(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the code predictor's keys of a parsed `config.json`.

    Raises:
        CompileError: A value that is missing, malformed or not supported, or that the talker contradicts.
    """
    own = part_of(part_of(raw, "talker_config"), "code_predictor_config")
    groups, talker = _talker_keys(raw)["num_code_groups"], read_talker(raw)
    heads = tuple(f"{_PREDICTOR}lm_head.{number}.weight" for number in range(groups - 1))
    family = replace(_ONE_OF_HEADS, tensors={**_ONE_OF_HEADS.tensors, roles.HEAD: Tensors("stack", heads)})
    config = family.read(own)
    if groups != config.heads + 1 or groups < _FEWEST_GROUPS:
        raise CompileError(
            f"config.json: num_code_groups is {groups} in talker_config and {config.heads + 1} in its "
            f"code_predictor_config; expected one number, {_FEWEST_GROUPS} or more"
        )
    if config.hidden_size != talker.hidden_size:
        raise CompileError(
            f"config.json: hidden_size is {talker.hidden_size} in text_config of talker_config and "
            f"{config.hidden_size} in its code_predictor_config; expected one number"
        )
    return config


def read_text_projection(raw: Mapping[str, Any], rows: int) -> TextProjection:
    """Reads the keys of the projection of text, of so many tokens at a time."""
    talker = read_talker(raw)
    assert talker.source_size is not None
    return TextProjection(
        width=talker.source_size,
        inner=talker.intermediate_size,
        outputs=talker.hidden_size,
        rows=rows,
        ports=("source", "output"),
    )
