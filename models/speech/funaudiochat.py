"""Fun-Audio-Chat: a Qwen3 that hears, and a smaller one that speaks in codes.

Graphs of the first return logits and hidden states of all rows, and take a mask that hides more than the lengths do. In
the second a Linear, which programs compute, makes rows of a group of codes of each hidden state. To a row they add the
embedding of the code before it, and the graph makes the scores of its own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.config_keys import Key, Only, read_keys
from ..common.config_rules import object_in
from ..contract import Port
from ..families import qwen3
from ..families.shared.dense import CONTRACT
from ..family import Tensors, plain
from ..model_config import ModelConfig
from ..sounds.tensors import table_spec
from ..weights import roles
from ..weights.spec import LinearSpec, VectorSpec
from ..weights.speech_roles import PRE_MATCHING

MODEL_TYPE, ARCHITECTURE = "funaudiochat", "FunAudioChatForConditionalGeneration"
TITLE = "Fun-Audio-Chat"

LANGUAGE = replace(
    qwen3.FAMILY,
    model_type=MODEL_TYPE,
    architecture=ARCHITECTURE,
    title=TITLE,
    keys=(*qwen3.FAMILY.keys, Only("tie_word_embeddings", False)),
    folded=lambda values: {"tie_word_embeddings": False},
    contract=replace(
        CONTRACT, extra_mask=Port("global_attention_mask", "attention_mask", ""), hidden="last_hidden_state"
    ),
    gguf=None,
    nested="text_config",
)
read_language = LANGUAGE.read

_DECODER = "audio_invert_tower"
# The head is the table of codes, which is stored once, or under this name as well.
_OWN_HEAD = f"{_DECODER}.lm_head.weight"
SPEAKING = f"{_DECODER}."
# Tensors that are left out without a warning: a table that no graph reads, and a copy of the head.
UNREAD = (f"{_DECODER}.crq_transformer.embed_tokens.", _OWN_HEAD)
CODES = replace(
    qwen3.FAMILY,
    model_type=MODEL_TYPE,
    architecture=ARCHITECTURE,
    title=f"the decoder of codes of {TITLE}",
    folded=lambda values: {"tie_word_embeddings": True},
    tensors={
        **{
            role: replace(
                source,
                names=tuple(f"{_DECODER}.crq_transformer.{name.removeprefix('model.')}" for name in source.names),
            )
            for role, source in qwen3.FAMILY.tensors.items()
        },
        roles.INPUT_PROJECTION: plain(f"{_DECODER}.input_matching.weight"),
        roles.OUTPUT_PROJECTION: plain(f"{_DECODER}.output_matching.weight"),
        roles.HEAD: Tensors("tied", (_OWN_HEAD,)),
        roles.EMBEDDING: plain("audio_tower.embed_tokens.weight"),
    },
    contract=replace(
        CONTRACT,
        shared=(Port("embeddings", "crq_inputs_embeds", ""),),
        per_slot=tuple(replace(port, name=port.alias, alias=port.name) for port in CONTRACT.per_slot),
        extra_mask=Port("mask", "attention_mask", ""),
        flat_mask=True,
        per_layer=tuple(replace(port, name=port.alias, alias=port.name) for port in CONTRACT.per_layer),
        output="speech_logits",
    ),
    gguf=None,
)

# Defaults are those of the published class.
_CODE_KEYS: tuple[Key | Only, ...] = (
    Key("codebook_size", absent=6565),
    Key("output_dim", absent=3584),
    Key("group_size", absent=5),
    Key("enable_audio_invert_tower", "flag", absent=True),
)


def group_size(raw: Mapping[str, Any]) -> int | None:
    """Returns how many codes a hidden state becomes; None for a checkpoint that does not speak.

    Raises:
        CompileError: A value that is malformed.
    """
    section = object_in(raw, "audio_config")
    values = read_keys(_CODE_KEYS, section, TITLE)
    speaks = values["enable_audio_invert_tower"] and section.get("crq_transformer_config") is not None
    return int(values["group_size"]) if speaks else None


def read_codes(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the keys of the decoder of codes.

    Raises:
        CompileError: A value that is missing, malformed or not supported.
    """
    section = object_in(raw, "audio_config")
    own = object_in(section, "crq_transformer_config")
    values = read_keys(_CODE_KEYS, section, TITLE)
    config = CODES.read({**own, "vocab_size": values["codebook_size"]})
    return replace(config, input_size=values["output_dim"], output_size=values["output_dim"])


def pre_matching(group: int, width: int) -> tuple[LinearSpec, VectorSpec]:
    """What makes `group` rows of a hidden state of `width`, side by side."""
    name, rows = f"{_DECODER}.pre_matching", group * width
    bias = VectorSpec(role=PRE_MATCHING.bias, layer=None, tensors=(f"{name}.bias",), lengths=(rows,))
    return table_spec(PRE_MATCHING.weight, f"{name}.weight", (rows, width)), bias
