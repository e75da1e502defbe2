"""CodeGen: GPT-J whose files have q, v and k of a quarter of the heads one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.errors import CompileError
from . import gptj

_QUARTERS = 4


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    if (heads := values["num_attention_heads"]) % _QUARTERS:
        raise CompileError(f"config.json: n_head={heads} is not a multiple of {_QUARTERS}, as CodeGen's files need it")
    return gptj.FAMILY.folded(values)


FAMILY = replace(
    gptj.FAMILY,
    model_type="codegen",
    architecture="CodeGenForCausalLM",
    title="CodeGen",
    models="CodeGen and CodeGen2, 350M to 16B; CodeGen2.5 is Llama",
    has="as GPT-J",
    spelled={**gptj.FAMILY.spelled, "head_dim": ""},  # heads are as wide as hidden states, whatever else a file says
    folded=_folded,
    tiny={**gptj.FAMILY.tiny, "n_head": 8},
)
