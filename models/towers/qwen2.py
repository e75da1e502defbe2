"""The tower of Qwen2-VL: layer norms, QuickGELU, no positions but those of the rotation; images come as patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks.encoder import Norm
from ..common.config_keys import Key, Only, size
from ..family import tensors_of
from ..weights import encoder_roles as roles
from .qwen2_5 import QWEN2_5_VL

_LAYER = "blocks.{layer}"
_MODULES = {  # of a weight and a bias
    (roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS): f"{_LAYER}.norm1",
    (roles.MLP_NORM, roles.MLP_NORM_BIAS): f"{_LAYER}.norm2",
    (roles.UP, roles.UP_BIAS): f"{_LAYER}.mlp.fc1",
    (roles.DOWN, roles.DOWN_BIAS): f"{_LAYER}.mlp.fc2",
    (roles.MERGER_NORM, roles.MERGER_NORM_BIAS): "merger.ln_q",
}


def _usual_keys(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its files call the width of a token of the language model `hidden_size`, and have a ratio for the MLP's width."""
    width, ratio = size("embed_dim", section.get("embed_dim", 1280)), size("mlp_ratio", section.get("mlp_ratio", 4))
    own = {"hidden_size": width, "intermediate_size": width * ratio, "out_hidden_size": section.get("hidden_size")}
    return {**section, **own}


QWEN2_VL = replace(
    QWEN2_5_VL,
    takes="cut",
    keys=(
        Key("depth", absent=32),
        Key("num_heads", absent=16),
        Key("patch_size", absent=14),
        Only("hidden_act", "quick_gelu"),
    ),
    usual_keys=_usual_keys,
    norm=Norm(centred=True),
    function="Silu",
    steepness=1.702,  # x * sigmoid(1.702 x)
    tensors={
        **QWEN2_5_VL.tensors,
        **tensors_of(_MODULES),
    },
    # Those that the vendor compiles for MinerU2.5: a page, and then what is cut out of it.
    sizes=(
        (1036, 1036),
        (140, 392),
        (196, 560),
        (280, 784),
        (392, 1036),
        (112, 1792),
        (168, 1792),
        (252, 1792),
        (392, 2044),
        (560, 560),
        (1036, 392),
    ),
    file_end="_{height}x{width}",
    lists_sizes="mineru",
    tiny={"depth": 3, "embed_dim": 64, "num_heads": 2, "mlp_ratio": 3, "hidden_size": 384, "patch_size": 8},
)
