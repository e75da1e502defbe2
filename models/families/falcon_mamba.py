"""Falcon-Mamba: Mamba with norms without weights of what steps are made of, of B and of C."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Block
from ..common.config_keys import Key
from ..model_config import ModelConfig
from . import mamba


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return (replace(mamba.mamba_of(config), norms="unit", epsilon=config.flags["mixer_rms_eps"]),)


FAMILY = replace(
    mamba.FAMILY,
    model_type="falcon_mamba",
    architecture="FalconMambaForCausalLM",
    title="Falcon-Mamba",
    models="Falcon-Mamba 7B",
    has="as Mamba, with norms without weights of what steps are made of, of B and of C",
    keys=(*mamba.FAMILY.keys, Key("mixer_rms_eps", "number", absent=1e-6)),
    layer=_layer,
)
