"""The graphs of Whisper, with the inputs and outputs of the vendor's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..blocks.speech_layers import norm
from ..common.profiles import Profile
from ..graphs.speech_builder import SpeechBuilder
from ..graphs.values import Ref
from ..weights import speech_roles as roles
from ..weights.roles import HEAD
from .whisper import WhisperConfig

_HIDDEN = -65504.0  # in a mask: a row that a token does not see
# Constants of the decoder: which token is which, from 1 on, [1, T]; which row, and how many, [rows, 1] and [1, 1]; and
# [1, 1, 1, 1] of the tensor dtype.
_TOKEN_NUMBERS, _ROW_NUMBERS, _ROWS = "decoder.tokens_of_{}", "decoder.row_numbers", "decoder.rows"
_ABOVE_HIDDEN, _LARGEST = "decoder.above_hidden", "decoder.largest"


def constants(dtype: str, rows: int) -> dict[str, NDArray[Any]]:
    """What the decoder's graphs need beside the weights, by name."""
    hidden, one = np.array(_HIDDEN, dtype), (1, 1, 1, 1)
    numbers = {_TOKEN_NUMBERS.format(tokens): np.arange(1, tokens + 1, dtype=np.int32)[None] for tokens in (1, 4)}
    return {
        **numbers,
        _ROW_NUMBERS: np.arange(rows, dtype=np.int32)[:, None],
        _ROWS: np.array([[rows]], np.int32),
        _ABOVE_HIDDEN: np.nextafter(hidden, np.array(0, dtype)).reshape(one),
        _LARGEST: (-hidden).reshape(one),
    }


