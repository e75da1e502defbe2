"""Blocks that layers are made of: which weights each has, and its lowering to graph ops."""

from typing import TypeAlias

from .attention import Attention
from .mlp import Mlp

Block: TypeAlias = Attention | Mlp

__all__ = ["Attention", "Block", "Mlp"]
