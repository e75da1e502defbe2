"""Roles of the weights of speech models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .roles import Role


@dataclass(frozen=True, slots=True)
class Pair:
    """What has a weight and usually a bias: a Linear, a convolution or a layer norm."""

    weight: Role
    bias: Role


def pair(part: str, what: str, kind: Literal["linear", "norm"] = "linear", *, layered: bool = False) -> Pair:
    """Roles of a weight and its bias; those of a layer have its number in their names."""
    name = f"{part}.layers.{{layer}}.{what}" if layered else f"{part}.{what}"
    return Pair(Role(f"{part}.{what}", f"{name}.weight", kind), Role(f"{part}.{what}.bias", f"{name}.bias", "bias"))


@dataclass(frozen=True, slots=True)
class AttentionRoles:
    """A norm, and the projections behind it."""

    norm: Pair
    q: Pair
    k: Pair
    v: Pair
    out: Pair


def attention_roles(part: str, what: str) -> AttentionRoles:
    """Of each layer of a part of the model."""
    projections = (pair(part, f"{what}.{name}", layered=True) for name in ("q", "k", "v", "out"))
    return AttentionRoles(pair(part, f"{what}.norm", "norm", layered=True), *projections)


@dataclass(frozen=True, slots=True)
class MlpRoles:
    """A norm, and the two Linears behind it."""

    norm: Pair
    up: Pair
    down: Pair


def mlp_roles(part: str) -> MlpRoles:
    """Of each layer of a part of the model."""
    up, down = (pair(part, f"mlp.{name}", layered=True) for name in ("up", "down"))
    return MlpRoles(pair(part, "mlp.norm", "norm", layered=True), up, down)


ENCODER_ATTENTION, ENCODER_MLP = attention_roles("encoder", "attn"), mlp_roles("encoder")
SELF_ATTENTION, CROSS_ATTENTION = attention_roles("decoder", "attn"), attention_roles("decoder", "cross")
DECODER_MLP = mlp_roles("decoder")
CONVS = tuple(pair("encoder", f"conv{number}") for number in (1, 2, 3))
CONV_OUT, PROJECTOR = pair("encoder", "conv_out"), (pair("encoder", "projector1"), pair("encoder", "projector2"))
ENCODER_NORM, DECODER_NORM = pair("encoder", "norm", "norm"), pair("decoder", "norm", "norm")
TEXT_TOKENS = Role("text.tokens", "text.tokens", "linear")  # a file of its own, never in a graph
TEXT_PROJECTION = (pair("text_projection", "fc1"), pair("text_projection", "fc2"))
PRE_MATCHING = pair("crq", "pre_matching")  # a file of its own, never in a graph
ENCODER_POSITIONS = Role("encoder.positions", "encoder.positions", "linear")
DECODER_POSITIONS = Role("decoder.positions", "decoder.positions", "linear")
TOKENS = Role("decoder.tokens", "decoder.tokens", "linear")
