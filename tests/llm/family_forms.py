"""Families that stand for all where a test is about ops and blocks, which do not know from which family they come."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tcim_lite.hmm import read
from tcim_lite.models.families import FAMILIES, read_config

# Between them they have every form of any family's ops and blocks, and those without states every form of families
# without: models/test_families.py holds it.
EVERY_FORM = (
    "afmoe", "apertus", "arcee", "bamba", "cohere2", "cohere2_moe", "deepseek_v2", "deepseek_v3", "ernie4_5_moe",
    "exaone4", "falcon_h1", "falcon_mamba", "flex_olmo", "gemma2", "gemma3n", "gemma4", "glm_ocr", "gpt_neox",
    "gpt_oss", "hunyuan_v1_dense", "jamba", "kimi_linear", "laguna", "lfm2", "lfm3", "llama4", "mamba", "minicpm3",
    "ministral3", "nanochat", "nemotron_h", "olmo", "olmo2", "openai-gpt", "opt", "phi", "phimoe", "qwen2_moe",
    "qwen3", "qwen3_5_moe", "qwen3_omni_moe", "stablelm",
)  # fmt: skip


def in_the_grid(family: str, *values: object) -> Any:
    """The parameters of a test that shows little more on families outside EVERY_FORM: `make test` leaves those out."""
    return pytest.param(*(values or (family,)), marks=() if family in EVERY_FORM else pytest.mark.grid)


def forms_of(family: str, graphs: Iterable[Path]) -> set[tuple]:
    """Of a tiny package: ops by attributes and what their operands are, blocks by what each field says."""
    found: set[tuple] = set()
    for path in graphs:
        graph = read(path).graph
        for op in graph.ops:
            said = tuple(sorted((key, value if isinstance(value, str) else "") for key, value in op.attributes.items()))
            values = [graph.values[index] for index in op.inputs]
            kinds = ((value.kind, value.format, value.dtype) for value in values)
            found.add((op.kind, said, tuple(kinds)))
    config = read_config(FAMILIES[family].tiny_config)
    for block in (block for layer in range(config.num_layers) for block in config.blocks(layer)):
        for field in dataclasses.fields(block):
            value = getattr(block, field.name)
            told = value if isinstance(value, (bool, str, type(None))) else ""
            found.add((type(block).__name__, field.name, told))
    return found
