"""Checkpoints that keep the experts of a layer in one tensor.

As gpt-oss does, rows of gate and up take turns. In MXFP4 a tensor is `X_blocks` uint8 [E, N, K/32, 16], two codes a
byte, the lower half first, and `X_scales` uint8 [E, N, K/32], each a power of two with a bias of 127. As floats it is
`X` [E, K, N]. As Qwen3.5 does, it is `X` [E, N, K], floats, with all rows of gate before those of up. Files of Qwen3-VL
have the same as [E, K, N], but those that transformers 5 writes may have [E, N, K]: their shapes tell. Granite's have
it as Qwen3.5 does, in tensors of other names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from .checkpoint import PartStore
from .quantized.scales import E2M1

# As gpt-oss, Qwen3.5 and Qwen3-VL have them.
Packing: TypeAlias = Literal["turns", "rows", "columns"]
METHOD = "mxfp4"  # of `quantization_config`
_GROUP = 32
_NO_NUMBER = 255  # the scale that is NaN
_OWN = re.compile(r"(?P<layer>.*\.experts)\.(?P<expert>\d+)\.(?P<which>gate|up|down)_proj\.(?P<what>weight|bias)")
_GRANITE = re.compile(r"(?P<moe>.*\.block_sparse_moe)\.(?P<which>in|out)put_linear\.weight")
_PACKED = re.compile(r"(?P<layer>.*\.experts)\.(?P<which>gate_up|down)_proj(?P<what>|_blocks|_scales|_bias)")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor of one expert lies.

    Attributes:
        packed: Name of the tensor of all experts, without `_blocks`.
        expert: Its number.
        step: Of its rows among those of the expert; 2 where gate and up take turns.
        first: Of these rows.
    """

    packed: str
    expert: int
    step: int
    first: int

    def rows(self, start: int, stop: int) -> slice:
        """Rows of the packed tensor that hold rows start..stop, and the other half's where there is one."""
        return slice(start * self.step, stop * self.step)


def _usual(name: str) -> str:
    """What a tensor is called that has another name in Granite's files."""
    own = _GRANITE.fullmatch(name)
    return name if own is None else f"{own['moe']}.experts.{'gate_up' if own['which'] == 'in' else 'down'}_proj"


