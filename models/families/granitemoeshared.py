"""Granite with a mixture of experts and a shared one."""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Key
from ..family import Tensors, plain
from ..weights import roles
from . import granitemoe

_SHARED = "model.layers.{layer}.shared_mlp"
_MOE = granitemoe.FAMILY
FAMILY = replace(
    _MOE,
    model_type="granitemoeshared",
    architecture="GraniteMoeSharedForCausalLM",
    title="Granite MoE with a shared expert",
    gguf=None,
    models="MoE 7B-1B with shared experts of IBM Research",
    has="as Granite MoE, with a shared MLP of `shared_intermediate_size`",
    keys=(*_MOE.keys, Key("shared_intermediate_size", "count", absent=0)),
    tensors={
        **_MOE.tensors,
        roles.SHARED_GATE_UP: Tensors("alternate", (f"{_SHARED}.input_linear.weight",)),
        roles.SHARED_DOWN: plain(f"{_SHARED}.output_linear.weight"),
    },
    tiny={**_MOE.tiny, "shared_intermediate_size": 128},
)
