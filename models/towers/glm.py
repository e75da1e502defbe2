"""The tower of GLM-OCR: RMS norms, also on the heads of q and k, a gated MLP, and a convolution before the merger."""

from __future__ import annotations

from collections.abc import Mapping

from ..blocks.encoder import Norm
from ..common.config_keys import Key, Only
from ..family import Tensors, plain, tensors_of
from ..tower_kinds.grid.tower import GridTower
from ..weights import encoder_roles as roles
from ..weights.roles import Role

_LAYER = "blocks.{layer}"
_MODULES = {  # of a weight and a bias
    (roles.PATCHES, roles.PATCHES_BIAS): "patch_embed.proj",
    (roles.QKV, roles.QKV_BIAS): f"{_LAYER}.attn.qkv",
    (roles.OUT, roles.OUT_BIAS): f"{_LAYER}.attn.proj",
    (roles.DOWN, roles.DOWN_BIAS): f"{_LAYER}.mlp.down_proj",
    (roles.JOIN, roles.JOIN_BIAS): "downsample",
    (roles.MERGER_NORM, roles.MERGER_NORM_BIAS): "merger.post_projection_norm",
}
_WEIGHTS = {
    roles.ATTENTION_NORM: f"{_LAYER}.norm1",
    roles.Q_NORM: f"{_LAYER}.attn.q_norm",
    roles.K_NORM: f"{_LAYER}.attn.k_norm",
    roles.MLP_NORM: f"{_LAYER}.norm2",
    roles.LAST_NORM: "post_layernorm",
    roles.MERGER_PROJECT: "merger.proj",
    roles.MERGER_DOWN: "merger.down_proj",
}
_TENSORS: Mapping[Role, Tensors] = {
    **tensors_of(_MODULES),
    **{role: plain(f"{module}.weight") for role, module in _WEIGHTS.items()},
    **{
        role: Tensors("alternate", tuple(f"{module}.{part}_proj.{what}" for part in ("gate", "up")))
        for role, module, what in (
            (roles.UP, f"{_LAYER}.mlp", "weight"),
            (roles.UP_BIAS, f"{_LAYER}.mlp", "bias"),
            (roles.MERGER_UP, "merger", "weight"),
        )
    },
}

GLM_OCR = GridTower(
    takes="cut",
    keys=(
        Key("depth", absent=24),
        Key("hidden_size", absent=1024),
        Key("intermediate_size", absent=4096),
        Key("num_heads", absent=16),
        Key("patch_size", absent=14),
        Key("rms_norm_eps", "number", absent=1e-5),
        Only("hidden_act", "silu"),
        Only("attention_bias", True),
    ),
    norm=Norm(centred=False, epsilon=1e-5),
    function=None,
    patch_bias=True,
    learned=False,
    head_norms=True,
    last_norm=True,
    merger_norm=Norm(centred=True, epsilon=1e-5),
    merger_growth=3,
    tensors=_TENSORS,
    sizes=((672, 672),),
    file_end="_{width}x{height}x{frames}",
    tiny={
        "depth": 3,
        "hidden_size": 64,
        "num_heads": 2,
        "intermediate_size": 100,
        "out_hidden_size": 192,
        "patch_size": 8,
        "rms_norm_eps": 1e-5,
    },
)
