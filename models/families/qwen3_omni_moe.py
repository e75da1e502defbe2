"""Qwen3-Omni 30B-A3B: a language model as that of Qwen3-VL MoE, the thinker, which hears and sees.

Its graphs also return the hidden states that a talker, if the checkpoint has one, makes speech of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.config_keys import Key, read_keys
from ..common.errors import CompileError
from ..sounds import qwen3 as sounds
from ..towers.qwen3 import QWEN3_OMNI
from . import qwen3_moe, qwen3_vl_moe


def _accepted(raw: Mapping[str, Any]) -> int | None:
    """Behind how many layers the hidden states are that the talker takes; None without a talker."""
    talker = raw.get("talker_config")
    if talker is None or raw.get("enable_audio_output", True) is False:
        return None
    if not isinstance(talker, Mapping):
        raise CompileError(f"config.json: talker_config must be an object, got {talker!r:.80}")
    keys = (Key("accept_hidden_layer", absent=18),)
    return int(read_keys(keys, talker, "the talker of Qwen3-Omni")["accept_hidden_layer"])


_VISION = qwen3_vl_moe.FAMILY
FAMILY = replace(
    _VISION,
    model_type="qwen3_omni_moe",
    architecture="Qwen3OmniMoeForConditionalGeneration",
    title="Qwen3-Omni",
    gguf=None,
    models="Qwen3-Omni 30B-A3B",
    has="as Qwen3-VL MoE; [more graphs](speech.md#qwen3-omni) for what it hears and says",
    keys=(*qwen3_moe.FAMILY.keys, Key("norm_topk_prob", "flag", absent=True)),
    rope_theta=1000000.0,
    nested="thinker_config.text_config",
    packed_experts="rows",
    hidden_after=_accepted,
    vision=QWEN3_OMNI,
    sound=sounds.QWEN3_OMNI,
    tiny={**_VISION.tiny, "norm_topk_prob": True},
)
