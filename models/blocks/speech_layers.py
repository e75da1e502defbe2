"""Layers of speech models, with centred norms and biases: attention among all rows, and an MLP of two Linears."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..common.config_keys import KeyValues
from ..graphs.encoder_builder import EncoderBuilder
from ..graphs.values import Ref
from ..weights.speech_roles import ENCODER_ATTENTION, ENCODER_MLP, AttentionRoles, MlpRoles, Pair
from .encoder import Norm
from .weights import Weight

Tables: TypeAlias = "tuple[Ref, Ref]"

_NORM = Norm(centred=True, epsilon=1e-5)


def norm_weights(pair: Pair, hidden: int) -> Iterator[Weight]:
    """Yields a norm's weight and bias."""
    return _NORM.weights(hidden, pair.weight, pair.bias)


def linear_weights(pair: Pair, outputs: int, inputs: int, scale: float = 1.0, bias: bool = True) -> Iterator[Weight]:
    """Yields a Linear's weight and bias, both multiplied by a number."""
    yield Weight(pair.weight, (outputs,), inputs, scale=scale)
    if bias:
        yield Weight(pair.bias, (outputs,), scale=scale)


def linear(
    builder: EncoderBuilder, name: str, x: Ref, pair: Pair, layer: int | None = None, *, bias: bool = True
) -> Ref:
    """The Linear of a pair of roles."""
    return builder.linear(name, x, pair.weight.name_of(layer), pair.bias.name_of(layer) if bias else None)


def norm(builder: EncoderBuilder, name: str, x: Ref, pair: Pair, layer: int | None = None) -> Ref:
    """The norm of a pair of roles."""
    return _NORM.lower(builder, name, x, (pair.weight, pair.bias), layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projections:
    """What attention is made of beside the scores.

    Attributes:
        roles: Of its weights.
        hidden: Length of a row.
        heads: How many there are; q is stored with the factor 1 / sqrt(head_dim).
        k_bias: k has a bias, as the others have.
    """

    roles: AttentionRoles
    hidden: int
    heads: int
    k_bias: bool = False

    @property
    def head_dim(self) -> int:
        """Length of a row of one head."""
        return self.hidden // self.heads

    def weights(self, *, kv: bool = True) -> Iterator[Weight]:
        """Yields the weights in the order of use; k and v may be another graph's."""
        hidden, roles = self.hidden, self.roles
        yield from norm_weights(roles.norm, hidden)
        yield from linear_weights(roles.q, hidden, hidden, 1 / math.sqrt(self.head_dim))
        if kv:
            yield from self.kv_weights()
        yield from linear_weights(roles.out, hidden, hidden)

    def kv_weights(self) -> Iterator[Weight]:
        """Yields those of k and v."""
        yield from linear_weights(self.roles.k, self.hidden, self.hidden, bias=self.k_bias)
        yield from linear_weights(self.roles.v, self.hidden, self.hidden)

    def heads_of(
        self,
        builder: EncoderBuilder,
        name: str,
        x: Ref,
        which: str,
        layer: int,
        windows: int = 1,
        result: str = "",
        tables: Tables | None = None,
    ) -> Ref:
        """[W * T, hidden] -> `q`, `k` or `v`, [W, heads, T, head_dim], called `result`; q and k turned by tables."""
        pair = getattr(self.roles, which)
        flat = linear(builder, f"{name}.{which}_flat", x, pair, layer, bias=which != "k" or self.k_bias)
        shape = (windows, x.shape[0] // windows, self.heads, self.head_dim)
        apart = builder.reshape(f"{name}.{which}_heads", flat, shape)
        if tables is not None and which != "v":
            apart = builder.rope_by_rows(f"{name}.{which}_rotated", apart, *tables)
        return builder.transpose(result or f"{name}.{which}", apart, (0, 2, 1, 3))

    def joined(self, builder: EncoderBuilder, name: str, scores: Ref, v: Ref, x: Ref, layer: int) -> Ref:
        """x plus what rows of scores, [W, heads, T, S], take of v, [W, heads, S, head_dim]."""
        mixed = builder.mat_mul(f"{name}.mix", builder.softmax(f"{name}.softmax", scores), v)
        apart = builder.transpose(f"{name}.mix_rows", mixed, (0, 2, 1, 3))
        out = linear(builder, f"{name}.out", builder.reshape(f"{name}.mix_flat", apart, x.shape), self.roles.out, layer)
        return builder.add(f"{name}.sum", x, out)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMlp:
    """Norm, a Linear, GELU, a Linear, residual add."""

    roles: MlpRoles
    hidden: int
    inner: int

    def weights(self) -> Iterator[Weight]:
        yield from norm_weights(self.roles.norm, self.hidden)
        yield from linear_weights(self.roles.up, self.inner, self.hidden)
        yield from linear_weights(self.roles.down, self.hidden, self.inner)

    def lower(self, builder: EncoderBuilder, name: str, x: Ref, layer: int) -> Ref:
        """Adds it to a graph; [T, hidden] as the result."""
        normed = norm(builder, f"{name}.norm", x, self.roles.norm, layer)
        up = linear(builder, f"{name}.up", normed, self.roles.up, layer)
        inner = builder.function("Gelu", f"{name}.inner", up)
        return builder.add(f"{name}.sum", x, linear(builder, f"{name}.down", inner, self.roles.down, layer))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderLayer:
    """Attention of all rows to all, or to those of their window, and an MLP."""

    attention: Projections
    mlp: PlainMlp

    def weights(self) -> Iterator[Weight]:
        yield from self.attention.weights()
        yield from self.mlp.weights()

    def lower(
        self,
        builder: EncoderBuilder,
        x: Ref,
        layer: int,
        windows: int = 1,
        mask: Ref | None = None,
        tables: Tables | None = None,
    ) -> Ref:
        """Adds the layer to a graph.

        Args:
            builder: Of the graph.
            x: [W * T, hidden], rows of one window after the other.
            layer: Its number.
            windows: W.
            mask: [W, 1, 1, T], added to the scores of keys; None: every row of a window is one.
            tables: Rows of cos and sin, [W, T, R / 2], for the first R elements of each head; None: no rotation.
        """
        here, attention = f"encoder.layers.{layer}", self.attention
        name = f"{here}.attn"
        normed = norm(builder, f"{name}.norm", x, attention.roles.norm, layer)
        q, k, v = (attention.heads_of(builder, name, normed, which, layer, windows, "", tables) for which in "qkv")
        scores = builder.mat_mul(f"{name}.scores", q, builder.transpose(f"{name}.k_turned", k, (0, 1, 3, 2)))
        if mask is not None:
            scores = builder.repeated("Add", f"{name}.masked", scores, mask)
        x = attention.joined(builder, name, scores, v, x, layer)
        return self.mlp.lower(builder, f"{here}.mlp", x, layer)


def encoder_layer(hidden: int, heads: int, inner: int, *, k_bias: bool = False) -> EncoderLayer:
    """A layer of an encoder of sounds: rows of `hidden`, and an MLP of `inner`."""
    return EncoderLayer(
        attention=Projections(roles=ENCODER_ATTENTION, hidden=hidden, heads=heads, k_bias=k_bias),
        mlp=PlainMlp(roles=ENCODER_MLP, hidden=hidden, inner=inner),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperKeys(KeyValues):
    """Values of keys that are called as in Whisper's config."""

    @property
    def layer(self) -> EncoderLayer:
        """The blocks of a layer of the encoder."""
        return encoder_layer(self["d_model"], self["encoder_attention_heads"], self["encoder_ffn_dim"])
