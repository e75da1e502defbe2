"""MiniCPM-o 2.6: a Qwen2.5 that hears and sees, and a small Llama that speaks in codes.

The language model also returns rows that say in which voice to speak. In the small Llama the first tokens are of text,
those behind it codes, four side by side, each with a head and an embedding of its own. A mask says which of them a
token sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.config_keys import Key, Only, read_keys
from ..common.config_rules import object_in
from ..common.errors import CompileError
from ..contract import Port
from ..families import llama, qwen2
from ..families.shared.dense import CONTRACT, tensors_below
from ..family import Tensors, tensors_of
from ..model_config import ModelConfig
from ..towers.minicpm import MINICPM_O_2_6
from ..weights import roles

MODEL_TYPE, ARCHITECTURE = "minicpmo", "MiniCPMO"
TITLE = "MiniCPM-o"
_VERSION = "2.6"
CODE_TABLE, TEXT_TABLE = "tts.emb_code.{}.weight", "tts.emb_text.weight"
HEADS = 4

LANGUAGE = replace(
    qwen2.FAMILY,
    model_type=MODEL_TYPE,
    architecture=ARCHITECTURE,
    title=TITLE,
    keys=(*qwen2.FAMILY.keys, Key("max_position_embeddings", absent=32768), Only("tie_word_embeddings", False)),
    folded=lambda values: {"tie_word_embeddings": False},
    tensors={
        **qwen2.FAMILY.tensors,
        **tensors_of({pair: f"tts.projector.linear{number}" for number, pair in enumerate(roles.SPEAKER, 1)}),
    },
    contract=replace(CONTRACT, hidden="hidden_state"),
    gguf=None,
    vision=MINICPM_O_2_6,
)

SPEECH = replace(
    llama.FAMILY,
    model_type=MODEL_TYPE,
    architecture=ARCHITECTURE,
    title=f"the model of speech of {TITLE}",
    folded=lambda values: {"tie_word_embeddings": False, "heads": HEADS},
    tensors={
        **tensors_below("tts.", "", ""),
        roles.EMBEDDING: Tensors("plain", (CODE_TABLE.format("{expert}"),)),
        roles.HEAD: Tensors("stack", tuple(f"tts.head_code.{number}.weight" for number in range(HEADS))),
    },
    contract=replace(CONTRACT, row_mask=Port("global_attention_mask", "attention_mask", "")),
    gguf=None,
)

# Defaults are those of the published class.
_SPEECH_KEYS: tuple[Key | Only, ...] = (
    Key("hidden_size", absent=768),
    Key("intermediate_size", absent=3072),
    Key("num_attention_heads", absent=12),
    Key("num_hidden_layers", absent=20),
    Key("max_position_embeddings", absent=4096),
    Key("num_audio_tokens", absent=626),
    Key("num_text_tokens", absent=21178),
    Only("num_vq", HEADS),
    Only("use_mlp", True),
    Only("use_speaker_embedding", True),
)


def read_language(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the language model's keys of a parsed `config.json`.

    Raises:
        CompileError: A value that is missing, malformed or not supported.
    """
    if (version := raw.get("version", _VERSION)) not in (_VERSION, float(_VERSION)):
        raise CompileError(f"version={version!r} is not supported; of {TITLE} this compiler takes {_VERSION}")
    return replace(LANGUAGE.read(raw), speaker_size=_speech(raw)["hidden_size"])


def read_speech(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the keys of the model of speech.

    Raises:
        CompileError: A value that is missing, malformed or not supported.
    """
    values = _speech(raw)
    return SPEECH.read({**values, "vocab_size": values["num_audio_tokens"], "rms_norm_eps": 1e-6})


def text_table(raw: Mapping[str, Any]) -> tuple[str, tuple[int, int]]:
    """Returns the name and the shape of the embedding of text that the model of speech reads."""
    values = _speech(raw)
    return TEXT_TABLE, (values["num_text_tokens"], values["hidden_size"])


def _speech(raw: Mapping[str, Any]) -> dict[str, Any]:
    return read_keys(_SPEECH_KEYS, object_in(raw, "tts_config"), f"the model of speech of {TITLE}")
