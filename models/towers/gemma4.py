"""The tower of Gemma 4: patches with learned positions and axial RoPE, pooled into tokens."""

from __future__ import annotations

from ..blocks.clipped import clipped_tensors
from ..family import Tensors, plain
from ..tower_kinds.pooled.tower import PooledTower
from ..weights import encoder_roles as roles

_TOWER = "model.vision_tower"
_LAYER = f"{_TOWER}.encoder.layers.{{layer}}"
_ATTENTION, _MLP = f"{_LAYER}.self_attn", f"{_LAYER}.mlp"


GEMMA4 = PooledTower(
    tensors={
        roles.PATCHES: plain(f"{_TOWER}.patch_embedder.input_proj.weight"),
        roles.POSITIONS: plain(f"{_TOWER}.patch_embedder.position_embedding_table"),
        roles.ATTENTION_NORM: plain(f"{_LAYER}.input_layernorm.weight"),
        roles.QKV: Tensors("stack", tuple(f"{_ATTENTION}.{part}_proj.linear.weight" for part in "qkv")),
        roles.Q_NORM: plain(f"{_ATTENTION}.q_norm.weight"),
        roles.K_NORM: plain(f"{_ATTENTION}.k_norm.weight"),
        **clipped_tensors(roles.OUT, f"{_ATTENTION}.o_proj"),
        **clipped_tensors(roles.Q, f"{_ATTENTION}.q_proj"),
        **clipped_tensors(roles.K, f"{_ATTENTION}.k_proj"),
        **clipped_tensors(roles.V, f"{_ATTENTION}.v_proj"),
        roles.OUT_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.pre_feedforward_layernorm.weight"),
        roles.UP: Tensors("alternate", (f"{_MLP}.gate_proj.linear.weight", f"{_MLP}.up_proj.linear.weight")),
        **clipped_tensors(roles.GATE, f"{_MLP}.gate_proj"),
        **clipped_tensors(roles.UP_ALONE, f"{_MLP}.up_proj"),
        **clipped_tensors(roles.DOWN, f"{_MLP}.down_proj"),
        roles.DOWN_NORM: plain(f"{_LAYER}.post_feedforward_layernorm.weight"),
        roles.SHIFT: plain(f"{_TOWER}.std_bias"),
        roles.FACTORS: plain(f"{_TOWER}.std_scale"),
        roles.EMBED: plain("model.embed_vision.embedding_projection.weight"),
    },
    tokens=280,
    tiny={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "patch_size": 8,
        "position_embedding_size": 48,
        "standardize": True,
    },
)
