"""FP8 as Qwen, DeepSeek, GLM and Mistral publish it: `X` in E4M3, and beside it `X_scale_inv` or `X_scale`.

A value is its code times the scale of its block, or of the whole tensor where `weight_block_size` is null. `X` is
`MODULE.weight`, or the experts of a layer in one tensor [E, N, K].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ..checkpoint import FLOATS, Checkpoint
from .keys import ANYTHING, BLOCK, FLAG, NAMES, check_keys, one_of
from .scales import E4M3, SCALES, BlockScales, float8_values

METHOD = "fp8"
_USUAL_BLOCK = (128, 128)
_INVERSE, _PLAIN = "_scale_inv", "_scale"
# Scales of activations, which are quantised as `--quant` says.
_OF_INPUTS = ("activation_scale", "input_scale")
_RULES = {
    "quant_method": ANYTHING,
    "fmt": one_of("e4m3", "float8_e4m3fn"),
    "activation_scheme": one_of("dynamic", "static"),
    "weight_block_size": BLOCK,
    # What is not converted is stored as floats: the tensors say so themselves.
    "modules_to_not_convert": NAMES,
    "modules_to_convert": NAMES,
    "ignored_layers": NAMES,
    "scale_fmt": one_of("float", "ue8m0"),
    "expert_dtype": one_of("fp8"),
    "dequantize": FLAG,
    "is_checkpoint_fp8_serialized": one_of(True),
}


@dataclass(frozen=True, slots=True)
class Float8Tensor:
    """A tensor in E4M3, [.., N, K], and its scales; as `store.Coded`."""

    store: Checkpoint
    name: str
    scales: BlockScales

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its codes."""
        return self.store.shape(self.name)

    def check(self) -> None:
        self.store.check(self.name, self.shape, (E4M3,))
        self.scales.check()

    def rows(self, several: tuple[int, ...], start: int, stop: int) -> NDArray[np.float32]:
        codes = self.store.part(self.name, (*several, slice(start, stop)))
        return float8_values(E4M3)[codes] * self.scales.rows(several, start, stop)


@dataclass(frozen=True, slots=True)
class Fp8:
    """As `store.Layout`; `block` is None where a tensor has one scale."""

    block: tuple[int, int] | None

    @classmethod
    def read(cls, scheme: Mapping[str, Any]) -> Fp8:
        """Reads `quantization_config`; CompileError for what is not known."""
        check_keys(scheme, _RULES, METHOD)
        rows, columns = scheme.get("weight_block_size", _USUAL_BLOCK) or (0, 0)
        return cls((rows, columns) if rows else None)

    def names(self, stored: Sequence[str]) -> Iterator[str]:
        known = set(stored)
        for name in stored:
            of = name.removesuffix(_INVERSE).removesuffix(_PLAIN)
            if not (name.endswith(_OF_INPUTS) or (of != name and of in known)):
                yield name

    def coded(self, store: Checkpoint, name: str) -> Float8Tensor | None:
        if name not in store:
            return None
        scales = next((name + end for end in (_INVERSE, _PLAIN) if name + end in store), None)
        dtype, shape = store.dtype(name), store.shape(name)
        if scales is None:
            if dtype != E4M3:
                return None
            raise CheckpointError(f"{store.where(name)} has dtype {dtype}, but no {name + _INVERSE!r} is beside it")
        if dtype != E4M3:
            if dtype in FLOATS:
                raise CheckpointError(
                    f"{store.where(name)} has dtype {dtype}, but {scales!r} beside it; expected one of {E4M3}"
                )
            raise CheckpointError(f"{store.where(name)} has dtype {dtype}, expected {E4M3} by quantization_config")
        if len(shape) not in (2, 3):
            raise CheckpointError(f"{store.where(name)} has shape {list(shape)}, expected a matrix, or one an expert")
        # AutoFP8's files have one scale, and say nothing of blocks.
        whole = self.block is None or (scales.endswith(_PLAIN) and store.shape(scales) == (1,))
        block = (shape[-2], shape[-1]) if whole or self.block is None else self.block
        return Float8Tensor(store, name, BlockScales(store, scales, shape, block, (*SCALES, "U8")))
