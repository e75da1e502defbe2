"""Qwen3-VL with a mixture of experts, 30B-A3B and 235B-A22B: the language model of Qwen3 MoE, the rest as Qwen3-VL."""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Only
from ..family import Gguf
from . import qwen3_moe, qwen3_vl

_DENSE, _MOE = qwen3_vl.FAMILY, qwen3_moe.FAMILY
_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")

FAMILY = replace(
    _DENSE,
    model_type="qwen3_vl_moe",
    architecture="Qwen3VLMoeForConditionalGeneration",
    title="Qwen3-VL MoE",
    models="Qwen3-VL 30B-A3B, 235B-A22B",
    has="as Qwen3-VL dense, with the layers of Qwen3 MoE",
    # Its class divides the shares of the chosen experts by their sum without being told.
    keys=(
        *(key for key in _MOE.keys if key.name != "norm_topk_prob"),
        *(key for key in _DENSE.keys if key.name in ("head_dim", "max_position_embeddings")),
        Only("norm_topk_prob", True),
    ),
    layer=qwen3_vl.stacked(_MOE.layer),
    tensors=_MOE.tensors,
    experts=_MOE.experts,
    gguf=Gguf(arch="qwen3vlmoe"),
    packed_experts="columns",
    tiny={**_DENSE.tiny, **{key: _MOE.tiny[key] for key in _EXPERTS}},
)
