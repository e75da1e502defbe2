"""What a vision tower as SigLIP's is to the compiler: one frozen record beside the family's.

Its patches lie side by side in a strip, whatever the image is like, and a program says where in the image each lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .blocks.encoder import EncoderAttention, EncoderMlp, Norm
from .blocks.merger import Merger
from .blocks.resampler import Resampler
from .common.config_keys import Key, Only, read_keys
from .common.config_rules import vision_config
from .common.errors import CompileError
from .common.roles import Role
from .family import Tensors
from .tower import MERGER_ROLES, STACK_ROLES, TowerSizes

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
class StripTower:
    """The vision tower of a family.

    Attributes:
        keys: Of `vision_config`, beside those that all towers have.
        outer: Of `config.json` itself.
        tensors: Where every weight comes from.
        window_tensors: Those of the attention within windows; empty without windows.
        forms: The graphs.
        mask: Name of the input that is added to the scores of patches.
        sample_mask: Of the one that is added to those of the resampler.
        output: Of the output.
        for_torch: Inputs have the shapes that torch's attention takes: the mask of patches is [frames, 1, S, S], places
            are [S, frames, H], and the mask of the resampler is [frames, S].
        resampled: Learned queries take what they want of the patches; otherwise each window becomes a token.
        capacity: Patches of an image, unless the user says otherwise.
        tiny: A `vision_config` for tests.
    """

    keys: tuple[Key | Only, ...]
    outer: tuple[Key | Only, ...]
    tensors: Mapping[Role, Tensors]
    window_tensors: Mapping[Role, Tensors]
    forms: tuple[Form, ...]
    mask: str
    resampled: bool
    capacity: int
    sample_mask: str = "resampler_key_bias"
    output: str = "image_embeds"
    for_torch: bool = False
    tiny: Mapping[str, Any]
    takes: Literal["strip"] = "strip"

    def read(self, raw: Mapping[str, Any], width: int, title: str) -> StripConfig:
        """Reads the sizes of the tower from a parsed `config.json`, of a language model with hidden states of `width`.

        Raises:
            CompileError: `vision_config` is missing, or a value is missing, malformed or not supported.
        """
        section = vision_config(raw, title)
        what = f"the vision tower of {title}"
        values = {**read_keys((*_KEYS, *self.keys), section, what), **read_keys(self.outer, raw, what)}
        config = StripConfig(tower=self, values=values, width=width)
        config.check()
        return config


# Defaults are those of SigLIP's config in transformers.
_KEYS: tuple[Key | Only, ...] = (
    Key("hidden_size"),
    Key("intermediate_size"),
    Key("num_hidden_layers"),
    Key("num_attention_heads"),
    Key("image_size", absent=224),
    Key("patch_size", absent=16),
    Key("layer_norm_eps", "number", absent=1e-6),
    Only("num_channels", 3),
    Only("hidden_act", "gelu_pytorch_tanh"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripConfig(TowerSizes):
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
                roles=STACK_ROLES,
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
            roles=MERGER_ROLES,
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
