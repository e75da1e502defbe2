"""Compiles checkpoints of speech models: those with graphs of their own are records."""

from __future__ import annotations

from pathlib import Path

from ..checkpoints.checkpoint import config_of
from ..compiler.source import folder_of
from .compile_funaudiochat import FUN_AUDIO_CHAT
from .compile_minicpmo import MINICPM_O
from .compile_qwen3_omni import NETWORKS, prepare_voice
from .compile_qwen3_tts import QWEN3_TTS
from .compile_whisper import WHISPER
from .record import SpeechModel

__all__ = ["NETWORKS", "SPEECH_MODELS", "prepare_voice", "speech_model_of"]

SPEECH_MODELS = {record.model_type: record for record in (WHISPER, QWEN3_TTS, MINICPM_O, FUN_AUDIO_CHAT)}


def speech_model_of(checkpoint: Path) -> SpeechModel | None:
    """Returns the record of a folder, named by itself or by its config.json, that has graphs of its own; else None."""
    folder = folder_of(checkpoint)
    if not (folder.is_dir() and (folder / "config.json").is_file()):
        return None
    return SPEECH_MODELS.get(str(config_of(folder).get("model_type")))
