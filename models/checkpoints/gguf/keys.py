"""The keys of one architecture in a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...common.errors import CheckpointError
from ...family import HEADS_BY_LAYER, Family

INNER = "feed_forward_length"
# Keys of attention and RoPE, behind the architecture's name, that are read or change nothing. Others are refused.
_KNOWN = {
    "attention.head_count",
    HEADS_BY_LAYER,
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    # `attn_factor` of config.json, which DeepSeek-R1-0528-Qwen3-8B has, by newer converters. llama.cpp reads it in none
    # of our families, transformers not at all.
    "rope.scaling.yarn_attn_factor",
}
_GROUPS = {"expert_group_count", "expert_group_used_count"}  # one group is none
_OF_EXPERTS = {"expert_count", "expert_used_count", "expert_feed_forward_length"}
SECTIONS = "rope.dimension_sections"  # how many frequencies each of three positions turns, and a zero
CENTRED = "attention.layer_norm_epsilon"  # of families whose norms centre rows, in place of layer_norm_rms_epsilon
_ARITHMETIC = ("attention.", "rope.", "expert_", "logit_scale", "residual_scale", "embedding_scale", "attn_", "final_")


class Keys:
    """The keys of one architecture; numbers of 32 bits as they were meant, 1e-6 for 9.9999999e-07."""

    def __init__(self, metadata: Mapping[str, Any], family: Family, where: str) -> None:
        assert family.gguf is not None
        form = family.gguf
        arch = str(metadata["general.architecture"])
        known = _KNOWN | (_OF_EXPERTS if family.experts else set()) | {*form.keys, *form.also}
        if family.axes is not None:
            known.add(SECTIONS)
        self._values = {
            key.removeprefix(f"{arch}."): value for key, value in metadata.items() if key.startswith(f"{arch}.")
        }
        self._arch, self._where = arch, where
        for key, value in self._values.items():
            several = isinstance(value, np.ndarray)
            if key == "attention.causal" and not several and value:
                continue  # as all are
            changes = key == "attention.causal" or (value.any() if several else value)
            if key in _GROUPS and not several and value == 1:
                continue
            if key.startswith(_ARITHMETIC) and key not in known and changes:
                raise CheckpointError(
                    f"{where}: {arch}.{key}={value!r:.60} is not supported; known are {', '.join(sorted(known))}"
                )

    def get(self, key: str, default: Any = None) -> Any:
        value = self._values.get(key, default)
        if isinstance(value, np.ndarray):  # by layer
            if value.size == 0 or (value != value[0]).any():
                raise CheckpointError(
                    f"{self._where}: {self._arch}.{key} differs between layers, expected one number for all"
                )
            value = value.tolist()[0]
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def given(self, key: str) -> Any:
        """As `get`; a list where there are several."""
        value = self._values.get(key)
        return value.tolist() if isinstance(value, np.ndarray) else self.get(key)

    def positive(self, key: str, default: float) -> float:
        """A positive number."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise CheckpointError(f"{self._where}: {self._arch}.{key} is {value!r:.80}, expected a positive number")
        return value

    def need(self, key: str) -> Any:
        if (value := self.get(key)) is None:
            raise CheckpointError(f"{self._where} has no key {self._arch}.{key}")
        return value
