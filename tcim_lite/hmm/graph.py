"""A compiled graph (docs/hmm-format.md section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# By newest version, as in csrc/graph/ops.def; a test compares the two.
OPS = {
    "Linear": 2,
    "RMSNorm": 1,
    "Rope": 3,
    "KVcache": 1,
    "FlashAttention": 4,
    "BatchGather": 1,
    "SiluMul": 3,
    "Add": 2,
    "Mul": 2,
    "Slice": 1,
    "Reshape": 1,
    "AllGather": 1,
    "MoERoute": 3,
    "MoELinear": 1,
    "MoECombine": 1,
    "Sub": 2,
    "Div": 2,
    "Max": 2,
    "Min": 2,
    "Pow": 2,
    "PRelu": 2,
    "Equal": 2,
    "Less": 2,
    "Relu": 1,
    "LeakyRelu": 1,
    "Clip": 1,
    "Sigmoid": 1,
    "HardSigmoid": 1,
    "HardSwish": 1,
    "Silu": 1,
    "Tanh": 1,
    "Erf": 1,
    "Gelu": 1,
    "GeluTanh": 1,
    "Elu": 1,
    "Exp": 1,
    "Log": 1,
    "Softplus": 1,
    "Sqrt": 1,
    "Reciprocal": 1,
    "Neg": 1,
    "Abs": 1,
    "Floor": 1,
    "Ceil": 1,
    "Round": 1,
    "Sign": 1,
    "Sin": 1,
    "Cos": 1,
    "Atan": 1,
    "FakeQuantize": 1,
    "ReduceSum": 1,
    "ReduceMean": 1,
    "ReduceMax": 1,
    "ReduceMin": 1,
    "ReduceProd": 1,
    "ReduceSumSquare": 1,
    "ReduceL1": 1,
    "Softmax": 1,
    "LayerNorm": 1,
    "Conv": 1,
    "MatMul": 1,
    "MaxPool": 1,
    "AveragePool": 1,
    "Transpose": 1,
    "StridedSlice": 1,
    "Expand": 1,
    "Pad": 1,
    "Concat": 1,
    "Gather": 1,
    "Resample": 1,
    "Where": 1,
    "TopK": 1,
    "Resizer": 2,
    "Cast": 2,
    "CausalConv": 1,
    "DeltaRule": 2,
    "GateMul": 1,
    "HeadLinear": 1,
}
# By the minor version of the format that added them; older runtimes refuse them by name.
_MINOR_OF_OP = (
    {"Mul": 1, "MoERoute": 2, "MoELinear": 2, "MoECombine": 2}
    | dict.fromkeys(
        # What graphs from ONNX need: all behind MoECombine.
        list(OPS)[list(OPS).index("MoECombine") + 1 :],
        3,
    )
    | dict.fromkeys(["CausalConv", "DeltaRule", "GateMul"], 4)
    | {"HeadLinear": 7}
)
# Attributes that raise an op's version, mostly to 2, by the minor version of the format that added them.
_MINOR_OF_ATTRIBUTE = {
    ("Add", "broadcast"): 3,
    ("Cast", "from"): 6,
    ("DeltaRule", "steps"): 7,
    ("FlashAttention", "mask"): 2,
    ("FlashAttention", "sinks"): 2,
    ("FlashAttention", "softcap"): 7,
    ("FlashAttention", "window"): 2,
    ("Linear", "activations"): 1,
    ("MoERoute", "groups"): 7,
    ("MoERoute", "kept_groups"): 7,
    ("MoERoute", "scores"): 4,
    ("MoERoute", "threshold"): 7,
    ("Mul", "broadcast"): 3,
    ("Resizer", "parts"): 6,
    ("Rope", "positions"): 1,
    ("Rope", "rotary_dim"): 4,
    ("Rope", "tables"): 4,
    ("SiluMul", "alpha"): 2,
    ("SiluMul", "function"): 5,
    ("SiluMul", "limit"): 2,
}

Attribute = int | float | str

# Values of attributes that raise it to 3, likewise.
_MINOR_OF_VALUE: Mapping[tuple[str, str, Attribute], int] = {
    ("FlashAttention", "mask", "row"): 6,
    ("FlashAttention", "mask", "besides"): 6,
    ("MoERoute", "order", "sparse_mixer"): 7,
    ("MoERoute", "scores", "softmax"): 7,
}


@dataclass(frozen=True, slots=True)
class Role:
    """What an input or output is for (section 5.2), such as the keys of layer 3 of batch slot 0."""

    name: str  # "embeddings", "valid_length", "k_cache", ...: docs/hmm-format.md lists them
    layer: int | None = None  # of the model
    slot: int | None = None  # of the batch


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of fixed shape and dtype; its id is its position in `Graph.values`."""

    name: str
    kind: str  # "input", "state", "weight", "intermediate"
    dtype: str
    shape: Sequence[int]  # logical; of a packed weight [N, K] or [E, N, K] without padding
    format: str = "dense"  # of a weight
    weight: int | None = None  # index into the weight table, for kind "weight"
    role: Role | None = None  # of an input or output
    aliases: Sequence[str] = ()  # other names that an input or output answers to

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(extent) for extent in self.shape))
        object.__setattr__(self, "aliases", tuple(self.aliases))


@dataclass(frozen=True, slots=True)
class Op:
    """One step; `inputs` and `outputs` are value ids."""

    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(int(value) for value in self.inputs))
        object.__setattr__(self, "outputs", tuple(int(value) for value in self.outputs))
        object.__setattr__(self, "attributes", dict(self.attributes))


def version_of(op: Op) -> int:
    """The lowest version of the op that has its attributes; 1.0 of the format has version 1 of each."""
    if op.kind == "FlashAttention" and "softcap" in op.attributes:
        return 4
    if op.kind == "Rope" and ("tables" in op.attributes or "rotary_dim" in op.attributes):
        return 3
    if (op.kind == "SiluMul" and "function" in op.attributes) or (op.kind == "MoERoute" and "groups" in op.attributes):
        return 3
    if any((op.kind, key, value) in _MINOR_OF_VALUE for key, value in op.attributes.items()):
        return 3
    newer = any((op.kind, key) in _MINOR_OF_ATTRIBUTE or key == "broadcast" for key in op.attributes)
    return 2 if newer else 1


def minor_of(op: Op) -> int:
    """The minor version of the format that has the op in its version."""
    of_attributes = (
        max(_MINOR_OF_ATTRIBUTE.get((op.kind, key), 0), _MINOR_OF_VALUE.get((op.kind, key, value), 0))
        for key, value in op.attributes.items()
    )
    return max([_MINOR_OF_OP.get(op.kind, 0), *of_attributes])


@dataclass(frozen=True, slots=True)
class Graph:
    """Ops in execution order over values in SSA form."""

    name: str
    values: Sequence[Value]
    ops: Sequence[Op]
    inputs: Sequence[int]  # inputs and states, in API order
    outputs: Sequence[int]  # in API order
    live_rows: int | None = None  # the int32 [1] input that says how many rows of axis 1 are real

    def __post_init__(self) -> None:
        for name in ("values", "ops", "inputs", "outputs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
