"""The towers of MiniCPM-V: SigLIP, and what makes tokens of its patches: windows in 4.6, a resampler in 4.5."""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Key, Only
from ..family import Tensors, plain, tensors_of
from ..tower_kinds.strip.sizes import Form
from ..tower_kinds.strip.tower import StripTower
from ..weights import encoder_roles as roles
from ..weights.roles import Role
from .siglip import ATTENTION, siglip_tensors

_MLP = ("pre_norm", "linear_1", "linear_2")  # of mergers


def _merger(found: tuple[tuple[Role, Role], ...], module: str) -> dict[Role, Tensors]:
    return tensors_of(dict(zip(found, _MLP, strict=True)), f"{module}.")


_TINY = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 100,
    "num_hidden_layers": 3,
    "image_size": 48,
    "patch_size": 6,
}

MINICPM_V_4_6 = StripTower(
    keys=(Only("window_kernel_size", [2, 2]),),
    outer=(
        Key("insert_layer_id", "layer", absent=6),
        Only("merge_kernel_size", [2, 2]),
        Only("merger_times", 1),
        Only("drop_vision_last_layer", False),
    ),
    tensors={
        **siglip_tensors("model.vision_tower"),
        **_merger(
            (
                (roles.STACK_NORM, roles.STACK_NORM_BIAS),
                (roles.STACK_UP, roles.STACK_UP_BIAS),
                (roles.STACK_DOWN, roles.STACK_DOWN_BIAS),
            ),
            "model.vision_tower.vit_merger",
        ),
        **_merger(
            (
                (roles.MERGER_NORM, roles.MERGER_NORM_BIAS),
                (roles.MERGER_UP, roles.MERGER_UP_BIAS),
                (roles.MERGER_DOWN, roles.MERGER_DOWN_BIAS),
            ),
            "model.merger.mlp.0",
        ),
    },
    window_tensors=tensors_of(ATTENTION, "model.vision_tower.vit_merger."),
    forms=(Form("16x", windowed=True), Form("4x")),
    mask="pre_attention_bias",
    resampled=False,
    capacity=1536,
    tiny=_TINY,
)

MINICPM_V_4_5 = StripTower(
    keys=(
        Key("hidden_size", absent=1152),
        Key("intermediate_size", absent=4304),
        Key("num_hidden_layers", absent=27),
        Key("num_attention_heads", absent=16),
        Key("image_size", absent=980),
        Key("patch_size", absent=14),
    ),
    outer=(Key("query_num", absent=64), Only("drop_vision_last_layer", False)),
    tensors={
        **siglip_tensors("vpm"),
        **tensors_of(
            {
                (roles.QUERY_NORM, roles.QUERY_NORM_BIAS): "ln_q",
                (roles.WIDE_NORM, roles.WIDE_NORM_BIAS): "ln_kv",
                (roles.SAMPLE_NORM, roles.SAMPLE_NORM_BIAS): "ln_post",
                (roles.SAMPLE_OUT, roles.SAMPLE_OUT_BIAS): "attn.out_proj",
            },
            "resampler.",
        ),
        **{
            role: plain(f"resampler.attn.in_proj_{what}:{part}")  # a third of its rows
            for part, pair in zip(
                "qkv",
                (
                    (roles.SAMPLE_Q, roles.SAMPLE_Q_BIAS),
                    (roles.SAMPLE_K, roles.SAMPLE_K_BIAS),
                    (roles.SAMPLE_V, roles.SAMPLE_V_BIAS),
                ),
                strict=True,
            )
            for role, what in zip(pair, ("weight", "bias"), strict=True)
        },
        roles.QUERIES: plain("resampler.query"),
        roles.WIDEN: plain("resampler.kv_proj.weight"),
        roles.PROJECT: plain("resampler.proj:turned"),  # it is what rows are multiplied by
    },
    window_tensors={},
    forms=(Form("1x"), Form("6x", frames=6)),
    mask="attention_bias",
    resampled=True,
    capacity=1600,
    tiny=_TINY,
)

# MiniCPM-o 2.6 has the tower of MiniCPM-V 2.6, which is that of 4.5 for one image.
MINICPM_O_2_6 = replace(
    MINICPM_V_4_5,
    forms=(Form(""),),
    mask="attention_mask",
    sample_mask="resampler_key_padding_mask",
    output="hidden_state",
    for_torch=True,
)
