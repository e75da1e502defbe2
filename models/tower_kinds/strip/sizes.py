"""Sizes of a tower whose patches lie in a strip, its graphs, and what its layers are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...blocks.encoder import EncoderAttention, EncoderMlp, Norm
from ...blocks.merger import Merger
from ...blocks.resampler import Resampler
from ...common.errors import CompileError
from ...weights import encoder_roles as roles
from ..sizes import TowerSizes

if TYPE_CHECKING:
    from .tower import StripTower

WINDOW = 4  # patches of a window: two rows of two
_RESAMPLER_HEAD = 128


@dataclass(frozen=True, slots=True)
class Form:
    """One of the graphs of a tower.

    Attributes:
        end: What the name of its file ends in, behind `_visual_`; empty where it is `_visual`.
        frames: Images that it sees at a time, each by itself until they are resampled.
        windowed: Windows of patches become one each on the way.
    """

    end: str
    frames: int = 1
    windowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StripSizes(TowerSizes):
    """Sizes of a tower, and what follows from them."""

    tower: StripTower

    @property
    def side(self) -> int:
        """Learned positions along a side of an image."""
        return int(self["image_size"] // self["patch_size"])

    @property
    def norm(self) -> Norm:
        """Of the layers."""
        return Norm(centred=True, epsilon=self["layer_norm_eps"])

    @property
    def layer(self) -> tuple[EncoderAttention, EncoderMlp]:
        """The blocks of every layer."""
        return (
            EncoderAttention(
                hidden=self.hidden,
                heads=self["num_attention_heads"],
                norm=self.norm,
                windowed=self.tower.for_torch,  # the mask says of each patch what it sees
                turned=False,
            ),
            EncoderMlp(hidden=self.hidden, inner=self["intermediate_size"], norm=self.norm, function="GeluTanh"),
        )

    @property
    def windows(self) -> tuple[EncoderAttention, Merger]:
        """What makes a patch of each window: attention, which is one more layer behind the last, and a merger."""
        heads = self["num_attention_heads"]
        return (
            EncoderAttention(hidden=self.hidden, heads=heads, norm=self.norm, windowed=True, turned=False),
            Merger(
                hidden=self.hidden,
                tokens=WINDOW,
                width=self.hidden,
                norm=self.norm,
                roles=roles.STACK,
                norm_behind=True,
                inner=WINDOW * self["intermediate_size"],
                function="GeluTanh",
                mean=True,
            ),
        )

    @property
    def merger(self) -> Merger:
        """What makes a token of each window in the end."""
        return Merger(
            hidden=self.hidden,
            tokens=WINDOW,
            width=self.width,
            norm=Norm(centred=True),
            roles=roles.MERGER,
            norm_behind=True,
        )

    @property
    def resampler(self) -> Resampler:
        """What makes tokens of all patches in the end."""
        return Resampler(
            hidden=self.hidden,
            width=self.width,
            queries=self["query_num"],
            heads=self.width // _RESAMPLER_HEAD,
            norm=Norm(centred=True),
        )

    def tokens(self, form: Form, capacity: int) -> int:
        """Of the language model, of images that fill a graph."""
        if self.tower.resampled:
            return int(self["query_num"])
        return capacity // (WINDOW**2 if form.windowed else WINDOW)

    def check(self) -> None:
        """Raises CompileError if sizes do not fit together or the language model."""
        heads = self["num_attention_heads"]
        if self.hidden % heads:
            raise CompileError(
                f"vision_config: hidden_size={self.hidden} is not a multiple of num_attention_heads={heads}"
            )
        if self["image_size"] % self["patch_size"]:
            raise CompileError(
                f"vision_config: image_size={self['image_size']} is not a multiple of patch_size={self['patch_size']}"
            )
        if self.tower.resampled and self.width % _RESAMPLER_HEAD:
            raise CompileError(
                f"config.json: hidden_size={self.width} is not a multiple of {_RESAMPLER_HEAD}, the width of a head of "
                "the vision tower's resampler"
            )
        if "insert_layer_id" in self.values and self["insert_layer_id"] >= self["num_hidden_layers"]:
            raise CompileError(
                f"config.json: insert_layer_id={self['insert_layer_id']} must be a layer of the vision tower, 0 to "
                f"{self['num_hidden_layers'] - 1}"
            )
