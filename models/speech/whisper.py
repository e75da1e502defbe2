"""Whisper, all sizes: what `config.json` says, and where every weight comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..blocks.specs import specs_of
from ..blocks.speech_layers import PlainMlp, Projections, WhisperKeys, norm_weights
from ..blocks.weights import Weight
from ..common.config_keys import Key, Only, read_keys
from ..common.errors import CompileError
from ..common.profiles import Profile
from ..family import Tensors
from ..sounds.tensors import attention_tensors, encoder_tensors, mlp_tensors, pair_tensors, sound_convs, table_spec
from ..weights import speech_roles as roles
from ..weights.roles import HEAD
from ..weights.spec import LinearSpec, VectorSpec

MODEL_TYPE, ARCHITECTURE = "whisper", "WhisperForConditionalGeneration"
PREFILL_TOKENS = 4  # start, language, task, no timestamps
_LEAST_CACHE = 1024  # rows of the vendor's caches of medium; those of large-v3-turbo have 1280

# Defaults are those of transformers, except that the sizes of a model must be given.
_KEYS: tuple[Key | Only, ...] = (
    Key("vocab_size"),
    Key("d_model"),
    Key("encoder_layers"),
    Key("encoder_attention_heads"),
    Key("encoder_ffn_dim"),
    Key("decoder_layers"),
    Key("decoder_attention_heads"),
    Key("decoder_ffn_dim"),
    Key("num_mel_bins", absent=80),
    Key("max_source_positions", absent=1500),
    Key("max_target_positions", absent=448),
    Key("tie_word_embeddings", "flag", absent=True),
    Only("activation_function", "gelu"),
    Only("scale_embedding", False),
)
_ENCODER, _DECODER = "model.encoder", "model.decoder"
_TOKENS = f"{_DECODER}.embed_tokens.weight"
TENSORS = {
    **encoder_tensors(_ENCODER, "layer_norm"),
    **attention_tensors(roles.SELF_ATTENTION, _DECODER, "self_attn"),
    **attention_tensors(roles.CROSS_ATTENTION, _DECODER, "encoder_attn"),
    **mlp_tensors(roles.DECODER_MLP, _DECODER),
    **pair_tensors(roles.DECODER_NORM, f"{_DECODER}.layer_norm"),
    HEAD: Tensors("tied", ("proj_out.weight",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperConfig(WhisperKeys):
    """Sizes of a model: the values of its keys."""

    @property
    def mel_frames(self) -> int:
        """Of a sound; the second convolution takes every second one."""
        return 2 * int(self["max_source_positions"])

    @property
    def cache_rows(self) -> int:
        """Of the vendor's caches, which have one for each hidden unit."""
        return max(_LEAST_CACHE, int(self["d_model"]))

    @property
    def self_attention(self) -> Projections:
        """Of the decoder's tokens to those before them."""
        return self._projections(roles.SELF_ATTENTION)

    @property
    def cross_attention(self) -> Projections:
        """Of the decoder's tokens to the sound, whose k and v the encoder's graph makes."""
        return self._projections(roles.CROSS_ATTENTION)

    @property
    def decoder_mlp(self) -> PlainMlp:
        """Of a layer of the decoder."""
        return PlainMlp(roles=roles.DECODER_MLP, hidden=self["d_model"], inner=self["decoder_ffn_dim"])

    def _projections(self, of: roles.AttentionRoles) -> Projections:
        return Projections(roles=of, hidden=self["d_model"], heads=self["decoder_attention_heads"])

    def specs(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        hidden = self["d_model"]
        specs = sound_convs(_ENCODER, self["num_mel_bins"], hidden, profile)
        for role, name, rows in (
            (roles.ENCODER_POSITIONS, f"{_ENCODER}.embed_positions.weight", self["max_source_positions"]),
            (roles.TOKENS, _TOKENS, self["vocab_size"]),
            (roles.DECODER_POSITIONS, f"{_DECODER}.embed_positions.weight", self["max_target_positions"]),
        ):
            specs.append(table_spec(role, name, (rows, hidden)))
        for layer in range(self["encoder_layers"]):
            specs += specs_of(self.layer.weights(), TENSORS, profile, layer)
        specs += specs_of(norm_weights(roles.ENCODER_NORM, hidden), TENSORS, profile, None)
        for layer in range(self["decoder_layers"]):
            weights = (*self.self_attention.weights(), *self.cross_attention.weights(), *self.decoder_mlp.weights())
            specs += specs_of(weights, TENSORS, profile, layer)
        ends = [*norm_weights(roles.DECODER_NORM, hidden), Weight(HEAD, (self["vocab_size"],), hidden)]
        return specs + specs_of(ends, TENSORS, profile, None, (_TOKENS,) if self["tie_word_embeddings"] else ())


def read_whisper(raw: Mapping[str, Any]) -> WhisperConfig:
    """Reads a parsed `config.json`.

    Raises:
        CompileError: A value that is missing, malformed or not supported, or sizes that do not fit together.
    """
    names = raw.get("architectures") or [ARCHITECTURE]
    if ARCHITECTURE not in names:
        raise CompileError(f"config.json: architectures={names!r:.80}; of Whisper this compiler takes {ARCHITECTURE}")
    config = WhisperConfig(values=read_keys(_KEYS, raw, "Whisper"))
    for part in ("encoder", "decoder"):
        heads = config[f"{part}_attention_heads"]
        if config["d_model"] % heads:
            raise CompileError(
                f"config.json: d_model={config['d_model']} is not a multiple of {part}_attention_heads={heads}"
            )
    return config
