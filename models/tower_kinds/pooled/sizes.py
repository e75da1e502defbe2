"""Sizes of a tower that pools patches, and what its layers are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...blocks.patch_layer import PatchLayer
from ...common.errors import CompileError
from ..sizes import TowerSizes

if TYPE_CHECKING:
    from .tower import PooledTower


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledSizes(TowerSizes):
    """Sizes of a tower, and what follows from them."""

    tower: PooledTower

    @property
    def pooled(self) -> int:
        """Patches of a token."""
        return int(self["pooling_kernel_size"] ** 2)

    @property
    def layer(self) -> PatchLayer:
        """The block of every layer."""
        return PatchLayer(
            hidden=self.hidden,
            heads=self["num_attention_heads"],
            head_dim=self["head_dim"],
            inner=self["intermediate_size"],
            epsilon=self["rms_norm_eps"],
            clipped=self["use_clipped_linears"],
        )

    def check(self) -> None:
        """Raises CompileError if sizes do not fit together."""
        heads, kv_heads, head_dim = self["num_attention_heads"], self["num_key_value_heads"], self["head_dim"]
        if heads != kv_heads:
            raise CompileError(
                f"vision_config: num_key_value_heads={kv_heads} is not supported, expected num_attention_heads={heads}"
            )
        if head_dim % 4:
            raise CompileError(
                f"vision_config: head_dim={head_dim} must be a multiple of 4: a half of a head turns by the column, a "
                "half by the row"
            )
