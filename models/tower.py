"""What the vision tower of a family is to the compiler: one frozen record beside the family's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .blocks.encoder import EncoderAttention, EncoderMlp, Norm
from .blocks.merger import GatedMerger, Merger
from .common import encoder_roles as roles
from .common.config_keys import Key, Only, positive, read_keys
from .common.config_rules import vision_config
from .common.errors import CompileError
from .common.roles import Role
from .family import Tensors

MERGER_ROLES = (
    roles.MERGER_NORM,
    roles.MERGER_NORM_BIAS,
    roles.MERGER_UP,
    roles.MERGER_UP_BIAS,
    roles.MERGER_DOWN,
    roles.MERGER_DOWN_BIAS,
)
STACK_ROLES = (
    roles.STACK_NORM,
    roles.STACK_NORM_BIAS,
    roles.STACK_UP,
    roles.STACK_UP_BIAS,
    roles.STACK_DOWN,
    roles.STACK_DOWN_BIAS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """The vision tower of a family.

    Attributes:
        takes: What a graph is made for: images of one size, these as patches that the program has cut, or any image of
            up to so many tokens, a gear.
        keys: Of `vision_config`, beside those that all towers have.
        norm: Of every norm.
        function: Of the MLPs, an op; None for silu of a gate.
        steepness: As `EncoderMlp.steepness`.
        patch_bias: The patch embedding has a bias.
        learned: Patches have learned positions, a square table that is resized to the grid of an image.
        centred: Its cells lie in the image as the patches do, so that it reaches to the edges; otherwise the first and
            the last of a side lie where the first and the last patch do.
        tensors: Where every weight comes from, without what the names of all vision tensors begin with.
        mean: Of colours, each 0 to 1, which a graph for images of one size subtracts; None where it takes the numbers
            of the processor.
        deviation: By which it then divides.
        framed: An image is so many frames of a video as `temporal_patch_size` says, otherwise one.
        last_norm: There is a norm behind the last layer.
        merger_norm: That of the merger, where it is another.
        merger_growth: Of a merger with a gate, how many times as wide it is as a token; None for one without.
        head_norms: Heads of q and k have norms.
        gears: Of one that takes any image, in tokens, unless the user says otherwise.
        sizes: Of one that takes cut images, height and width in pixels, likewise.
        file_end: What names of graphs for images of one size end in, with the size and the frames of a patch in it.
        lists_sizes: Programs look for a file that lists them.
        usual_keys: Makes the keys of the other towers of a `vision_config` that spells them in another way.
        tiny: A `vision_config` for tests, of a model that is as wide as the family's tiny one.
    """

    takes: Literal["image", "cut", "gear"]
    keys: tuple[Key | Only, ...]
    norm: Norm
    function: str | None
    patch_bias: bool
    learned: bool
    tensors: Mapping[Role, Tensors]
    tiny: Mapping[str, Any]
    centred: bool = False
    mean: tuple[float, float, float] | None = (0.5, 0.5, 0.5)
    deviation: tuple[float, float, float] = (0.5, 0.5, 0.5)
    gears: tuple[int, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    file_end: str = ""
    lists_sizes: bool = False
    steepness: float = 1.0
    usual_keys: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    framed: bool = True
    last_norm: bool = False
    merger_norm: Norm | None = None
    merger_growth: int | None = None
    head_norms: bool = False

    def read(self, raw: Mapping[str, Any], width: int, title: str) -> TowerConfig:
        """Reads the `vision_config` of a parsed `config.json`, of a language model with hidden states of `width`.

        Raises:
            CompileError: It is missing, or a value is missing, malformed or not supported.
        """
        section = {"out_hidden_size": width, **self.usual_keys(vision_config(raw, title))}
        rope = section.get("rope_parameters") or {}
        if not isinstance(rope, Mapping):
            raise CompileError(f"vision_config: rope_parameters must be an object, got {rope!r:.40}")
        keys = read_keys((*_KEYS, *self.keys), section, f"the vision tower of {title}")
        values = {**keys, "rope_theta": positive("rope_theta", rope.get("rope_theta", 10000.0))}
        if not self.framed:
            values["temporal_patch_size"] = 1
        config = TowerConfig(tower=self, values=values)
        config.check(width)
        return config


_KEYS: tuple[Key | Only, ...] = (
    Key("depth"),
    Key("hidden_size"),
    Key("intermediate_size"),
    Key("num_heads"),
    Key("out_hidden_size"),
    Key("patch_size"),
    Key("spatial_merge_size", absent=2),
    Key("temporal_patch_size", absent=2),
    Only("in_channels", 3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerSizes:
    """What towers know of whose patches a program cuts: the values of their keys, and the language model's width."""

    values: Mapping[str, Any]
    width: int

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def hidden(self) -> int:
        """Width of a patch between the layers."""
        return int(self["hidden_size"])

    @property
    def patch_inputs(self) -> int:
        """Numbers of a patch."""
        return int(3 * self["patch_size"] ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerConfig:
    """Sizes of a tower: the values of its keys."""

    tower: Tower
    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

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
        return int(self["hidden_size"] // self["num_heads"])

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
        hidden, norm = self["hidden_size"], self.norm
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
            width, norm = self["out_hidden_size"], self.tower.merger_norm
            inner = self.tower.merger_growth * width
            return GatedMerger(hidden=self["hidden_size"], tokens=self.merged, width=width, norm=norm, inner=inner)
        return Merger(
            hidden=self["hidden_size"],
            tokens=self.merged,
            width=self["out_hidden_size"],
            norm=self.tower.merger_norm or self.norm,
            roles=STACK_ROLES if stacked else MERGER_ROLES,
            norm_behind=stacked,
        )

    def check(self, width: int) -> None:
        """Raises CompileError if sizes do not fit together or the language model."""
        if self["hidden_size"] % self["num_heads"] or self.head_dim % 4:
            raise CompileError(
                f"vision_config: hidden_size={self['hidden_size']} makes heads of "
                f"{self['hidden_size'] / self['num_heads']:g} with num_heads={self['num_heads']}, expected a multiple "
                "of 4: a half of a head turns by the row, a half by the column"
            )
        if self["out_hidden_size"] != width:
            raise CompileError(
                f"vision_config: out_hidden_size={self['out_hidden_size']}, but the language model's "
                f"hidden_size is {width}"
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
