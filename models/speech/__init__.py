"""Compiles checkpoints of speech models."""

from .compile import compile_whisper, is_whisper, write_sound_encoder
from .qwen3_asr import MODEL_TYPE as QWEN3_ASR

__all__ = ["QWEN3_ASR", "compile_whisper", "is_whisper", "write_sound_encoder"]
