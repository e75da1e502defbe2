"""Compiles checkpoints of speech models."""

from .compile import compile_speech, is_speech, write_sound_encoder

__all__ = ["compile_speech", "is_speech", "write_sound_encoder"]
