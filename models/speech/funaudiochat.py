"""Fun-Audio-Chat: a Qwen3 that hears.

Its graphs return logits and hidden states of all rows, and take a mask that hides more than the lengths do.
"""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Only
from ..contract import Port
from ..families import qwen3
from ..families.shared.dense import CONTRACT

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
