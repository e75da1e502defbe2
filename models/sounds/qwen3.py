"""The encoder of Qwen3-ASR and Qwen3-Omni: convolutions over chunks of a sound, then layers whose rows see a window."""

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
from ..common.config_rules import object_in
from ..common.errors import CompileError
from ..common.profiles import Profile
from ..common.rope import sinusoids
from ..graphs.speech_builder import SpeechBuilder
from ..graphs.values import Ref
from ..weights import speech_roles as roles
from ..weights.spec import LinearSpec, VectorSpec
from .frames import FRAMES_OF_30_S, check_frames
from .kind import SoundEncoder
from .tensors import conv_specs, encoder_tensors, pair_tensors

_STRIDE, _CONVS = 2, 3
_HIDDEN = 65504.0  # what is taken from the score of a row behind the sound
# Constants of the graph: [1, n] int32, [1, n], [1, rows, hidden] and [1, 1, 1, 1] of the tensor dtype.
_FRAMES, _ROWS, _POSITIONS = "encoder.frame_numbers", "encoder.row_numbers", "encoder.positions"
_CHUNK, _STEPS, _MORE, _PARTS = "encoder.chunk", "encoder.steps", "encoder.more", "encoder.parts"
_ONE, _MOST = "encoder.one", "encoder.most"

