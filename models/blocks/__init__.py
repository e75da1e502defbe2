"""Blocks that layers are made of: which weights each has, and its lowering to graph ops."""

from typing import TypeAlias

from .attention import Attention
from .mlp import Mlp
from .moe import Moe

Block: TypeAlias = Attention | Mlp | Moe

__all__ = ["Attention", "Block", "Mlp", "Moe"]
