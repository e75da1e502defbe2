"""Fun-Audio-Chat: a Qwen3 that hears.

Its graphs return logits and hidden states of all rows, and take a mask that hides more than the lengths do.
"""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Only
from ..contract import Port
from ..dense import CONTRACT
from ..families import qwen3

MODEL_TYPE, ARCHITECTURE = "funaudiochat", "FunAudioChatForConditionalGeneration"
TITLE, MODELS = "Fun-Audio-Chat", "Fun-Audio-Chat 8B"
HAS = (
    "[graphs of its own](speech.md#fun-audio-chat): a language model as Qwen3, an encoder of sounds and one of groups "
    "of codes; what it speaks with is left out"
)

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
