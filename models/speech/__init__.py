"""Compiles checkpoints of speech models."""

from .compile import compile_speech, is_speech

__all__ = ["compile_speech", "is_speech"]