# Defaults are those of transformers.
_KEYS: tuple[Key | Only, ...] = (
    Key("num_mel_bins", absent=128),
    Key("encoder_layers", absent=24),
    Key("encoder_attention_heads", absent=16),
    Key("encoder_ffn_dim", absent=4096),
    Key("d_model", absent=1024),
    Key("output_dim", absent=3584),
    Key("n_window", absent=50),
    Key("n_window_infer", absent=800),
    Key("downsample_hidden_size", absent=480),
    Only("activation_function", "gelu"),
    Only("scale_embedding", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundConfig(KeyValues):
    """Sizes of the encoder.

    Attributes:
        frames: That its graph takes, [1, mel, frames].
        chunked: It takes one chunk at a time, zeros behind the sound, and is told where the rows of the sound begin
            and end.
    """

    frames: int
    chunked: bool = False

    def __post_init__(self) -> None:
        if self.frames == self.chunk and self.steps == 1:  # a mask of one number is no mask
            least = _STRIDE**_CONVS // 2 + 1
            raise CompileError(f"audio_config: n_window={self['n_window']} makes one row, expected {least} or more")

    @property
    def chunk(self) -> int:
        """Frames of a chunk, which the convolutions see alone."""
        return 2 * int(self["n_window"])

    @property
    def steps(self) -> int:
        """Rows of a chunk."""
        return -(-self.chunk // _STRIDE**_CONVS)

    @property
    def rows(self) -> int:
        """Of the result."""
        return self.steps * self.frames // self.chunk

    @property
    def file_end(self) -> str:
        return "audio" if self.chunked else "encode"

    @property
    def windows(self) -> tuple[int, int]:
        """How many there are, and the rows of each; the last may have rows behind the sound's."""
        each = min(self.steps * self["n_window_infer"] // self.chunk, self.rows)
        return -(-self.rows // each), each

    @property
    def layer(self) -> EncoderLayer:
        """The blocks of a layer."""
        heads, inner = self["encoder_attention_heads"], self["encoder_ffn_dim"]
        return encoder_layer(self["d_model"], heads, inner, k_bias=True)

    @property
    def bands(self) -> int:
        """Frequencies behind the convolutions."""
        bands = self["num_mel_bins"]
        for _ in range(_CONVS):
            bands = -(-bands // _STRIDE)
        return int(bands)

    def specs(self, profile: Profile, names: Collection[str]) -> list[LinearSpec | VectorSpec]:
        """As `Sound.specs`; names of tensors begin with `thinker.` in files of Qwen, unlike those of transformers."""
        here, projector = "model.audio_tower", "model.multi_modal_projector.linear_"
        if any(name.startswith("thinker.") for name in names):
            here, projector = "thinker.audio_tower", "thinker.audio_tower.proj"
        hidden, channels = self["d_model"], self["downsample_hidden_size"]
        tensors = {
            **pair_tensors(roles.CONV_OUT, f"{here}.conv_out"),
            **encoder_tensors(here, "ln_post"),
            **pair_tensors(roles.PROJECTOR[0], f"{projector}1"),
            **pair_tensors(roles.PROJECTOR[1], f"{projector}2"),
        }
        specs: list[LinearSpec | VectorSpec] = []
        for number, conv in enumerate(roles.CONVS, 1):
            shape = (channels, channels if number > 1 else 1, 3, 3)
            specs += conv_specs(conv, f"{here}.conv2d{number}", shape, profile)
        out = linear_weights(roles.CONV_OUT, hidden, channels * self.bands, bias=False)
        specs += specs_of(out, tensors, profile, None)
        for layer in range(self["encoder_layers"]):
            specs += specs_of(self.layer.weights(), tensors, profile, layer)
        ends = [
            *norm_weights(roles.ENCODER_NORM, hidden),
            *linear_weights(roles.PROJECTOR[0], hidden, hidden),
            *linear_weights(roles.PROJECTOR[1], self["output_dim"], hidden),
        ]
        return specs + specs_of(ends, tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        count, each = self.windows
        numbers = {_CHUNK: self.chunk, _STEPS: self.steps, _MORE: _STRIDE**_CONVS - 1, _PARTS: _STRIDE**_CONVS}
        return {
            _FRAMES: np.arange(self.frames, dtype=np.int32)[None],
            _ROWS: np.arange(count * each, dtype=np.int32)[None],
            **{name: np.array([[number]], np.int32) for name, number in numbers.items()},
            _POSITIONS: sinusoids(np.arange(self.steps), self["d_model"])[None].astype(dtype),
            _ONE: np.ones((1, 1, 1, 1), dtype),
            _MOST: np.full((1, 1, 1, 1), _HIDDEN, dtype),
        }

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Features [1, mel, frames] and how many frames are the sound's -> rows of a prompt, [1, rows, width].

        Of a chunk: int32 [2], the ends of its rows -> [rows, width].
        """
        builder = SpeechBuilder("encoder", profile.tensor_dtype, weights, profile.activations)
        bins, hidden = self["num_mel_bins"], self["d_model"]
        chunks = self.frames // self.chunk
        x, told = _chunk(builder, self) if self.chunked else _sound(builder, self)
        x = builder.transpose(
            "encoder.chunks", builder.reshape("encoder.cut", x, (bins, chunks, self.chunk)), (1, 0, 2)
        )
        x = builder.reshape("encoder.planes", x, (chunks, 1, bins, self.chunk))
        for number, conv in enumerate(roles.CONVS, 1):
            x = builder.conv(f"encoder.conv{number}", x, conv.weight.name, conv.bias.name, (3, 3), (_STRIDE, _STRIDE))
            x = builder.function("Gelu", f"encoder.conv{number}_gelu", x)
        x = builder.transpose("encoder.turned", x, (0, 3, 1, 2))
        x = builder.reshape("encoder.flat", x, (self.rows, x.shape[2] * x.shape[3]))
        x = linear(builder, "encoder.conv_out", x, roles.CONV_OUT, bias=False)
        x = builder.reshape("encoder.steps_apart", x, (chunks, self.steps, hidden))
        x = builder.repeated("Add", "encoder.embedded", x, builder.weight(_POSITIONS))
        x = builder.reshape("encoder.rows", x, (self.rows, hidden))
        count, each = self.windows
        if count * each > self.rows:
            x = builder.padded("encoder.padded", x, count * each)
        mask = _mask(builder, self, told if self.chunked else _rows_of(builder, told))
        for layer in range(self["encoder_layers"]):
            x = self.layer.lower(builder, x, layer, count, mask)
        if count * each > self.rows:
            x = builder.first_rows("encoder.of_sound", x, self.rows)
        x = norm(builder, "encoder.normed", x, roles.ENCODER_NORM)
        x = builder.function(
            "Gelu", "encoder.projected_gelu", linear(builder, "encoder.projected", x, roles.PROJECTOR[0])
        )
        if self.chunked:
            return builder.build({linear(builder, "audio_embeds", x, roles.PROJECTOR[1]): None})
        x = builder.reshape("encoder.last", x, (1, self.rows, hidden))
        return builder.build({linear(builder, "hidden_state", x, roles.PROJECTOR[1]): None})


def read_sound(raw: Mapping[str, Any], frames: int | None, width: int) -> SoundConfig | None:
    """As `SoundEncoder.read`."""
    values = _read_values(raw, width, "the encoder of Qwen3-ASR")
    if values is None:
        return None
    config = SoundConfig(values=values, frames=frames or FRAMES_OF_30_S)
    check_frames(config.frames, config.chunk, "a chunk")
    return config


def read_chunk(raw: Mapping[str, Any], frames: int | None, width: int) -> SoundConfig | None:
    """As `read_sound`, of Qwen3-Omni, whose programs hand over one chunk after the other: `frames` are those of it."""
    values = _read_values(raw, width, "the encoder of Qwen3-Omni")
    return None if values is None else SoundConfig(values=values, frames=2 * values["n_window"], chunked=True)


def _read_values(raw: Mapping[str, Any], width: int, title: str) -> Mapping[str, Any] | None:
    whole = raw.get("thinker_config") or raw
    if not isinstance(whole, Mapping) or whole.get("audio_config") is None:
        return None
    section = object_in(whole, "audio_config")
    values = read_keys(_KEYS, section, title)
    if values["d_model"] % values["encoder_attention_heads"] or values["d_model"] % 2 or values["d_model"] < 4:
        raise CompileError(
            f"audio_config: d_model={values['d_model']} must be even and a multiple of "
            f"encoder_attention_heads={values['encoder_attention_heads']}"
        )
    if values["output_dim"] != width:
        raise CompileError(
            f"audio_config: output_dim={values['output_dim']}, but the language model's hidden_size is {width}"
        )
    if values["n_window_infer"] % (chunk := 2 * values["n_window"]):
        raise CompileError(
            f"audio_config: n_window_infer={values['n_window_infer']} is not a multiple of a chunk of {chunk}"
        )
    return values


def _chunk(builder: SpeechBuilder, config: SoundConfig) -> tuple[Ref, Ref]:
    """Adds the inputs of a chunk; returns its features, and how many rows are the sound's, int32 [1, 1]."""
    features = builder.input("padded_feature", (1, config["num_mel_bins"], config.frames))
    ends = builder.reshape("encoder.ends", builder.input("cu_seqlens", (2,), "int32"), (1, 2))
    begin, end = (builder.part(f"encoder.{name}", ends, 1, at, at + 1) for at, name in enumerate(("begin", "end")))
    return features, builder.integers("Sub", "encoder.live_rows", end, begin)


def _sound(builder: SpeechBuilder, config: SoundConfig) -> tuple[Ref, Ref]:
    """Adds the inputs of a sound; returns its features, 0 behind its end, and its frames, int32 [1, 1]."""
    features = builder.input("input_features", (1, config["num_mel_bins"], config.frames))
    length = builder.reshape("encoder.length", builder.input("feature_lens", (1,), "int32"), (1, 1))
    inside = builder.integers("Less", "encoder.inside", builder.weight(_FRAMES), length)
    inside = builder.reshape(
        "encoder.inside_column", builder.floats("encoder.inside_numbers", inside), (1, 1, config.frames)
    )
    return builder.elementwise("Mul", "encoder.sound", features, inside), length


def _rows_of(builder: SpeechBuilder, length: Ref) -> Ref:
    """How many rows so many frames are.

    A chunk that is cut short has as many rows as halving its frames three times, rounded up, leaves.
    """

    def of(kind: str, name: str, a: Ref, b: str) -> Ref:
        return builder.integers(kind, f"encoder.{name}", a, builder.weight(b))

    whole = of("Div", "whole_chunks", length, _CHUNK)
    rest = builder.integers("Sub", "encoder.rest", length, of("Mul", "whole_frames", whole, _CHUNK))
    part = of("Div", "part_rows", of("Add", "rest_more", rest, _MORE), _PARTS)
    return builder.integers("Add", "encoder.live_rows", of("Mul", "whole_rows", whole, _STEPS), part)


def _mask(builder: SpeechBuilder, config: SoundConfig, rows: Ref) -> Ref:
    """[windows, 1, 1, rows of each]: 0 for rows of the sound, -65504 for those behind it."""
    count, each = config.windows
    live = builder.floats("encoder.live", builder.integers("Less", "encoder.is_live", builder.weight(_ROWS), rows))
    live = builder.reshape("encoder.live_windows", live, (count, 1, 1, each))
    dead = builder.elementwise("Sub", "encoder.dead", live, builder.weight(_ONE))
    return builder.elementwise("Mul", "encoder.mask", dead, builder.weight(_MOST))


QWEN3_ASR = SoundEncoder(read=read_sound, framed=True)
QWEN3_OMNI = SoundEncoder(read=read_chunk, framed=False)
