"""The towers of Qwen3-VL, Qwen3-Omni and Qwen3.5: layer norms, learned positions, GELU; the last without deepstack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..blocks.encoder import Norm
from ..common.config_keys import Key, Only
from ..family import Tensors, plain, tensors_of
from ..tower_kinds.grid.tower import GridTower
from ..weights import encoder_roles as roles
from ..weights.roles import Role
from .qwen2_5 import QWEN2_5_VL

_LAYER, _STACK = "blocks.{layer}", "deepstack_merger_list.{layer}"
_MODULES = {  # of a weight and a bias
    (roles.PATCHES, roles.PATCHES_BIAS): "patch_embed.proj",
    (roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS): f"{_LAYER}.norm1",
    (roles.QKV, roles.QKV_BIAS): f"{_LAYER}.attn.qkv",
    (roles.OUT, roles.OUT_BIAS): f"{_LAYER}.attn.proj",
    (roles.MLP_NORM, roles.MLP_NORM_BIAS): f"{_LAYER}.norm2",
    (roles.UP, roles.UP_BIAS): f"{_LAYER}.mlp.linear_fc1",
    (roles.DOWN, roles.DOWN_BIAS): f"{_LAYER}.mlp.linear_fc2",
    (roles.MERGER_NORM, roles.MERGER_NORM_BIAS): "merger.norm",
    (roles.MERGER_UP, roles.MERGER_UP_BIAS): "merger.linear_fc1",
    (roles.MERGER_DOWN, roles.MERGER_DOWN_BIAS): "merger.linear_fc2",
    (roles.STACK_NORM, roles.STACK_NORM_BIAS): f"{_STACK}.norm",
    (roles.STACK_UP, roles.STACK_UP_BIAS): f"{_STACK}.linear_fc1",
    (roles.STACK_DOWN, roles.STACK_DOWN_BIAS): f"{_STACK}.linear_fc2",
}
_TENSORS: Mapping[Role, Tensors] = {
    **tensors_of(_MODULES),
    roles.POSITIONS: plain("pos_embed.weight"),
}

QWEN3_VL = GridTower(
    takes="image",
    keys=(
        Key("num_position_embeddings", absent=2304),
        Key("deepstack_visual_indexes", "layers", absent=(8, 16, 24)),
        Only("hidden_act", "gelu_pytorch_tanh"),
    ),
    norm=Norm(centred=True),
    function="GeluTanh",
    patch_bias=True,
    learned=True,
    tensors=_TENSORS,
    tiny={
        "depth": 4,
        "hidden_size": 64,
        "num_heads": 2,
        "intermediate_size": 96,
        "out_hidden_size": 192,
        "patch_size": 8,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1, 2],
    },
)

# What that of Qwen3-Omni calls the parts of a merger.
_MERGERS = {
    "merger.norm": "merger.ln_q",
    "merger.linear_fc1": "merger.mlp.0",
    "merger.linear_fc2": "merger.mlp.2",
    "deepstack_merger_list.{layer}.norm": "merger_list.{layer}.ln_q",
    "deepstack_merger_list.{layer}.linear_fc1": "merger_list.{layer}.mlp.0",
    "deepstack_merger_list.{layer}.linear_fc2": "merger_list.{layer}.mlp.2",
}


def _renamed(name: str) -> str:
    module, what = name.rsplit(".", 1)
    return f"{_MERGERS.get(module, module)}.{what}"


# Its colours are scaled as the vendor's exporter does it, by the numbers of CLIP.
QWEN3_OMNI = replace(
    QWEN3_VL,
    tensors={role: replace(source, names=tuple(map(_renamed, source.names))) for role, source in _TENSORS.items()},
    mean=QWEN2_5_VL.mean,
    deviation=QWEN2_5_VL.deviation,
)

QWEN3_5 = replace(
    QWEN3_VL,
    takes="gear",
    keys=tuple(key for key in QWEN3_VL.keys if key.name != "deepstack_visual_indexes"),
    tiny={key: value for key, value in QWEN3_VL.tiny.items() if key != "deepstack_visual_indexes"},
    gears=(96, 196, 384, 704, 1536),  # those that the vendor compiles
)
