"""Models of speech: what becomes of those with graphs of their own, by `model_type`."""

from __future__ import annotations

from .compile_funaudiochat import FUN_AUDIO_CHAT
from .compile_minicpmo import MINICPM_O
from .compile_qwen3_omni import NETWORKS, prepare_voice
from .compile_qwen3_tts import QWEN3_TTS
from .compile_whisper import WHISPER

__all__ = ["NETWORKS", "SPEECH_MODELS", "prepare_voice"]

SPEECH_MODELS = {record.model_type: record for record in (WHISPER, QWEN3_TTS, MINICPM_O, FUN_AUDIO_CHAT)}
