"""Towers as SigLIP's.

Patches lie side by side in a strip, whatever the image is like, and a program says where in the image each lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checkpoints.checkpoint import Checkpoint
from ...common.config_keys import Key, Only, read_keys
from ...common.config_rules import vision_config
from ...family import Tensors
from ...model_config import ModelConfig
from ...weights.roles import Role
from ..asked import Asked
from .plan import StripPlan, strip_plan
from .sizes import Form, StripSizes
from .tensors import StripTensors

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
class StripTower:
    """The vision tower of a family, a `Tower`.

    Attributes:
        keys: Of `vision_config`, beside those that all towers of this kind have.
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

    @property
    def images(self) -> str:
        return "any image, in slices"

    def plan(self, asked: Asked, raw: Mapping[str, Any], model: ModelConfig) -> StripPlan:
        return strip_plan(asked, self.read(raw, model.hidden_size, model.family.title))

    def store(self, folder: Path) -> Checkpoint:
        return StripTensors(folder)

    def read(self, raw: Mapping[str, Any], width: int, title: str) -> StripSizes:
        """Reads the sizes of the tower from a parsed `config.json`, of a language model with hidden states of `width`.

        Raises:
            CompileError: `vision_config` is missing, or a value is missing, malformed or not supported.
        """
        section = vision_config(raw, title)
        what = f"the vision tower of {title}"
        values = {**read_keys((*_KEYS, *self.keys), section, what), **read_keys(self.outer, raw, what)}
        sizes = StripSizes(tower=self, values=values, width=width)
        sizes.check()
        return sizes
