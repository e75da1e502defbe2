"""What is said about an op in one line, and which colour it has."""

from __future__ import annotations

from collections.abc import Mapping

from ..hmm.graph import Attribute, Op
from .text import printable

_LONGEST = 26  # characters of the line
# By the class of their colour; ops that are not here compute element by element.
_CLASSES = {
    "product": ("Linear", "Conv", "MatMul", "MoELinear", "HeadLinear"),
    "attention": ("FlashAttention", "KVcache", "Rope", "MoERoute", "MoECombine"),
    "norm": ("RMSNorm", "LayerNorm", "Softmax"),
    "window": ("MaxPool", "AveragePool", "Resample", "Resizer"),
    "reduce": (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "TopK",
    ),
    "move": ("Slice", "StridedSlice", "Reshape", "Transpose", "Expand", "Pad", "Concat", "Gather", "BatchGather"),
    "exchange": ("AllGather",),
}  # fmt: skip
_CLASS_OF = {kind: name for name, kinds in _CLASSES.items() for kind in kinds}
_SAID = {"kernel", "strides", "pads", "dilations", "upsample", "groups", "epsilon", "scale", "broadcast", "offset"}


def class_of(kind: str) -> str:
    """The class of an op's colour."""
    return _CLASS_OF.get(kind, "function")


def summary(op: Op) -> str:
    """The attributes that tell one op of a kind from another; the page has all of them."""
    said = [*_window(op.attributes)]
    if op.kind == "Slice":
        said.append(f"{op.attributes.get('start', '')}:{op.attributes.get('stop', '')}")
    elif op.kind == "StridedSlice":
        said += _strides(op.attributes)
    else:
        said += [f"{key} {_value(value)}" for key, value in op.attributes.items() if key not in _SAID]
    return printable(" ".join(said), _LONGEST)


def _window(attributes: Mapping[str, Attribute]) -> list[str]:
    """3×3 /2 dil 2 g32: of convolutions and pools."""
    found = []
    kernel = str(attributes.get("kernel", ""))
    if kernel:
        found.append(kernel.replace(",", "×"))
    for key, sign in (("strides", "/"), ("dilations", "dil "), ("upsample", "up ")):
        numbers = str(attributes.get(key, "")).split(",")
        if any(number not in ("", "1") for number in numbers):
            found.append(sign + (numbers[0] if len(set(numbers)) == 1 else "×".join(numbers)))
    groups = attributes.get("groups", 1)
    if groups != 1:
        found.append(f"g{groups}")
    return found


def _strides(attributes: Mapping[str, Attribute]) -> list[str]:
    """from 0,64,0,0 by 2,1,1,1: where a slice begins, and its steps if they are not 1."""
    found = []
    for word, key, usual in (("from", "starts", "0"), ("by", "steps", "1")):
        numbers = str(attributes.get(key, usual))
        if set(numbers.split(",")) != {usual}:
            found.append(f"{word} {numbers}")
    return found or ["from 0"]


def _value(value: Attribute) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value), _LONGEST)
