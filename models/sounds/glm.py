"""The encoder of GLM-ASR: Whisper's with rotary positions, whose rows become rows of a prompt, four side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..blocks.specs import specs_of
from ..blocks.speech_layers import EncoderLayer, encoder_layer, linear, linear_weights, norm, norm_weights
from ..common.config_keys import Key, KeyValues, Only, read_keys
from ..common.config_rules import object_in, read_rope, read_rotary_dim
from ..common.errors import CompileError
from ..common.profiles import Profile
from ..graphs.speech_builder import HALVED, SpeechBuilder
from ..graphs.values import Ref
from ..weights import speech_roles as roles
from ..weights.spec import LinearSpec, VectorSpec
from .frames import FRAMES_OF_30_S, ROW, check_frames
from .kind import SoundEncoder
from .tensors import attention_tensors, mlp_tensors, pair_tensors, sound_convs

_TITLE = "the encoder of GLM-ASR"
_ROTARY, _THETA = 0.5, 10000.0
# Constants of the graph: tables [rows, rotary / 2] of the tensor dtype, and the numbers of their rows, int32.
_COS, _SIN, _ROWS = "encoder.rope.cos", "encoder.rope.sin", "encoder.row_numbers"

# Defaults are those of transformers.
_KEYS: tuple[Key | Only, ...] = (
    Key("num_mel_bins", absent=128),
    Key("num_hidden_layers", absent=32),
    Key("num_attention_heads", absent=20),
    Key("hidden_size", absent=1280),
    Key("intermediate_size", absent=5120),
    Only("hidden_act", "gelu"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmSound(KeyValues):
    """Sizes of the encoder.

    Attributes:
        frames: That its graph takes, [1, mel, frames].
        width: Of the language model's hidden states.
        theta: Of RoPE.
        rotary: Elements of a head that turn, the first ones.
    """

    frames: int
    width: int
    theta: float
    rotary: int

    @property
    def file_end(self) -> str:
        return "encode"

    @property
    def rows(self) -> int:
        """That see one another."""
        return self.frames // HALVED

    @property
    def beside(self) -> int:
        """Rows that become one of the result."""
        return int(self["intermediate_size"] // self["hidden_size"])

    @property
    def layer(self) -> EncoderLayer:
        """The blocks of a layer."""
        return encoder_layer(self["hidden_size"], self["num_attention_heads"], self["intermediate_size"])

    def specs(self, profile: Profile, names: Collection[str]) -> list[LinearSpec | VectorSpec]:
        """As `Sound.specs`; names of tensors may begin with `model.`."""
        outer = "model." if any(name.startswith("model.audio_tower.") for name in names) else ""
        here, projector = f"{outer}audio_tower", f"{outer}multi_modal_projector.linear_"
        hidden, inner = self["hidden_size"], self["intermediate_size"]
        tensors = {
            **attention_tensors(roles.ENCODER_ATTENTION, here, "self_attn", norm="input_layernorm", out="o_proj"),
            **mlp_tensors(roles.ENCODER_MLP, here, norm="post_attention_layernorm", inside="mlp."),
            **pair_tensors(roles.ENCODER_NORM, f"{here}.norm"),
            **pair_tensors(roles.PROJECTOR[0], f"{projector}1"),
            **pair_tensors(roles.PROJECTOR[1], f"{projector}2"),
        }
        specs = sound_convs(here, self["num_mel_bins"], hidden, profile)
        for layer in range(self["num_hidden_layers"]):
            specs += specs_of(self.layer.weights(), tensors, profile, layer)
        ends = [
            *norm_weights(roles.ENCODER_NORM, hidden),
            *linear_weights(roles.PROJECTOR[0], 2 * self.width, inner),
            *linear_weights(roles.PROJECTOR[1], self.width, 2 * self.width),
        ]
        return specs + specs_of(ends, tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        waves = self.theta ** -(np.arange(0, self.rotary, 2) / self.rotary)
        angles = np.arange(self.rows)[:, None] * waves
        return {
            _COS: np.cos(angles).astype(dtype),
            _SIN: np.sin(angles).astype(dtype),
            _ROWS: np.arange(self.rows, dtype=np.int32),
        }

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Features [1, mel, frames] -> rows of a prompt, [1, rows / 4, width]. There is no mask: rows see silence."""
        builder = SpeechBuilder("encoder", profile.tensor_dtype, weights, profile.activations)
        bins, hidden = self["num_mel_bins"], self["hidden_size"]
        # Programs in C++ copy float32 into it, those in Python give float16.
        given = builder.input("input_features", (1, bins, self.frames), "float32")
        x = builder.rows_of_sound(builder.narrowed("encoder.narrowed", given), hidden)
        tables = self._table(builder, "cos", _COS), self._table(builder, "sin", _SIN)
        for layer in range(self["num_hidden_layers"]):
            x = self.layer.lower(builder, x, layer, tables=tables)
        x = norm(builder, "encoder.normed", x, roles.ENCODER_NORM)
        x = builder.reshape("encoder.beside", x, (1, self.rows // self.beside, self["intermediate_size"]))
        x = linear(builder, "encoder.projected", x, roles.PROJECTOR[0])
        x = builder.function("Gelu", "encoder.projected_gelu", x)
        return builder.build({linear(builder, "audio_embeds", x, roles.PROJECTOR[1]): None})

    def _table(self, builder: SpeechBuilder, name: str, table: str) -> Ref:
        rows = builder.gather(f"encoder.{name}_rows", builder.weight(table), builder.weight(_ROWS), 0)
        return builder.reshape(f"encoder.{name}", rows, (1, *rows.shape))


def read_sound(raw: Mapping[str, Any], frames: int | None, width: int) -> GlmSound | None:
    """As `SoundEncoder.read`."""
    if raw.get("audio_config") is None:
        return None
    section = object_in(raw, "audio_config")
    values, frames = read_keys(_KEYS, section, _TITLE), frames or FRAMES_OF_30_S
    read_keys((Only("projector_hidden_act", "gelu"),), raw, _TITLE)
    hidden, heads, inner = values["hidden_size"], values["num_attention_heads"], values["intermediate_size"]
    if hidden % heads:
        raise CompileError(f"audio_config: hidden_size={hidden} is not a multiple of num_attention_heads={heads}")
    if (given := section.get("num_key_value_heads")) not in (None, heads):
        raise CompileError(f"audio_config: num_key_value_heads={given!r} must be num_attention_heads={heads}")
    if inner % hidden:
        raise CompileError(f"audio_config: intermediate_size={inner} is not a multiple of hidden_size={hidden}")
    head_dim = hidden // heads
    if section.get("head_dim", head_dim) != head_dim:
        raise CompileError(f"audio_config: head_dim={section['head_dim']!r} must be hidden_size / heads={head_dim}")
    theta, scaling = read_rope(section, frames // HALVED, {}, _THETA, True)
    if scaling["rope_type"] != "default":
        raise CompileError(f"audio_config: rope_type={scaling['rope_type']!r} is not supported, expected 'default'")
    rotary = read_rotary_dim(section, scaling, _ROTARY, head_dim)
    config = GlmSound(values=values, frames=frames, width=width, theta=theta, rotary=rotary)
    check_frames(frames, HALVED * config.beside, ROW)
    return config


GLM_ASR = SoundEncoder(read=read_sound, framed=True)
