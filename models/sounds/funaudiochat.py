"""What makes rows of a prompt for Fun-Audio-Chat: an encoder of sounds in chunks, and one of a group of codes.

The first is Whisper's with the positions of a chunk; a mask says which rows see each other. Pairs of its rows become
one by their mean, then groups of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, Role, WeightEntry

from ..blocks.specs import specs_of
from ..blocks.speech_layers import WhisperKeys, linear, linear_weights, norm, norm_weights
from ..common.config_keys import Key, Only, read_keys
from ..common.config_rules import object_in
from ..common.errors import CompileError
from ..common.profiles import Profile
from ..common.rope import sinusoids
from ..family import plain
from ..graphs.speech_builder import HALVED, SpeechBuilder
from ..graphs.values import Ref
from ..weights import speech_roles as roles
from ..weights.spec import LinearSpec, VectorSpec
from .tensors import encoder_tensors, pair_tensors, sound_convs, table_spec

_HERE, _GROUPS = "continuous_audio_tower", "audio_tower"
_WHAT = "the encoder of sounds of Fun-Audio-Chat"
_POSITIONS = "encoder.positions"  # a constant, [rows of a chunk, hidden]
_PAIR = 2

# Defaults are those of the published class.
_KEYS: tuple[Key | Only, ...] = (
    Key("num_mel_bins", absent=128),
    Key("encoder_layers", absent=32),
    Key("encoder_attention_heads", absent=20),
    Key("encoder_ffn_dim", absent=5120),
    Key("d_model", absent=1280),
    Key("n_window", absent=100),
    Key("output_dim", absent=3584),
    Key("group_size", absent=5),
    Key("codebook_size", absent=6565),
    Only("activation_function", "gelu"),
    Only("scale_embedding", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSound(WhisperKeys):
    """Sizes of the encoder: the values of its keys, and the chunks that its graph takes."""

    chunks: int

    @property
    def chunk_frames(self) -> int:
        """Frames of a chunk."""
        return int(HALVED * self["n_window"])

    @property
    def rows(self) -> int:
        """Of all chunks, those that see one another or not."""
        return int(self.chunks * self["n_window"])

    @property
    def codes(self) -> int:
        """How many codes the sound has, a pair of rows each."""
        return self.rows // _PAIR

    def specs(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        hidden, width = self["d_model"], self["output_dim"]
        tensors = {
            **encoder_tensors(_HERE, "ln_post"),
            **pair_tensors(roles.PROJECTOR[0], f"{_HERE}.proj"),
            roles.PROJECTOR[1].weight: plain(f"{_GROUPS}.continual_output_matching.weight"),
        }
        specs = sound_convs(_HERE, self["num_mel_bins"], hidden, profile)
        for layer in range(self["encoder_layers"]):
            specs += specs_of(self.layer.weights(), tensors, profile, layer)
        ends = [
            *norm_weights(roles.ENCODER_NORM, hidden),
            *linear_weights(roles.PROJECTOR[0], width, hidden),
            *linear_weights(roles.PROJECTOR[1], width, width, bias=False),
        ]
        return specs + specs_of(ends, tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        """What the graph needs beside the weights, by name: sines, then cosines, of each row of a chunk."""
        return {_POSITIONS: sinusoids(np.arange(self["n_window"]), self["d_model"]).astype(dtype)}

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Features of chunks, [chunks, mel, frames], and what of them is sound -> rows of a prompt."""
        builder = SpeechBuilder("encoder", profile.tensor_dtype, weights, profile.activations)
        chunks, frames, rows, codes = self.chunks, self.chunk_frames, self.rows, self.codes
        hidden, width, bins = self["d_model"], self["output_dim"], self["num_mel_bins"]
        # The vendor's graph has these two, and nothing in it reads them.
        builder.input("speech_ids", (1, codes), "int32")
        builder.input("audio_inputs_embeds", (1, codes, width))
        features = builder.input("padded_input_features", (chunks, bins, frames))
        of_frames = builder.input("chunk_padded_mask", (chunks, 1, frames))
        of_rows = builder.input("aftercnn_valid_mask", (chunks, self["n_window"], 1))
        mask = builder.input("audio_attention_mask", (1, 1, rows, rows), role=Role("mask", None, 0))
        of_codes = builder.input("continuous_audio_valid_mask", (1, codes, 1))

        x = builder.reshape("encoder.mel", features, (chunks, bins, 1, frames))
        x = self._conv(builder, x, 1, 1)
        x = builder.repeated(
            "Mul", "encoder.sounding", x, builder.reshape("encoder.of_frames", of_frames, (chunks, 1, 1, frames))
        )
        x = self._conv(builder, x, 2, HALVED)
        x = builder.reshape("encoder.columns", x, (chunks, hidden, self["n_window"]))
        x = builder.transpose("encoder.rows", x, (0, 2, 1))
        x = builder.repeated("Add", "encoder.embedded", x, builder.weight(_POSITIONS))
        x = builder.repeated("Mul", "encoder.valid", x, of_rows)
        x = builder.reshape("encoder.flat", x, (rows, hidden))
        valid = builder.reshape("encoder.of_rows", of_rows, (rows, 1))
        for layer in range(self["encoder_layers"]):
            x = self.layer.lower(builder, x, layer, mask=mask)
            x = builder.repeated("Mul", f"encoder.layers.{layer}.valid", x, valid)
        x = norm(builder, "encoder.normed", _means(builder, "encoder.pairs", x, _PAIR), roles.ENCODER_NORM)
        x = linear(builder, "encoder.projected", x, roles.PROJECTOR[0])
        x = builder.repeated("Mul", "encoder.codes", x, builder.reshape("encoder.of_codes", of_codes, (codes, 1)))
        x = _means(builder, "encoder.groups", x, self["group_size"])
        x = linear(builder, "encoder.matched", x, roles.PROJECTOR[1], bias=False)
        return builder.build({builder.reshape("audio_features", x, (1, *x.shape)): None})

    def _conv(self, builder: SpeechBuilder, x: Ref, number: int, stride: int) -> Ref:
        pair, name = roles.CONVS[number - 1], f"encoder.conv{number}"
        x = builder.conv(name, x, pair.weight.name, pair.bias.name, (1, 3), (1, stride))
        return builder.function("Gelu", f"{name}_gelu", x)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeGroup:
    """What makes one row of a group of codes."""

    codes: int
    group: int
    width: int

    @property
    def table(self) -> LinearSpec:
        """The embedding of codes, which programs read as well."""
        return table_spec(roles.TOKENS, f"{_GROUPS}.embed_tokens.weight", (self.codes, self.width))

    def specs(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        tensors = {roles.PROJECTOR[0].weight: plain(f"{_GROUPS}.output_matching.weight")}
        matching = list(linear_weights(roles.PROJECTOR[0], self.width, self.width, bias=False))
        return [self.table, *specs_of(matching, tensors, profile, None)]

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        return {}

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Codes [1, group] -> a row, [1, 1, width]."""
        builder = SpeechBuilder("audio_tower", profile.tensor_dtype, weights, profile.activations)
        ids = builder.input("speech_ids", (1, self.group), "int32")
        flat = builder.reshape("codes.flat", ids, (self.group,))
        x = builder.gather("codes.rows", builder.weight(roles.TOKENS.name), flat, 0)
        x = linear(
            builder, "codes.matched", _means(builder, "codes.group", x, self.group), roles.PROJECTOR[0], bias=False
        )
        return builder.build({builder.reshape("audio_features", x, (1, 1, self.width)): None})


def _means(builder: SpeechBuilder, name: str, x: Ref, count: int) -> Ref:
    """[n, H] -> [n / count, H]: the mean of so many rows side by side."""
    rows, width = x.shape[0] // count, x.shape[1]
    apart = builder.reshape(f"{name}.beside", x, (rows, count, width))
    means = builder.mean(f"{name}.means", builder.transpose(f"{name}.turned", apart, (0, 2, 1)))
    return builder.reshape(name, means, (rows, width))


def read_chat_sound(raw: Mapping[str, Any], frames: int, width: int) -> tuple[ChatSound, CodeGroup]:
    """Reads the `audio_config` of a parsed `config.json`, of a language model with hidden states of `width`.

    Raises:
        CompileError: A value that is missing, malformed or not supported, or sizes that do not fit together.
    """
    section = object_in(raw, "audio_config")
    values = read_keys(_KEYS, section, _WHAT)
    hidden, heads, group = values["d_model"], values["encoder_attention_heads"], values["group_size"]
    if hidden % heads:
        raise CompileError(f"audio_config: d_model={hidden} is not a multiple of encoder_attention_heads={heads}")
    if hidden % 2 or hidden < 4:
        raise CompileError(
            f"audio_config: d_model={hidden} must be even and 4 or more: positions are sines and cosines"
        )
    if values["output_dim"] != width:
        raise CompileError(
            f"audio_config: output_dim={values['output_dim']} must be the hidden_size={width} of text_config"
        )
    if values["n_window"] % _PAIR:
        raise CompileError(f"audio_config: n_window={values['n_window']} must be even: pairs of rows become one")
    chunk = HALVED * values["n_window"]
    if frames % chunk or (frames // (HALVED * _PAIR)) % group:
        raise CompileError(
            f"--audio-frames {frames}: expected whole chunks of {chunk} frames, and groups of {HALVED * _PAIR * group}"
        )
    sound = ChatSound(values=values, chunks=frames // chunk)
    return sound, CodeGroup(codes=values["codebook_size"], group=group, width=width)