class PackedExperts:
    """As `Checkpoint`; tensors of all experts are seen as one for each, `X.experts.3.gate_proj.weight` for example."""

    def __init__(self, checkpoint: PartStore, count: int, packing: Packing, inner: int) -> None:
        """`count` experts in a layer, `inner` numbers between their projections."""
        self._checkpoint, self._count = checkpoint, count
        self._halves, self._rows_first = packing != "turns", packing == "rows"
        self._own_names = {_usual(name): name for name in checkpoint.names()}
        if packing == "columns":
            self._rows_first = all(self._has_rows_first(name, inner) for name in checkpoint.names())

    @staticmethod
    def fits(checkpoint: PartStore) -> bool:
        """Whether a checkpoint has such tensors."""
        return any(_PACKED.fullmatch(_usual(name)) for name in checkpoint.names())

    def __contains__(self, name: str) -> bool:
        place = self._place(name)
        if place is None:
            return name in self._checkpoint
        parts = ("_bias",) if name.endswith(".bias") else ("", "_blocks")
        return place.expert < self._count and any(place.packed + part in self._checkpoint for part in parts)

    def names(self) -> list[str]:
        """Returns the names of all tensors, those of every expert among them."""
        names = []
        for name in self._checkpoint.names():
            packed = _PACKED.fullmatch(_usual(name))
            if packed is None:
                names.append(name)
            elif packed["what"] != "_scales":
                kind = "bias" if packed["what"] == "_bias" else "weight"
                names += [
                    f"{packed['layer']}.{expert}.{which}_proj.{kind}"
                    for expert in range(self._count)
                    for which in packed["which"].split("_")
                ]
        return names

    def shape(self, name: str) -> tuple[int, ...]:
        place = self._place(name)
        if place is None:
            return self._checkpoint.shape(name)
        if name.endswith(".bias"):
            return (self._checkpoint.shape(f"{place.packed}_bias")[1] // place.step,)
        if self._is_coded(place):
            _, rows, groups, _ = self._checkpoint.shape(f"{place.packed}_blocks")
            return rows // place.step, groups * _GROUP
        _, inputs, rows = self._checkpoint.shape(place.packed)
        if self._rows_first:
            inputs, rows = rows, inputs
        return rows // place.step, inputs

    def check(self, name: str, shape: Sequence[int]) -> None:
        """Raises CheckpointError unless what holds the tensor exists, with a shape and a dtype that fit `shape`."""
        place = self._place(name)
        if place is None:
            return self._checkpoint.check(name, shape)
        rows, *inputs = shape
        if not inputs:
            return self._checkpoint.check(f"{place.packed}_bias", (self._count, rows * place.step))
        if not self._is_coded(place):
            sides = (rows * place.step, inputs[0]) if self._rows_first else (inputs[0], rows * place.step)
            return self._checkpoint.check(place.packed, (self._count, *sides))
        if inputs[0] % _GROUP:
            raise CheckpointError(
                f"tensor '{place.packed}_blocks' has groups of {_GROUP} inputs, but config.json asks for {inputs[0]}"
            )
        scales = (self._count, rows * place.step, inputs[0] // _GROUP)
        self._checkpoint.check(f"{place.packed}_blocks", (*scales, _GROUP // 2), ("U8",))
        return self._checkpoint.check(f"{place.packed}_scales", scales, ("U8",))

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        place = self._place(name)
        if place is None:
            return self._checkpoint.read(name, start, stop)
        count = self.shape(name)[0]
        stop = count if stop is None else stop
        if self._halves:
            half = slice(place.first * count + start, place.first * count + stop)
            if self._rows_first:
                return self._finite(place.packed, (place.expert, half))
            return np.ascontiguousarray(self._finite(place.packed, (place.expert, slice(None), half)).T)
        rows = place.rows(start, stop)
        turn = slice(place.first, None, place.step)
        if name.endswith(".bias"):
            return self._finite(f"{place.packed}_bias", (place.expert, rows))[turn]
        if not self._is_coded(place):
            return np.ascontiguousarray(self._finite(place.packed, (place.expert, slice(None), rows)).T[turn])
        blocks = self._checkpoint.part(f"{place.packed}_blocks", (place.expert, rows))[turn]
        scales = self._checkpoint.part(f"{place.packed}_scales", (place.expert, rows))[turn]
        if (scales == _NO_NUMBER).any():
            raise CheckpointError(f"tensor '{place.packed}_scales' holds {_NO_NUMBER}, which stands for NaN")
        codes = np.stack((blocks & 15, blocks >> 4), axis=-1).reshape(*scales.shape, _GROUP)
        values = np.ldexp(E2M1[codes], scales.astype(np.int32)[..., None] - 127)
        if not np.isfinite(values).all():
            raise CheckpointError(f"tensor '{place.packed}_scales' makes values beyond float32")
        return values.reshape(len(values), -1)

    def _has_rows_first(self, name: str, inner: int) -> bool:
        """Whether a tensor, if it has the experts of a layer and is not square, is [E, N, K]."""
        packed = _PACKED.fullmatch(name)
        if packed is None or len(shape := self._checkpoint.shape(name)) != 3 or shape[1] == shape[2]:
            return True
        return shape[1] == 2 * inner if packed["which"] == "gate_up" else shape[2] == inner

    def _finite(self, name: str, index: tuple[int | slice, ...]) -> NDArray[np.float32]:
        values = self._checkpoint.part(name, index).astype(np.float32)
        if not np.isfinite(values).all():
            raise CheckpointError(f"tensor {name!r} holds NaN or infinity")
        return values

    def _is_coded(self, place: _Place) -> bool:
        """Whether it is MXFP4; so counts a tensor that is missing, unless it is there as floats."""
        return place.packed not in self._checkpoint and not self._halves

    def _place(self, name: str) -> _Place | None:
        """Where a tensor of an expert is packed; None of what is a tensor of the checkpoint by itself."""
        own = _OWN.fullmatch(name)
        if own is None or name in self._checkpoint:
            return None
        packed = f"{own['layer']}.{'down' if own['which'] == 'down' else 'gate_up'}_proj"
        packed = self._own_names.get(packed, packed)
        step = 1 if own["which"] == "down" else 2
        return _Place(packed, int(own["expert"]), step, int(own["which"] == "up"))
