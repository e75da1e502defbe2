"""Compiles checkpoints of speech models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..common.checkpoint import config_of
from ..compiler.options import CompileResult
from . import funaudiochat, minicpmo, qwen3_tts, whisper
from .asked import folder_of
from .compile import compile_whisper, prepare_sound
from .compile_funaudiochat import compile_funaudiochat
from .compile_minicpmo import compile_minicpmo
from .compile_omni import NETWORKS, prepare_voice
from .compile_tts import compile_qwen3_tts

__all__ = [
    "NETWORKS",
    "compiler_of",
    "prepare_sound",
    "prepare_voice",
]

_COMPILERS = {
    whisper.MODEL_TYPE: compile_whisper,
    qwen3_tts.MODEL_TYPE: compile_qwen3_tts,
    minicpmo.MODEL_TYPE: compile_minicpmo,
    funaudiochat.MODEL_TYPE: compile_funaudiochat,
}


def compiler_of(checkpoint: Path) -> Callable[..., CompileResult] | None:
    """Returns what compiles a folder, named by itself or by its config.json, that has graphs of its own; else None."""
    folder = folder_of(checkpoint)
    if not (folder.is_dir() and (folder / "config.json").is_file()):
        return None
    return _COMPILERS.get(str(config_of(folder).get("model_type")))
