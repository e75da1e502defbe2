"""What checkpoints call the weights of SigLIP, which is part of several towers."""

from __future__ import annotations

from collections.abc import Mapping

from ..family import Tensors, plain, tensors_of
from ..weights import encoder_roles as roles
from ..weights.roles import Role

_Pairs = Mapping[tuple[Role, Role], str]
ATTENTION: _Pairs = {
    (roles.Q, roles.Q_BIAS): "self_attn.q_proj",
    (roles.K, roles.K_BIAS): "self_attn.k_proj",
    (roles.V, roles.V_BIAS): "self_attn.v_proj",
    (roles.OUT, roles.OUT_BIAS): "self_attn.out_proj",
    (roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS): "layer_norm1",
}
_LAYER: _Pairs = {
    **ATTENTION,
    (roles.MLP_NORM, roles.MLP_NORM_BIAS): "layer_norm2",
    (roles.UP, roles.UP_BIAS): "mlp.fc1",
    (roles.DOWN, roles.DOWN_BIAS): "mlp.fc2",
}


def siglip_tensors(module: str) -> dict[Role, Tensors]:
    """Where the weights of SigLIP are, in a module."""
    return {
        **tensors_of({(roles.PATCHES, roles.PATCHES_BIAS): "patch_embedding"}, f"{module}.embeddings."),
        roles.POSITIONS: plain(f"{module}.embeddings.position_embedding.weight"),
        **tensors_of(_LAYER, f"{module}.encoder.layers.{{layer}}."),
        **tensors_of({(roles.LAST_NORM, roles.LAST_NORM_BIAS): "post_layernorm"}, f"{module}."),
    }
