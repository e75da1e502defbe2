"""MiMo 7B: Qwen2 with layers of multi-token prediction behind it, which are left out."""

from __future__ import annotations

from dataclasses import replace

from . import qwen2

FAMILY = replace(
    qwen2.FAMILY,
    model_type="mimo",
    architecture="MiMoForCausalLM",
    title="MiMo",
    models="MiMo 7B, without the MTP layer",
    has="as Qwen2",
    gguf=None,
)
