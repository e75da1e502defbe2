"""Blocks that layers are made of: which weights each has, and its lowering to graph ops."""

from typing import TypeAlias

from .attention import Attention
from .deepstack import Deepstack
from .delta_net import DeltaNet
from .mlp import Mlp
from .moe import Moe

Block: TypeAlias = Attention | Deepstack | DeltaNet | Mlp | Moe

__all__ = ["Attention", "Block", "Deepstack", "DeltaNet", "Mlp", "Moe"]
