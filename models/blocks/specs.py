"""From the weights of blocks to what is read and stored: found in the checkpoint as a record says."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from tcim_lite.hmm.weight_format import GROUP

from ..common.errors import CompileError
from ..common.profiles import Profile
from ..family import Tensors
from ..weights import roles
from ..weights.packing import is_quantized
from ..weights.spec import LinearSpec, VectorSpec
from ..weights.vectors import Merge, merged_length
from .weights import Weight

# Besides the head, what decides by small differences and is small.
_IN_HEAD_FORMAT = (
    roles.HEAD,
    roles.ROUTER,
    roles.SHARED_GATE,
    roles.ALTUP_ROUTER,
    roles.OUT_GATE,
    roles.DELTA_GATES,
    roles.KEY_HEADS,
    roles.VALUE_HEADS,
    roles.MTP_JOIN,
    roles.TEXT_UP,
    roles.TEXT_DOWN,
    roles.OTHER_UP,
    roles.OTHER_DOWN,
)
# Small matrices whose results are summed over the tokens of a text: they stay floats.
_IN_TENSOR_FORMAT = (roles.SSM_SELECT, roles.SSM_STEPS)


def specs_of(
    weights: Iterable[Weight],
    tensors: Mapping[roles.Role, Tensors],
    profile: Profile,
    layer: int | None,
    tied: tuple[str, ...] = (),
) -> list[LinearSpec | VectorSpec]:
    """Returns the weights of a layer, or of none.

    Args:
        weights: In order.
        tensors: Where each comes from.
        profile: Their formats.
        layer: Its number.
        tied: What the head is tied to, if it is.

    Raises:
        CompileError: A quantised weight whose inputs are not a multiple of 64.
    """
    specs: list[LinearSpec | VectorSpec] = []
    for weight in weights:
        source = tensors[weight.role]
        experts = [None] if weight.experts is None else range(weight.experts)
        named = (source.of(layer, expert) for expert in experts)
        names = tied if tied and source.transform == "tied" else tuple(itertools.chain(*named))
        if source.transform == "of_heads":
            counts = (rows // weight.outputs[0] for rows in weight.sections)
            heads = ((name, head) for name, count in zip(source.names, counts, strict=False) for head in range(count))
            names = tuple(name.format(layer=layer, expert=head) for name, head in heads)
        merge: Merge = "stack"
        if source.transform in ("alternate", "by_heads", "in_pairs", "keys_of_heads", "values_of_heads"):
            merge = source.transform
        if weight.inputs is None:
            specs.append(_vector_spec(weight, source, layer, names, merge))
            continue
        factors = "" if weight.factors is None else tensors[weight.factors].of(layer)[0]
        specs.append(_linear_spec(weight, source, profile, layer, names, merge, factors))
    return specs


def _vector_spec(
    weight: Weight, source: Tensors, layer: int | None, names: tuple[str, ...], merge: Merge
) -> VectorSpec:
    whole = source.transform in ("plain", "row", "spread", "by_heads") or (
        merge == "in_pairs" and len(source.names) == 1
    )
    lengths = (sum(weight.outputs),) if whole else weight.outputs
    if source.transform == "table":
        lengths = weight.sections[: len(names)]
    if source.transform == "matrix":
        lengths = (weight.sections[0] * weight.outputs[0],)
    columns = weight.outputs[0] if source.transform in ("row", "table", "matrix") else None
    spread = source.transform == "spread"
    return VectorSpec(
        role=weight.role,
        layer=layer,
        tensors=names,
        lengths=lengths,
        merge=merge,
        sections=weight.sections or weight.outputs,
        experts=weight.experts,
        scale=weight.scale,
        offset=source.offset,
        function=source.function,
        taps=weight.taps,
        columns=1 if spread else columns,
        is_matrix=spread or source.transform == "matrix",
        ahead=2 if spread else 0,
        ones=weight.ones,
        turned=weight.turned,
        head_parts=weight.head_parts,
        multiple=weight.multiple,
        pairs=weight.pairs,
    )


def _linear_spec(
    weight: Weight,
    source: Tensors,
    profile: Profile,
    layer: int | None,
    names: tuple[str, ...],
    merge: Merge,
    factors: str,
) -> LinearSpec:
    assert weight.inputs is not None
    inputs = weight.padded_inputs or weight.inputs
    shape = (merged_length(weight.outputs, merge, weight.multiple), inputs)
    outputs = weight.outputs if len(source.names) > 1 else (sum(weight.outputs),)
    shapes = tuple((rows, weight.inputs) for rows in outputs) if weight.whole is None else (weight.whole,)
    spec = LinearSpec(
        role=weight.role,
        layer=layer,
        format=_format_of(weight.role, profile),
        shape=shape if weight.experts is None else (weight.experts, *shape),
        tensors=names,
        tensor_shapes=shapes * (weight.experts or 1),
        merge=merge,
        sections=weight.sections or weight.outputs,
        head_parts=weight.head_parts,
        turned=weight.turned,
        scale=weight.scale,
        multiple=weight.multiple,
        factors=factors,
        pairs=weight.pairs,
        row_scales=tuple(zip(weight.outputs, weight.scales, strict=True)) if weight.scales else (),
    )
    if is_quantized(spec.format) and inputs % GROUP:
        raise CompileError(
            f"tensor {names[0]!r} has {weight.inputs} inputs, not a multiple of the quantisation group of {GROUP}; "
            "compile with --quant float16"
        )
    return spec


def _format_of(role: roles.Role, profile: Profile) -> str:
    if role in _IN_TENSOR_FORMAT:
        return "linear_f16" if profile.tensor_dtype == "float16" else "linear_f32"
    return profile.head_format if role in _IN_HEAD_FORMAT else profile.body_format


def table_spec(role: roles.Role, tensors: Mapping[roles.Role, Tensors], shape: tuple[int, int]) -> LinearSpec:
    """Returns a table as a matrix, for what reads its rows; it is no weight of a graph in this form."""
    names = tensors[role].names
    return LinearSpec(role=role, layer=None, format="linear_f16", shape=shape, tensors=names, tensor_shapes=(shape,))
