"""What `--quant` chooses: docs/numerics.md section 1."""

from __future__ import annotations

from dataclasses import dataclass

from tcim_lite.hmm.weight_format import LAYOUTS

from .errors import CompileError


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Dtypes and formats of a graph: of the tensors between ops, of the body's weights and of the head's.

    `activations` says how quantised Linears round what they read.
    """

    tensor_dtype: str
    body_format: str
    head_format: str
    quant: str
    head_quant: str
    activations: str


# name: (tensor dtype, weight format, head when none is asked for)
_QUANTS = {
    "w4a8h0_ssfp": ("float16", "linear_w4", "w8a8h1_sefp"),
    "w8a8h1_sefp": ("float16", "linear_w8", "w8a8h1_sefp"),
    "mxfp4a8": ("float16", "linear_mxfp4", "w8a8h1_sefp"),
    "float16": ("float16", "linear_f16", "float16"),
    "float32": ("float32", "linear_f32", "float32"),
}
QUANTS = tuple(_QUANTS)
DEFAULT_ACTIVATIONS = "a8"
ACTIVATIONS = (DEFAULT_ACTIVATIONS, "hidden_exponent")  # docs/numerics.md section 3


def profile_for(quant: str, head_quant: str | None = None, activations: str = DEFAULT_ACTIVATIONS) -> Profile:
    """Returns the profile of `quant`, with the head as `head_quant` says.

    Raises:
        CompileError: An unknown name; a head that does not fit the body: tensors are fp32 in a float32 graph and
            fp16 in all others, and the head's format must take them; or activations that the body does not have.
    """
    for option, value in (("quant", quant), ("head-quant", head_quant)):
        if value is not None and value not in _QUANTS:
            raise CompileError(f"unknown --{option} {value!r}; choose from {', '.join(QUANTS)}")
    tensor_dtype, body_format, default_head = _QUANTS[quant]
    head = head_quant or default_head
    head_dtype, head_format, _ = _QUANTS[head]
    if head_dtype != tensor_dtype:
        raise CompileError(
            f"--head-quant {head} does not fit --quant {quant}: its tensors are {head_dtype}, the body's {tensor_dtype}"
        )
    if activations not in ACTIVATIONS:
        raise CompileError(f"unknown --activations {activations!r}; choose from {', '.join(ACTIVATIONS)}")
    if activations != DEFAULT_ACTIVATIONS and not (
        LAYOUTS[body_format].hides_exponents
        and (LAYOUTS[head_format].hides_exponents or not LAYOUTS[head_format].scale_inputs)
    ):
        fitting = " and ".join(name for name in QUANTS if LAYOUTS[_QUANTS[name][1]].hides_exponents)
        raise CompileError(f"--activations {activations} fits --quant {fitting}; got {quant} with the head {head}")
    return Profile(
        tensor_dtype=tensor_dtype,
        body_format=body_format,
        head_format=head_format,
        quant=quant,
        head_quant=head,
        activations=activations,
    )