def encoder_graph(
    config: WhisperConfig, profile: Profile, weights: Sequence[WeightEntry], *, keys_first: bool = False
) -> Graph:
    """Features [1, mel, frames] -> k and v, [1, heads, positions, head_dim], of the decoder's layers in turn.

    With `keys_first` all k come before all v, in the order of the decoder's inputs.
    """
    builder = SpeechBuilder("encoder", profile.tensor_dtype, weights, profile.activations)
    mel = builder.input("input_features", (1, config["num_mel_bins"], config.mel_frames))
    x = builder.rows_of_sound(mel, config["d_model"])
    x = builder.repeated("Add", "encoder.embedded", x, builder.weight(roles.ENCODER_POSITIONS.name))
    for layer in range(config["encoder_layers"]):
        x = config.layer.lower(builder, x, layer)
    x = norm(builder, "encoder.normed", x, roles.ENCODER_NORM)
    outputs = []
    for layer in range(config["decoder_layers"]):
        for which, name in (("k", "key_state"), ("v", "value_state")):
            name = f"{name}_{layer}"
            outputs.append(config.cross_attention.heads_of(builder, name, x, which, layer, result=name))
    return builder.build(dict.fromkeys(outputs[::2] + outputs[1::2] if keys_first else outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """Of the decoder: what layers share, and what each has of its own."""

    ids: Ref
    positions: Ref
    valid: Ref
    current: Ref
    self_mask: Ref
    encoder_mask: Ref
    keys: Sequence[Ref]
    values: Sequence[Ref]
    cross_keys: Sequence[Ref]
    cross_values: Sequence[Ref]


def decoder_graph(
    config: WhisperConfig, profile: Profile, weights: Sequence[WeightEntry], name: str, tokens: int, rows: int
) -> Graph:
    """Tokens [1, T] -> logits [1, T, V], and the caches [1, heads, rows, head_dim] with the tokens' k and v."""
    builder = SpeechBuilder(name, profile.tensor_dtype, weights, profile.activations)
    inputs = _inputs(builder, config, tokens, rows)
    x = builder.gather("decoder.tokens_rows", builder.weight(roles.TOKENS.name), _flat(builder, inputs.ids, "ids"), 0)
    places = _flat(builder, inputs.positions, "positions")
    x = builder.add(
        "decoder.embedded",
        x,
        builder.gather("decoder.positions_rows", builder.weight(roles.DECODER_POSITIONS.name), places, 0),
    )
    update = _update(builder, inputs, tokens, rows)
    hidden = builder.elementwise("Less", "decoder.mask_hidden", inputs.self_mask, builder.weight(_ABOVE_HIDDEN))
    most = builder.where("decoder.mask_most", hidden, inputs.self_mask, builder.weight(_LARGEST))
    keys, values = [], []
    for layer in range(config["decoder_layers"]):
        here, attention = f"decoder.layers.{layer}", config.self_attention
        normed = norm(builder, f"{here}.attn.norm", x, attention.roles.norm, layer)
        q, k, v = (attention.heads_of(builder, f"{here}.attn", normed, which, layer) for which in "qkv")
        keys.append(update.of(builder, f"newk_cache_{layer}", inputs.keys[layer], k))
        values.append(update.of(builder, f"newv_cache_{layer}", inputs.values[layer], v))
        turned = builder.transpose(f"{here}.attn.k_turned", keys[-1], (0, 1, 3, 2))
        scores = builder.add(f"{here}.attn.masked", builder.mat_mul(f"{here}.attn.scores", q, turned), inputs.self_mask)
        # What a hidden row gives must not count however large it is: caches begin with -65504.
        scores = builder.elementwise("Min", f"{here}.attn.seen", scores, most)
        x = attention.joined(builder, f"{here}.attn", scores, values[-1], x, layer)

        cross = config.cross_attention
        normed = norm(builder, f"{here}.cross.norm", x, cross.roles.norm, layer)
        q = cross.heads_of(builder, f"{here}.cross", normed, "q", layer)
        turned = builder.transpose(f"{here}.cross.k_turned", inputs.cross_keys[layer], (0, 1, 3, 2))
        scores = builder.mat_mul(f"{here}.cross.scores", q, turned)
        scores = builder.repeated("Add", f"{here}.cross.masked", scores, inputs.encoder_mask)
        x = cross.joined(builder, f"{here}.cross", scores, inputs.cross_values[layer], x, layer)
        x = config.decoder_mlp.lower(builder, f"{here}.mlp", x, layer)
    x = norm(builder, "decoder.normed", x, roles.DECODER_NORM)
    logits = builder.linear("logits", builder.reshape("decoder.last", x, (1, tokens, config["d_model"])), HEAD.name)
    return builder.build(dict.fromkeys((logits, *keys, *values)))


def _inputs(builder: SpeechBuilder, config: WhisperConfig, tokens: int, rows: int) -> _Inputs:
    attention, layers = config.self_attention, range(config["decoder_layers"])
    source = config["max_source_positions"]
    own, cross = (1, attention.heads, rows, attention.head_dim), (1, attention.heads, source, attention.head_dim)
    return _Inputs(
        ids=builder.input("decoder_input_ids", (1, tokens), "int32"),
        positions=builder.input("cache_position", (1, tokens), "int32"),
        valid=builder.input("past_len", (1,), "int32"),
        current=builder.input("current_len", (1,), "int32"),
        # Its exporter says mask_atten; programs in C++ look for a name with mask_attn in it.
        self_mask=builder.input("mask_attn", (1, attention.heads, tokens, rows), aliases=["mask_atten"]),
        encoder_mask=builder.input("encoder_attention_mask", (1, 1, 1, source)),
        keys=[builder.input(f"k_cache_{layer}", own) for layer in layers],
        values=[builder.input(f"v_cache_{layer}", own) for layer in layers],
        cross_keys=[builder.input(f"key_state_{layer}", cross) for layer in layers],
        cross_values=[builder.input(f"value_state_{layer}", cross) for layer in layers],
    )


def _flat(builder: SpeechBuilder, x: Ref, name: str) -> Ref:
    return builder.reshape(f"decoder.{name}_flat", x, (x.shape[1],))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """Which rows of a cache are new: not 0 in [1, 1, rows, 1]; and of several tokens the one that is for each row."""

    is_new: Ref
    token: Ref | None

    def of(self, builder: SpeechBuilder, name: str, cache: Ref, new: Ref) -> Ref:
        """The cache with rows of `new`, [1, heads, T, head_dim], in its own place if its output is bound there."""
        if self.token is not None:
            new = builder.gather(f"{name}.rows", new, self.token, 2)
        return builder.where(name, self.is_new, new, cache)


def _update(builder: SpeechBuilder, inputs: _Inputs, tokens: int, rows: int) -> _Update:
    """Tokens from the current length on are padding, whose place is behind the caches, and so is one of no row."""
    numbers = builder.weight(_TOKEN_NUMBERS.format(tokens))
    current = builder.reshape("decoder.current", inputs.current, (1, 1))
    padding = builder.integers("Less", "decoder.padding", current, numbers)
    behind = builder.integers("Mul", "decoder.behind", padding, builder.weight(_ROWS))
    places = builder.integers("Max", "decoder.places", inputs.positions, behind)
    found = builder.integers("Equal", "decoder.found", builder.weight(_ROW_NUMBERS), places)
    token = None
    if tokens > 1:  # of several tokens for a row the last; of none the number 0, whose token does not matter
        found = builder.largest_integer("decoder.newest", builder.integers("Mul", "decoder.numbered", found, numbers))
        before = builder.integers("Sub", "decoder.token", found, builder.weight(_TOKEN_NUMBERS.format(1)))
        token = builder.reshape("decoder.token_of_row", before, (rows,))
    is_new = builder.reshape("decoder.is_new", builder.floats("decoder.new_rows", found), (1, 1, rows, 1))
    return _Update(is_new=is_new, token=token)
