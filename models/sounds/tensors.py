"""Where weights of speech models come from in a checkpoint, by the names that transformers gives to their modules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcim_lite.hmm.weight_format import GROUP, PACKED_CONV_OUTPUTS, PACKED_CONV_TERMS

from ..common.profiles import Profile
from ..family import Tensors, plain
from ..weights.packing import is_quantized
from ..weights.roles import Role
from ..weights.spec import LinearSpec, VectorSpec
from ..weights.speech_roles import CONVS, ENCODER_ATTENTION, ENCODER_MLP, ENCODER_NORM, AttentionRoles, MlpRoles, Pair

DENSE = "dense"
_CONV_FORMATS = ("linear_w8", "linear_f16", "linear_f32")  # what a Conv takes


def pair_tensors(pair: Pair, name: str) -> dict[Role, Tensors]:
    """A module with a weight and a bias."""
    return {
        pair.weight: plain(f"{name}.weight"),
        pair.bias: plain(f"{name}.bias"),
    }


def attention_tensors(
    roles: AttentionRoles, part: str, attention: str, norm: str = "", out: str = "out_proj"
) -> dict[Role, Tensors]:
    """Of each layer of a part: its projections and the norm before them, which is called after the attention if it has
    no name of its own."""
    layer = f"{part}.layers.{{layer}}"
    here = f"{layer}.{attention}"
    named = {"q_proj": roles.q, "k_proj": roles.k, "v_proj": roles.v, out: roles.out}
    found = pair_tensors(roles.norm, f"{layer}.{norm or f'{attention}_layer_norm'}")
    for name, pair in named.items():
        found |= pair_tensors(pair, f"{here}.{name}")
    return found


def mlp_tensors(roles: MlpRoles, part: str, norm: str = "final_layer_norm", inside: str = "") -> dict[Role, Tensors]:
    """Of each layer of a part: its two Linears, `inside` a module of their own, and the norm before them."""
    here = f"{part}.layers.{{layer}}"
    return {
        **pair_tensors(roles.norm, f"{here}.{norm}"),
        **pair_tensors(roles.up, f"{here}.{inside}fc1"),
        **pair_tensors(roles.down, f"{here}.{inside}fc2"),
    }


def conv_specs(pair: Pair, name: str, shape: Sequence[int], profile: Profile) -> list[LinearSpec | VectorSpec]:
    """The kernel of a convolution, [outputs, channels, ..], as a matrix, and its bias.

    Kernels of few terms are not quantised, as in networks from ONNX (docs/numerics.md section 11).
    """
    outputs, terms = shape[0], math.prod(shape[1:])
    fmt = profile.body_format if profile.body_format in _CONV_FORMATS else "linear_w8"
    least = GROUP if is_quantized(fmt) else PACKED_CONV_TERMS
    if terms < least or (outputs < PACKED_CONV_OUTPUTS and not is_quantized(fmt)):
        fmt = DENSE
    padded = terms + -terms % GROUP if fmt == "linear_w8" else terms
    kernel = LinearSpec(
        role=pair.weight,
        layer=None,
        format=fmt,
        shape=(outputs, padded),
        tensors=(f"{name}.weight",),
        tensor_shapes=(tuple(shape),),
    )
    return [kernel, VectorSpec(role=pair.bias, layer=None, tensors=(f"{name}.bias",), lengths=(outputs,))]


def encoder_tensors(part: str, last_norm: str) -> dict[Role, Tensors]:
    """Of an encoder whose modules are called as Whisper's, but for the norm behind the layers."""
    return {
        **attention_tensors(ENCODER_ATTENTION, part, "self_attn"),
        **mlp_tensors(ENCODER_MLP, part),
        **pair_tensors(ENCODER_NORM, f"{part}.{last_norm}"),
    }


def sound_convs(part: str, bins: int, hidden: int, profile: Profile) -> list[LinearSpec | VectorSpec]:
    """What `SpeechBuilder.rows_of_sound` makes rows of a sound with."""
    return [
        *conv_specs(CONVS[0], f"{part}.conv1", (hidden, bins, 3), profile),
        *conv_specs(CONVS[1], f"{part}.conv2", (hidden, hidden, 3), profile),
    ]


def table_spec(role: Role, name: str, shape: tuple[int, int]) -> LinearSpec:
    """A table whose rows a graph looks up or adds."""
    return LinearSpec(role=role, layer=None, format=DENSE, shape=shape, tensors=(name,), tensor_shapes=(shape,))
