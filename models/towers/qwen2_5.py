"""The tower of Qwen2.5-VL: RMS norms, a gated MLP, windows in most layers, no positions but those of the rotation."""

from __future__ import annotations

from ..blocks.encoder import Norm
from ..common.config_keys import Key, Only
from ..family import Tensors, plain
from ..tower_kinds.grid.tower import GridTower
from ..weights import encoder_roles as roles

_LAYER = "blocks.{layer}"
_PARTS = {roles.UP: "weight", roles.UP_BIAS: "bias"}
_NAMES = {
    roles.PATCHES: "patch_embed.proj.weight",
    roles.ATTENTION_NORM: f"{_LAYER}.norm1.weight",
    roles.QKV: f"{_LAYER}.attn.qkv.weight",
    roles.QKV_BIAS: f"{_LAYER}.attn.qkv.bias",
    roles.OUT: f"{_LAYER}.attn.proj.weight",
    roles.OUT_BIAS: f"{_LAYER}.attn.proj.bias",
    roles.MLP_NORM: f"{_LAYER}.norm2.weight",
    roles.DOWN: f"{_LAYER}.mlp.down_proj.weight",
    roles.DOWN_BIAS: f"{_LAYER}.mlp.down_proj.bias",
    roles.MERGER_NORM: "merger.ln_q.weight",
    roles.MERGER_UP: "merger.mlp.0.weight",
    roles.MERGER_UP_BIAS: "merger.mlp.0.bias",
    roles.MERGER_DOWN: "merger.mlp.2.weight",
    roles.MERGER_DOWN_BIAS: "merger.mlp.2.bias",
}

QWEN2_5_VL = GridTower(
    takes="image",
    keys=(
        Key("patch_size", absent=14),
        Key("window_size", absent=112),
        Key("fullatt_block_indexes", "layers", absent=(7, 15, 23, 31)),
        Only("hidden_act", "silu"),
    ),
    mean=(0.48145466, 0.4578275, 0.40821073),
    deviation=(0.26862954, 0.26130258, 0.27577711),
    norm=Norm(centred=False),
    function=None,
    patch_bias=False,
    learned=False,
    tensors={
        **{role: plain(name) for role, name in _NAMES.items()},
        **{
            role: Tensors("alternate", tuple(f"{_LAYER}.mlp.{part}_proj.{what}" for part in ("gate", "up")))
            for role, what in _PARTS.items()
        },
    },
    tiny={
        "depth": 4,
        "hidden_size": 64,
        "num_heads": 2,
        "intermediate_size": 100,
        "out_hidden_size": 384,
        "patch_size": 8,
        "window_size": 32,
        "fullatt_block_indexes": [1, 3],
    },
)
