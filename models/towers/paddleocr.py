"""The tower of PaddleOCR-VL: SigLIP with rotations, whose projector makes a token of two rows of two patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks.encoder import Norm
from ..common.config_keys import Key, Only
from ..family import Tensors, plain, tensors_of
from ..tower_kinds.grid.tower import GridTower
from ..weights import encoder_roles as roles

_TOWER = "vision_model"
_LAYER = f"{_TOWER}.encoder.layers.{{layer}}"
_MODULES = {  # of a weight and a bias; `projector` is beside the tower
    (roles.PATCHES, roles.PATCHES_BIAS): f"{_TOWER}.embeddings.patch_embedding",
    (roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS): f"{_LAYER}.layer_norm1",
    (roles.OUT, roles.OUT_BIAS): f"{_LAYER}.self_attn.out_proj",
    (roles.MLP_NORM, roles.MLP_NORM_BIAS): f"{_LAYER}.layer_norm2",
    (roles.UP, roles.UP_BIAS): f"{_LAYER}.mlp.fc1",
    (roles.DOWN, roles.DOWN_BIAS): f"{_LAYER}.mlp.fc2",
    (roles.LAST_NORM, roles.LAST_NORM_BIAS): f"{_TOWER}.post_layernorm",
    (roles.MERGER_NORM, roles.MERGER_NORM_BIAS): "projector.pre_norm",
    (roles.MERGER_UP, roles.MERGER_UP_BIAS): "projector.linear_1",
    (roles.MERGER_DOWN, roles.MERGER_DOWN_BIAS): "projector.linear_2",
}
_PARTS = {roles.QKV: "weight", roles.QKV_BIAS: "bias"}


def _positions(values: Mapping[str, Any]) -> int:
    return int((values["image_size"] // values["patch_size"]) ** 2)


PADDLEOCR_VL = GridTower(
    takes="image",
    keys=(
        Key("hidden_size", absent=1152),
        Key("intermediate_size", absent=4304),
        Key("depth", absent=27, also="num_hidden_layers"),
        Key("num_heads", absent=16, also="num_attention_heads"),
        Key("patch_size", absent=14),
        Key("image_size", absent=384),
        Key("num_position_embeddings", absent=_positions),
        Only("num_channels", 3),
        Only("hidden_act", "gelu_pytorch_tanh"),
        Only("layer_norm_eps", 1e-6),
    ),
    norm=Norm(centred=True),
    function="GeluTanh",
    patch_bias=True,
    learned=True,
    centred=True,
    mean=None,
    framed=False,
    last_norm=True,
    merger_norm=Norm(centred=True, epsilon=1e-5),
    file_end="_{width}x{height}",
    tensors={
        **tensors_of(_MODULES),
        **{
            role: Tensors("stack", tuple(f"{_LAYER}.self_attn.{part}_proj.{what}" for part in "qkv"))
            for role, what in _PARTS.items()
        },
        roles.POSITIONS: plain(f"{_TOWER}.embeddings.position_embedding.weight"),
    },
    tiny={
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 100,
        "image_size": 40,
        "patch_size": 8,
    },
)
