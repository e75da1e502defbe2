"""Qwen3-Omni's models that speak."""

from __future__ import annotations

MODEL_TYPE = "qwen3_omni_moe"
