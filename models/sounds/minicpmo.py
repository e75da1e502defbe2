"""The encoder of sounds of MiniCPM-o: Whisper's behind a mask, two Linears, and the mean of rows side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, Role, WeightEntry

from ..blocks.specs import specs_of
from ..blocks.speech_layers import WhisperKeys, linear, linear_weights, norm, norm_weights
from ..common.config_keys import Key, Only, read_keys
from ..common.config_rules import object_in
from ..common.errors import CompileError
from ..common.profiles import Profile
from ..graphs.speech_builder import HALVED, SpeechBuilder
from ..weights import speech_roles as roles
from ..weights.spec import LinearSpec, VectorSpec
from .tensors import encoder_tensors, pair_tensors, sound_convs, table_spec

_HERE, _PROJECTION = "apm", "audio_projection_layer.linear"
_WHAT = "the encoder of sounds of MiniCPM-o"

# Defaults are those of Whisper medium, which it is, where the class of transformers has others.
_KEYS: tuple[Key | Only, ...] = (
    Key("num_mel_bins", absent=80),
    Key("d_model", absent=1024),
    Key("encoder_layers", absent=24),
    Key("encoder_attention_heads", absent=16),
    Key("encoder_ffn_dim", absent=4096),
    Key("max_source_positions", absent=1500),
    Only("activation_function", "gelu"),
    Only("scale_embedding", False),
)
_OUTER: tuple[Key | Only, ...] = (Key("audio_pool_step", absent=2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundOfOmni(WhisperKeys):
    """Sizes of the encoder: the values of its keys, and the length of a row of the language model."""

    width: int

    def specs(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        hidden, rows = self["d_model"], self["max_source_positions"]
        tensors = {
            **encoder_tensors(_HERE, "layer_norm"),
            **pair_tensors(roles.PROJECTOR[0], f"{_PROJECTION}1"),
            **pair_tensors(roles.PROJECTOR[1], f"{_PROJECTION}2"),
        }
        specs = sound_convs(_HERE, self["num_mel_bins"], hidden, profile)
        specs.append(table_spec(roles.ENCODER_POSITIONS, f"{_HERE}.embed_positions.weight", (rows, hidden)))
        for layer in range(self["encoder_layers"]):
            specs += specs_of(self.layer.weights(), tensors, profile, layer)
        ends = [
            *norm_weights(roles.ENCODER_NORM, hidden),
            *linear_weights(roles.PROJECTOR[0], self.width, hidden),
            *linear_weights(roles.PROJECTOR[1], self.width, self.width),
        ]
        return specs + specs_of(ends, tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        return {}

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Features [1, mel, 2 S] and what rows see of each other, [1, 1, S, S] -> rows of a prompt."""
        builder = SpeechBuilder("encoder", profile.tensor_dtype, weights, profile.activations)
        rows, step = self["max_source_positions"], self["audio_pool_step"]
        features = builder.input("input_features", (1, self["num_mel_bins"], HALVED * rows))
        mask = builder.input("audio_attention_mask", (1, 1, rows, rows), role=Role("mask", None, 0))
        x = builder.rows_of_sound(features, self["d_model"])
        x = builder.repeated("Add", "encoder.embedded", x, builder.weight(roles.ENCODER_POSITIONS.name))
        for layer in range(self["encoder_layers"]):
            x = self.layer.lower(builder, x, layer, mask=mask)
        x = norm(builder, "encoder.normed", x, roles.ENCODER_NORM)
        x = builder.function("Relu", "encoder.bent", linear(builder, "encoder.projected", x, roles.PROJECTOR[0]))
        x = linear(builder, "encoder.of_prompt", x, roles.PROJECTOR[1])
        beside = builder.reshape("encoder.beside", x, (rows // step, step, self.width))
        means = builder.mean("encoder.means", builder.transpose("encoder.turned", beside, (0, 2, 1)))
        return builder.build({builder.reshape("audio_embeds", means, (1, rows // step, self.width)): None})


def read_omni_sound(raw: Mapping[str, Any], width: int) -> SoundOfOmni:
    """Reads the `audio_config` of a parsed `config.json`, of a language model with hidden states of `width`.

    Raises:
        CompileError: A value that is missing, malformed or not supported, or sizes that do not fit together.
    """
    section = object_in(raw, "audio_config")
    config = SoundOfOmni(values={**read_keys(_KEYS, section, _WHAT), **read_keys(_OUTER, raw, _WHAT)}, width=width)
    if config["d_model"] % config["encoder_attention_heads"]:
        raise CompileError(
            f"audio_config: d_model={config['d_model']} is not a multiple of "
            f"encoder_attention_heads={config['encoder_attention_heads']}"
        )
    if config["max_source_positions"] % config["audio_pool_step"]:
        raise CompileError(
            f"config.json: audio_pool_step={config['audio_pool_step']} does not divide the "
            f"{config['max_source_positions']} rows of audio_config.max_source_positions"
        )
    return config
