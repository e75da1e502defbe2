"""Towers as Gemma 4's.

A program cuts an image into patches, and says where each lies, which are padding, and which become one token. Or
images have one size, whose patches are all that the graph takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checkpoints.checkpoint import Checkpoint
from ...common.config_keys import Key, Only, positive, read_keys
from ...common.config_rules import vision_config
from ...common.errors import CompileError
from ...family import Tensors
from ...model_config import ModelConfig
from ...weights.roles import Role
from ..asked import Asked
from .plan import PooledPlan, pooled_plan
from .sizes import PooledSizes

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
    Key("use_clipped_linears", "flag", absent=False),
    Only("hidden_activation", "gelu_pytorch_tanh"),
    Only("attention_bias", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledTower:
    """The vision tower of a family, a `Tower`.

    Attributes:
        tensors: Where every weight comes from.
        tokens: Of an image at most, unless the user says otherwise.
        tiny: A `vision_config` for tests.
    """

    tensors: Mapping[Role, Tensors]
    tokens: int
    tiny: Mapping[str, Any]

    @property
    def images(self) -> str:
        return "any image, or images of one size"

    def plan(self, asked: Asked, raw: Mapping[str, Any], model: ModelConfig) -> PooledPlan:
        return pooled_plan(asked, self.read(raw, model.hidden_size, model.family.title))

    def store(self, folder: Path) -> Checkpoint:
        return Checkpoint(folder)

    def read(self, raw: Mapping[str, Any], width: int, title: str) -> PooledSizes:
        """Reads the sizes of the tower from a parsed `config.json`, of a language model with hidden states of `width`.

        Raises:
            CompileError: `vision_config` is missing, or a value is missing, malformed or not supported.
        """
        section = vision_config(raw, title)
        rope = section.get("rope_parameters") or {}
        if not isinstance(rope, Mapping) or rope.get("rope_type", "axial") != "axial":
            raise CompileError(f"vision_config: rope_parameters must be those of axial RoPE, got {rope!r:.80}")
        values = read_keys(_KEYS, section, f"the vision tower of {title}")
        values["rope_theta"] = positive("rope_theta", rope.get("rope_theta", 100.0))
        sizes = PooledSizes(tower=self, values=values, width=width)
        sizes.check()
        return sizes
