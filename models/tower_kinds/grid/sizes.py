"""Sizes of a tower whose patches lie in a grid, and what its layers are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...blocks.encoder import EncoderAttention, EncoderMlp, Norm
from ...blocks.merger import GatedMerger, Merger
from ...common.errors import CompileError
from ...weights import encoder_roles as roles
from ..sizes import TowerSizes

if TYPE_CHECKING:
    from .tower import GridTower


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSizes(TowerSizes):
    """Sizes of a tower, and what follows from them."""

    tower: GridTower

    @property
    def merged(self) -> int:
        """Patches of a token."""
        return int(self["spatial_merge_size"]) ** 2

    @property
    def cell(self) -> int:
        """Pixels of a token's side."""
        return int(self["patch_size"] * self["spatial_merge_size"])

    @property
    def patch_inputs(self) -> int:
        """Numbers of a patch: colours, frames, rows and columns."""
        return int(3 * self["temporal_patch_size"] * self["patch_size"] ** 2)

    @property
    def head_dim(self) -> int:
        return int(self.hidden // self["num_heads"])

    @property
    def stacked(self) -> tuple[int, ...]:
        """Layers whose results have an output of their own."""
        return tuple(self.values.get("deepstack_visual_indexes", ()))

    @property
    def windowed(self) -> bool:
        """Whether some layers have windows."""
        return "window_size" in self.values

    @property
    def window_side(self) -> int:
        """Tokens of a window's side."""
        return max(1, self["window_size"] // self.cell)

    def layer(self, layer: int) -> tuple[EncoderAttention, EncoderMlp]:
        """The blocks of a layer."""
        hidden, norm = self.hidden, self.norm
        windowed = self.windowed and layer not in self["fullatt_block_indexes"]
        return (
            EncoderAttention(
                hidden=hidden,
                heads=self["num_heads"],
                norm=norm,
                windowed=windowed,
                head_norm=norm if self.tower.head_norms else None,
            ),
            EncoderMlp(
                hidden=hidden,
                inner=self["intermediate_size"],
                norm=norm,
                function=self.tower.function,
                steepness=self.tower.steepness,
            ),
        )

    @property
    def norm(self) -> Norm:
        """That of the layers."""
        norm = self.tower.norm
        return replace(norm, epsilon=self.values.get("rms_norm_eps", norm.epsilon))

    def merger(self, stacked: bool = False) -> Merger | GatedMerger:
        """What makes tokens of the language model of patches, in the end or of a stacked layer."""
        if self.tower.merger_growth is not None:
            assert self.tower.merger_norm is not None
            width, norm = self.width, self.tower.merger_norm
            inner = self.tower.merger_growth * width
            return GatedMerger(hidden=self.hidden, tokens=self.merged, width=width, norm=norm, inner=inner)
        return Merger(
            hidden=self.hidden,
            tokens=self.merged,
            width=self.width,
            norm=self.tower.merger_norm or self.norm,
            roles=roles.STACK if stacked else roles.MERGER,
            norm_behind=stacked,
        )

    def check(self) -> None:
        """Raises CompileError if sizes do not fit together or the language model."""
        if self.hidden % self["num_heads"] or self.head_dim % 4:
            raise CompileError(
                f"vision_config: hidden_size={self['hidden_size']} makes heads of "
                f"{self['hidden_size'] / self['num_heads']:g} with num_heads={self['num_heads']}, expected a multiple "
                "of 4: a half of a head turns by the row, a half by the column"
            )
        if self["out_hidden_size"] != self.width:
            raise CompileError(
                f"vision_config: out_hidden_size={self['out_hidden_size']}, but the language model's "
                f"hidden_size is {self.width}"
            )
        table = self.values.get("num_position_embeddings", 1)
        if math.isqrt(table) ** 2 != table:
            raise CompileError(f"vision_config: num_position_embeddings={table} is no square, as a table of places is")
        if list(self.stacked) != sorted(set(self.stacked)):
            raise CompileError(
                f"vision_config: deepstack_visual_indexes must name layers in order, got {list(self.stacked)}"
            )
        for key in ("deepstack_visual_indexes", "fullatt_block_indexes"):
            outside = [layer for layer in self.values.get(key, ()) if layer >= self["depth"]]
            if outside:
                raise CompileError(f"vision_config: {key} names layer {outside[0]}, of {self['depth']}")
