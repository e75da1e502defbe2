"""What a vision tower as Gemma 4's is to the compiler: one frozen record beside the family's.

A program cuts an image into patches, and says where each lies, which are padding, and which become one token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .blocks.patch_layer import PatchLayer
from .common.config_keys import Key, Only, positive, read_keys
from .common.config_rules import vision_config
from .common.errors import CompileError
from .common.roles import Role
from .family import Tensors
from .tower import TowerSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTower:
    """The vision tower of a family.

    Attributes:
        tensors: Where every weight comes from.
        tokens: Of an image at most, unless the user says otherwise.
        tiny: A `vision_config` for tests.
    """

    tensors: Mapping[Role, Tensors]
    tokens: int
    tiny: Mapping[str, Any]
    takes: Literal["patches"] = "patches"

    def read(self, raw: Mapping[str, Any], width: int, title: str) -> PatchConfig:
        """Reads the sizes of the tower from a parsed `config.json`, of a language model with hidden states of `width`.

        Raises:
            CompileError: `vision_config` is missing, or a value is missing, malformed or not supported.
        """
        section = vision_config(raw, title)
        rope = section.get("rope_parameters") or {}
        if not isinstance(rope, Mapping) or rope.get("rope_type", "axial") != "axial":
            raise CompileError(f"vision_config: rope_parameters must be those of axial RoPE, got {rope!r:.80}")
        if section.get("use_clipped_linears"):
            raise CompileError(
                f"--vision: the Linears of this tower of {title} are clipped (use_clipped_linears), which is not "
                "supported; leave it out"
            )
        values = read_keys(_KEYS, section, f"the vision tower of {title}")
        values["rope_theta"] = positive("rope_theta", rope.get("rope_theta", 100.0))
        config = PatchConfig(tower=self, values=values, width=width)
        config.check()
        return config


# Defaults are those of transformers.
_KEYS: tuple[Key | Only, ...] = (
    Key("hidden_size", absent=768),
    Key("intermediate_size", absent=3072),
    Key("num_hidden_layers", absent=16),
    Key("num_attention_heads", absent=12),
    Key("num_key_value_heads", absent=12),
    Key("head_dim", absent=64),
    Key("rms_norm_eps", "number", absent=1e-6),
    Key("patch_size", absent=16),
    Key("pooling_kernel_size", absent=3),
    Key("position_embedding_size", absent=10240),
    Key("standardize", "flag", absent=False),
    Only("hidden_activation", "gelu_pytorch_tanh"),
    Only("attention_bias", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchConfig(TowerSizes):
    """Sizes of a tower, and what follows from them."""

    tower: PatchTower

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
