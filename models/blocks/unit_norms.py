"""Norms without a weight of their own, whose op takes ones."""

from __future__ import annotations

from ..model_config import ModelConfig
from .attention import attention_blocks
from .mamba import Mamba
from .mamba2 import Mamba2
from .nets import nets_of


def unit_norms(config: ModelConfig) -> set[int]:
    """Returns their lengths."""
    unit = [block for block in attention_blocks(config) if block.unit_values or (block.qk_norm and block.unit_heads)]
    heads = {block.head_dim or config.head_dim for block in unit}
    heads |= {each for net in nets_of(config).values() if isinstance(net, Mamba2) and (each := net.unit_norm)}
    heads |= {each for net in nets_of(config).values() if isinstance(net, Mamba) for each in net.unit_norms}
    whole = config.condition_size is not None or not (config.centred or config.norm_weight)
    return heads | {config.hidden_size} if whole else heads
