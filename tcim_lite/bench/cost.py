"""What one run of a graph costs at least: the bytes it reads and the operations of its Linear layers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..hmm.weight_format import LAYOUTS

if TYPE_CHECKING:
    from ..hmm import Container, Value

_SIZES = {"float16": 2, "float32": 4}
_LAYER = re.compile(r"layers\.(\d+)\.")


@dataclass(frozen=True)
class Cost:
    """Of one run.

    Attributes:
        tokens: Of all slots together.
        read_bytes: Weights and scales once, and the cache rows that are live.
        operations: Of the Linear layers; a multiply-add counts as two. Attention is not counted.
        quantized: The operations are int8; otherwise fp32.
    """

    tokens: int
    read_bytes: int
    operations: int
    quantized: bool


def slot_count(file: Container) -> int:
    """Slots of a graph that have lengths and caches of their own.

    Raises:
        UnsupportedError: The graph has no KV caches: it is no language model.
    """
    inputs = _inputs(file)
    if not any("kcache" in port.name for port in inputs):
        raise UnsupportedError(f"{file.label}: the graph has no KV caches; bench measures language models")
    return inputs[0].shape[0]


def weight_bytes(file: Container) -> int:
    """Bytes of weights that one run reads. Of the RoPE tables it reads one row a token, which is nothing."""
    return sum(entry.nbytes for entry in file.weights if not entry.name.startswith("rope."))


def cost_of(file: Container, depth: int) -> Cost:
    """The cost of a run with `depth` tokens in the caches and every row of the graph real.

    The head, and what follows attention in the last block, run for the rows that logits are returned for.
    """
    batch, length = _inputs(file)[0].shape[:2]
    tokens = batch * length
    wanted = tokens if json.loads(file.custom_msg or "{}").get("all_logits") else batch
    linears = [entry for entry in file.weights if entry.format != "dense"]
    last = max((int(found[1]) for entry in linears if (found := _LAYER.match(entry.name))), default=-1)
    operations = 0
    for entry in linears:
        in_tail = not entry.name.startswith("layers.") or entry.name.startswith(f"layers.{last}.")
        rows = wanted if in_tail and ".qkv." not in entry.name else tokens
        operations += 2 * math.prod(entry.shape) * rows
    caches = [port for port in _inputs(file) if "kcache" in port.name or "vcache" in port.name]
    row_bytes = sum(math.prod(port.shape) // port.shape[2] * _SIZES[port.dtype] for port in caches)
    return Cost(
        tokens=tokens,
        read_bytes=weight_bytes(file) + row_bytes * (depth + length),
        operations=operations,
        quantized=any(LAYOUTS[entry.format].scale_inputs for entry in linears),
    )


def _inputs(file: Container) -> Sequence[Value]:
    if file.graph is None:
        raise UnsupportedError(f"{file.label}: a file of weights has no graph")
    return [file.graph.values[id_] for id_ in file.graph.inputs]
