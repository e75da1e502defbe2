"""The encoder of sounds of Gemma 4 E2B and E4B: two convolutions, then layers of a conformer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..blocks import conformer
from ..blocks.conformer import ConformerLayer
from ..blocks.specs import specs_of
from ..blocks.weights import Weight
from ..common.config_keys import Key, KeyValues, Only, read_keys
from ..common.config_rules import object_in
from ..common.errors import CompileError
from ..common.profiles import Profile
from ..common.rope import sinusoids
from ..family import plain
from ..graphs.speech_builder import HALVED, SpeechBuilder
from ..graphs.values import Ref
from ..weights import encoder_roles as roles
from ..weights.roles import ones
from ..weights.spec import LinearSpec, VectorSpec
from ..weights.speech_roles import CONVS, pair
from .frames import FRAMES_OF_30_S, ROW, check_frames
from .kind import SoundEncoder
from .tensors import conv_specs

_TITLE = "the encoder of sounds of Gemma 4"
_TOWER = "model.audio_tower"
_SUBSAMPLE, _LAYER = f"{_TOWER}.subsample_conv_projection", f"{_TOWER}.layers.{{layer}}"
_BINS = 128
_FLOAT16_MOST = 65504.0  # a larger bound does nothing here
_CONVS = CONVS[:2]
_NORMS = tuple(pair("encoder", f"conv{number}.norm", "norm").weight for number in (1, 2))
_JOIN = pair("encoder", "join").weight
_OUT = pair("encoder", "out")

# Defaults are those of transformers.
_KEYS: tuple[Key | Only, ...] = (
    Key("hidden_size", absent=1024),
    Key("num_hidden_layers", absent=12),
    Key("num_attention_heads", absent=8),
    Key("subsampling_conv_channels", "sizes", absent=(128, 32)),
    Key("conv_kernel_size", absent=5),
    Key("residual_weight", "number", absent=0.5),
    Key("attention_chunk_size", absent=12),
    Key("attention_context_left", absent=13),
    Key("attention_context_right", "count", absent=0),
    Key("attention_logit_cap", "number", absent=50.0),
    Key("use_clipped_linears", "flag", absent=True),
    Key("rms_norm_eps", "number", absent=1e-6),
    Key("gradient_clipping", "number", absent=1e10),
    Key("output_proj_dims", absent=1536),
    Only("hidden_act", "silu"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaSound(KeyValues):
    """Sizes of the encoder.

    Attributes:
        frames: That its graph takes.
        width: Of the language model's hidden states.
    """

    frames: int
    width: int

    @property
    def file_end(self) -> str:
        return "audio"

    @property
    def rows(self) -> int:
        """Of the prompt."""
        return self.frames // HALVED**2

    @property
    def before(self) -> int:
        """Rows before a block that its first row may see."""
        return int(self["attention_context_left"]) - 1

    @property
    def layer(self) -> ConformerLayer:
        """The block of every layer."""
        block = self["attention_chunk_size"]
        return ConformerLayer(
            hidden=self["hidden_size"],
            heads=self["num_attention_heads"],
            rows=self.rows,
            block=block,
            seen=block + self.before + self["attention_context_right"],
            cap=self["attention_logit_cap"],
            taps=self["conv_kernel_size"],
            half=self["residual_weight"],
            epsilon=self["rms_norm_eps"],
            clipped=self["use_clipped_linears"],
        )

    def specs(self, profile: Profile, names: Collection[str]) -> list[LinearSpec | VectorSpec]:
        hidden, channels = self["hidden_size"], self["subsampling_conv_channels"]
        tensors = {
            **{norm: plain(f"{_SUBSAMPLE}.layer{at}.norm.weight") for at, norm in enumerate(_NORMS)},
            _JOIN: plain(f"{_SUBSAMPLE}.input_proj_linear.weight"),
            _OUT.weight: plain(f"{_TOWER}.output_proj.weight"),
            _OUT.bias: plain(f"{_TOWER}.output_proj.bias"),
            roles.EMBED: plain("model.embed_audio.embedding_projection.weight"),
            **self.layer.tensors(_LAYER),
        }
        specs: list[LinearSpec | VectorSpec] = []
        for at, (conv, norm) in enumerate(zip(_CONVS, _NORMS, strict=True)):
            shape = (channels[at], channels[at - 1] if at else 1, 3, 3)
            specs += conv_specs(conv, f"{_SUBSAMPLE}.layer{at}.conv", shape, profile)[:1]
            specs += specs_of([Weight(norm, (channels[at],))], tensors, profile, None)
        specs += specs_of([Weight(_JOIN, (hidden,), self._joined)], tensors, profile, None)
        for number in range(self["num_hidden_layers"]):
            specs += specs_of(self.layer.weights(), tensors, profile, number)
            specs.append(self.layer.kernel(_LAYER.format(layer=number), number))
        dims = self["output_proj_dims"]
        ends = [
            Weight(_OUT.weight, (dims,), hidden),
            Weight(_OUT.bias, (dims,)),
            Weight(roles.EMBED, (self.width,), dims),
        ]
        return specs + specs_of(ends, tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        layer = self.layer
        first = np.arange(layer.blocks)[:, None] * layer.block
        # Places beyond either end are hidden by the mask; any row will do there.
        rows = first + np.arange(layer.block)
        seen = first + np.arange(layer.seen) - self.before
        before = np.arange(layer.seen // 2, -1, -1)
        places = {conformer.ROWS: rows, conformer.SEEN: seen}
        last = self.rows - 1
        return {
            **{name: np.clip(numbers, 0, last).reshape(-1).astype(np.int32) for name, numbers in places.items()},
            conformer.POSITION_ROWS: np.arange(len(before), dtype=np.int32),
            conformer.POSITIONS: sinusoids(before, self["hidden_size"]).astype(dtype),
            conformer.NOTHING: np.zeros((1, 1, 1, 1), dtype),
            conformer.CAP: np.full(1, self["attention_logit_cap"], dtype),
            ones(self["output_proj_dims"]): np.ones(self["output_proj_dims"], np.float32),
        }

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Features [1, frames, bins], and which frames are sound -> rows of a prompt, and which of them are."""
        builder = SpeechBuilder("encoder", profile.tensor_dtype, weights, profile.activations)
        layer = self.layer
        features = builder.input("input_features", (1, self.frames, _BINS))
        sounding = builder.input("input_features_mask", (1, self.frames))
        mask = builder.input("audio_attention_mask", (1, 1, layer.blocks, layer.block, layer.seen))
        x = builder.reshape("encoder.mel", features, (1, 1, self.frames, _BINS))
        for at in range(len(_CONVS)):
            x = self._conv(builder, x, sounding, at)
            sounding = builder.every_second(("encoder.of_halves", "audio_embeds_mask")[at], sounding)
        x = builder.reshape("encoder.rows_of_channels", x, (1, self.rows, self._joined))
        x = builder.linear("encoder.joined", x, _JOIN.name)
        mask = builder.reshape("encoder.mask", mask, mask.shape[1:])
        for number in range(self["num_hidden_layers"]):
            x = layer.lower(builder, x, mask, number)
        x = builder.linear("encoder.out", x, _OUT.weight.name, _OUT.bias.name)
        x = builder.rms_norm("encoder.normed", x, ones(self["output_proj_dims"]), self["rms_norm_eps"])
        return builder.build({builder.linear("audio_embeds", x, roles.EMBED.name): None, sounding: None})

    @property
    def _joined(self) -> int:
        """Numbers of a row behind the convolutions."""
        return int(_BINS // HALVED**2 * self["subsampling_conv_channels"][1])

    def _conv(self, builder: SpeechBuilder, x: Ref, sounding: Ref, at: int) -> Ref:
        """[1, n, bins, channels], but [1, 1, n, bins] of the first -> half of the frames and bins."""
        here = f"encoder.conv{at + 1}"
        if at:
            x = builder.transpose(f"{here}.planes", x, (0, 3, 1, 2))
        frames = builder.reshape(f"{here}.sounding", sounding, (1, 1, x.shape[2], 1))
        x = builder.repeated("Mul", f"{here}.silenced", x, frames)
        x = builder.conv(here, x, _CONVS[at].weight.name, None, (3, 3), (HALVED, HALVED))
        x = builder.transpose(f"{here}.by_place", x, (0, 2, 3, 1))
        x = builder.layer_norm(f"{here}.normed", x, _NORMS[at].name, None, self["rms_norm_eps"])
        return builder.function("Relu", f"{here}.relu", x)


def read_sound(raw: Mapping[str, Any], frames: int | None, width: int) -> GemmaSound | None:
    """As `SoundEncoder.read`."""
    if raw.get("audio_config") is None:
        return None
    values, frames = read_keys(_KEYS, object_in(raw, "audio_config"), _TITLE), frames or FRAMES_OF_30_S
    hidden, heads, channels = values["hidden_size"], values["num_attention_heads"], values["subsampling_conv_channels"]
    if hidden % heads or hidden % 2:
        raise CompileError(f"audio_config: hidden_size={hidden} must be even, and a multiple of {heads} heads")
    # transformers makes rows of as many numbers as this says, for 128 bins.
    if len(channels) != len(_CONVS) or channels[0] != _BINS:
        raise CompileError(f"audio_config: subsampling_conv_channels={channels!r:.80}, expected two, the first {_BINS}")
    if (clip := values["gradient_clipping"]) < _FLOAT16_MOST:
        raise CompileError(
            f"audio_config: gradient_clipping={clip:g} is not supported, expected {_FLOAT16_MOST:g} or more"
        )
    if (cap := values["attention_logit_cap"]) > _FLOAT16_MOST:
        raise CompileError(
            f"audio_config: attention_logit_cap={cap:g} is not supported, expected {_FLOAT16_MOST:g} or less"
        )
    check_frames(frames, HALVED**2, ROW)
    return GemmaSound(values=values, frames=frames, width=width)


GEMMA4 = SoundEncoder(read=read_sound, framed=True)
