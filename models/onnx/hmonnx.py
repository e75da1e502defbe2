"""HMONNX, the vendor's quantised ONNX: the ops of the domain `ai.houmo.xh2a`. Experimental.

No file of the vendor's was read for this. Names, operands and attributes are from the vendor's public scripts; what
those leave open is a guess, and docs/onnx.md lists it. An op whose operands are not known is in `_BLOCKED`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .emit import GROUP
from .errors import UnsupportedNodeError, shown
from .lower.hmonnx_ops import DOMAIN
from .network import Network, Node
from .table import LOWERINGS, lowers

VERSION = 1

# Ops that have the operands and attributes of ONNX's, or their first ones: tables of function values are not read.
_AS_ONNX = (
    "Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Reciprocal", "Pow", "Relu", "Sigmoid", "Gelu", "Exp", "Softplus",
    "Tanh", "Softmax", "MatMul", "Slice", "Gather", "Concat", "Split", "Expand", "Unsqueeze", "Transpose", "Reshape",
    "Pad", "Sin", "Cos",
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2",
)  # fmt: skip

_UNKNOWN_OPERANDS = "the order of its quantised operands is not public"
_NO_OP = "there is no op for it yet"
_BLOCKED = {
    "Conv": _UNKNOWN_OPERANDS,
    "ConvTranspose": _UNKNOWN_OPERANDS,
    "MoEBlock": _UNKNOWN_OPERANDS,
    "MoeBlockPrune": _UNKNOWN_OPERANDS,
    "PruningRouter": _UNKNOWN_OPERANDS,
    "LSTM": _UNKNOWN_OPERANDS,
    "LoRALinear": _UNKNOWN_OPERANDS,
    "GroupNorm": "the name of its number of groups is not public",
    "MaskedAdd": "how it saturates is not public",
    "MaskedSoftmax": "how it saturates is not public",
    "SoftmaxPlus": "what it adds to Softmax is not public",
    "SinksSoftmax": "attention in parts is not recognised",
    "LLMCache": "caches that return their last rows only are not modelled",
    "DynamicSlice": "a slice from a computed place is not recognised as the positions of a Rope",
    "GDRChunkScan": _NO_OP,
    "GDRRecurrentScan": _NO_OP,
    "GDRBlockTriInverse": _NO_OP,
    "Resizer": "its name and operands in the file are not public",
}

# Of Linear: the values that are computed. An attribute that is missing has the first.
_LINEAR_VALUES: Mapping[str, tuple[object, ...]] = {
    "hmfp_act_man_bit": (8,),
    "hmfp_act_nshare": (GROUP,),
    "hmfp_weight_man_bit": (8, 4),
    "hmfp_weight_nshare": (GROUP,),
    "output_dtype": ("float16",),
}
_MASKS = "masks, ranges, window starts and valid lengths as operands are not supported"


def blocked() -> dict[str, str]:
    """Ops of the vendor's domain that are known and not supported, with the reasons."""
    return dict(_BLOCKED)


def is_hmonnx(network: Network) -> bool:
    """Whether a model has nodes of the vendor's domain."""
    return any(node.domain == DOMAIN for node in network.nodes)


def check_version(network: Network) -> None:
    """Raises UnsupportedNodeError for another version of the domain."""
    version = network.foreign.get(DOMAIN)
    if is_hmonnx(network) and version != VERSION:
        named = "no version" if version is None else f"version {version}"
        raise UnsupportedNodeError(f"the model names {named} of {DOMAIN}, supported is {VERSION}")


def caches(network: Network) -> set[str]:
    """Names of the inputs that a KVcache updates in place."""
    nodes = (node for node in network.nodes if node.domain == DOMAIN and node.op == "KVcache")
    return {node.inputs[1] for node in nodes if len(node.inputs) > 1}


def why_not(node: Node) -> str | None:
    """Why a node of the domain cannot be lowered, as far as its attributes tell; None where nothing speaks against."""
    if (DOMAIN, node.op) not in LOWERINGS:
        return _BLOCKED.get(node.op, "the op is not in the import table")
    if node.op == "Linear":
        for name, values in _LINEAR_VALUES.items():
            if (value := node.attributes.get(name, values[0])) not in values:
                expected = " or ".join(str(v) for v in values)
                return f"{name} is {shown(str(value))}, supported is {expected}"
    if node.op == "FlashAttention" and any(node.inputs[6:]):
        return _MASKS
    return None


def _enter_onnx_ops() -> None:
    for op in _AS_ONNX:
        lowers(op, domain=DOMAIN)(LOWERINGS["", op])


_enter_onnx_ops()
