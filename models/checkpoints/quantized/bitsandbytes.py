"""bitsandbytes: NF4 and FP4 in blocks of a flattened weight, and int8 with a scale for each output.

Of 4 bits, `MODULE.weight` is two codes a byte, the upper half first, and `MODULE.weight.absmax` has a scale for each
block; with double quantisation these are bytes again, in larger blocks. Of 8 bits, `MODULE.SCB` has the largest
magnitude of each output.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError, CompileError
from ..checkpoint import FLOATS, Checkpoint
from .keys import ANYTHING, FLAG, INSTEAD, NAMES, WHERE, check_keys, is_size, one_of
from .scales import checked, nibbles, numbers
from .store import Coded

METHOD = "bitsandbytes"
_WEIGHT = ".weight"
_STATE = ".quant_state.bitsandbytes__"
_BLOCKS, _VALUES, _OUTER_BLOCKS, _OUTER_VALUES = ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"
_LARGEST, _FORMAT = ".SCB", ".weight_format"
_ONE_127TH = np.float32(7.874015718698502e-3)  # as bitsandbytes has it
_MOST_STATE, _MOST_OFFSET = 1 << 16, 3.4e38
_RULES = {
    "quant_method": ANYTHING,
    "load_in_4bit": FLAG,
    "load_in_8bit": FLAG,
    "_load_in_4bit": FLAG,
    "_load_in_8bit": FLAG,
    "bnb_4bit_quant_type": one_of("nf4", "fp4"),
    "bnb_4bit_use_double_quant": FLAG,  # the tensors of each weight say so
    "bnb_4bit_compute_dtype": ANYTHING,
    "bnb_4bit_quant_storage": one_of("uint8"),
    "llm_int8_threshold": ANYTHING,  # of activations
    "llm_int8_enable_fp32_cpu_offload": FLAG,
    "llm_int8_has_fp16_weight": one_of(False),
    "llm_int8_skip_modules": NAMES,
}


def is_meant(scheme: Mapping[str, Any]) -> bool:
    """Whether a `quantization_config` without `quant_method` is of bitsandbytes, as early ones are."""
    return bool(scheme.get("load_in_4bit") or scheme.get("load_in_8bit"))


@dataclass(frozen=True, slots=True)
class _State:
    """What a file says of a weight in 4 bits."""

    shape: tuple[int, int]
    block: int
    outer_block: int
    offset: float

    @classmethod
    def read(cls, store: Checkpoint, name: str) -> _State:
        where = store.where(name)
        if len(shape := store.shape(name)) != 1 or store.dtype(name) != "U8" or shape[0] > _MOST_STATE:
            raise CheckpointError(f"{where} has shape {list(shape)}, expected at most {_MOST_STATE} bytes of JSON")
        try:
            given = json.loads(store.part(name, (slice(None),)).tobytes())
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{where} cannot be read as JSON: {error}") from None
        given = given if isinstance(given, dict) else {}
        sizes, block = given.get("shape"), given.get("blocksize")
        if not isinstance(sizes, list) or len(sizes) != 2 or not all(map(is_size, sizes)) or not is_size(block):
            raise CheckpointError(
                f"{where} says shape={sizes!r:.80} and blocksize={block!r:.80}, expected two sizes and one"
            )
        outer, offset = given.get("nested_blocksize", 256), given.get("nested_offset", 0.0)
        if not is_size(outer) or not isinstance(offset, (int, float)) or not abs(offset) < _MOST_OFFSET:
            raise CheckpointError(
                f"{where} says nested_blocksize={outer!r:.80} and nested_offset={offset!r:.80}, expected a size and a "
                "number"
            )
        return cls((sizes[0], sizes[1]), block, outer, float(offset))


@dataclass(frozen=True, slots=True)
class _FourBit:
    """A weight in NF4 or FP4; as `store.Coded`."""

    store: Checkpoint
    name: str
    state: _State

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the floats."""
        return self.state.shape

    def check(self) -> None:
        elements = math.prod(self.shape)
        blocks = -(-elements // self.state.block)
        self.store.check(self.name, (-(-elements // 2), 1), ("U8",))
        self.store.check(self.name + _VALUES, (16,), FLOATS)
        if self._nested:
            self.store.check(self.name + _BLOCKS, (blocks,), ("U8",))
            self.store.check(self.name + _OUTER_VALUES, (256,), FLOATS)
            self.store.check(self.name + _OUTER_BLOCKS, (-(-blocks // self.state.outer_block),), FLOATS)
        else:
            self.store.check(self.name + _BLOCKS, (blocks,), FLOATS)
        self._numbers(_VALUES)
        self._scales(0, elements)

    def rows(self, several: tuple[int, ...], start: int, stop: int) -> NDArray[np.float32]:
        inputs = self.shape[1]
        first, last = start * inputs, stop * inputs
        packed = self.store.part(self.name, (slice(first // 2, -(-last // 2)), 0))
        codes = nibbles(packed, low_first=False)[first % 2 :][: last - first]
        return (self._numbers(_VALUES)[codes] * self._scales(first, last)).reshape(stop - start, inputs)

    @property
    def _nested(self) -> bool:
        return self.name + _OUTER_BLOCKS in self.store

    def _numbers(self, what: str, part: slice = slice(None)) -> NDArray[np.float32]:
        # A block of zeros has the scale zero.
        return checked(self.store, self.name + what, numbers(self.store, self.name + what, (part,)), zeros=True)

    def _scales(self, first: int, last: int) -> NDArray[np.float32]:
        """Of elements of the flattened weight."""
        blocks = _Range(first, last, self.state.block)
        if not self._nested:
            return blocks.each(self._numbers(_BLOCKS, blocks.part))
        outer = _Range(blocks.part.start, blocks.part.stop, self.state.outer_block)
        codes = self.store.part(self.name + _BLOCKS, (blocks.part,))
        largest = outer.each(self._numbers(_OUTER_BLOCKS, outer.part))
        return blocks.each(self._numbers(_OUTER_VALUES)[codes] * largest + np.float32(self.state.offset))


class _Range:
    """Elements first..last, in blocks of one size."""

    def __init__(self, first: int, last: int, block: int) -> None:
        self.part = slice(first // block, -(-last // block))
        self._skip, self._count, self._block = first % block, last - first, block

    def each(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """That of its block, for each element."""
        return np.repeat(values, self._block)[self._skip :][: self._count]


@dataclass(frozen=True, slots=True)
class _EightBit:
    """A weight in int8; as `store.Coded`."""

    store: Checkpoint
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its codes."""
        return self.store.shape(self.name)

    def check(self) -> None:
        module = self.name.removesuffix(_WEIGHT)
        self.store.check(self.name, self.shape, ("I8",))
        self.store.check(module + _LARGEST, self.shape[:1], FLOATS)
        self._largest(0, self.shape[0])
        if (form := module + _FORMAT) in self.store and self.store.part(form, (slice(None),)).any():
            raise CheckpointError(f"{self.store.where(form)} is not 0, expected codes row by row")

    def rows(self, several: tuple[int, ...], start: int, stop: int) -> NDArray[np.float32]:
        codes = self.store.part(self.name, (slice(start, stop),)).astype(np.float32)
        return codes * self._largest(start, stop)[:, None] * _ONE_127TH

    def _largest(self, start: int, stop: int) -> NDArray[np.float32]:
        name = self.name.removesuffix(_WEIGHT) + _LARGEST
        return checked(self.store, name, numbers(self.store, name, (slice(start, stop),)), zeros=True)


@dataclass(frozen=True, slots=True)
class BitsAndBytes:
    """As `store.Layout`."""

    bits: int

    @classmethod
    def read(cls, scheme: Mapping[str, Any]) -> BitsAndBytes:
        """Reads `quantization_config`; CompileError for what is not known."""
        check_keys(scheme, _RULES, METHOD)
        four, eight = (bool(scheme.get(f"load_in_{bits}bit")) for bits in (4, 8))
        if four == eight:
            raise CompileError(f"{WHERE}: load_in_4bit={four} and load_in_8bit={eight}, expected one of them{INSTEAD}")
        return cls(4 if four else 8)

    def names(self, stored: Sequence[str]) -> Iterator[str]:
        known = set(stored)
        for name in stored:
            weight, parted, _ = name.partition(_WEIGHT + ".")
            module = weight if parted else name.removesuffix(_LARGEST).removesuffix(_FORMAT)
            if module == name or module + _WEIGHT not in known:
                yield name

    def coded(self, store: Checkpoint, name: str) -> Coded | None:
        if not name.endswith(_WEIGHT) or name not in store or (dtype := store.dtype(name)) in FLOATS:
            return None
        if dtype != ("U8" if self.bits == 4 else "I8"):
            raise CheckpointError(f"{store.where(name)} has dtype {dtype}, but {WHERE} says {self.bits} bits")
        if self.bits == 8:
            if len(shape := store.shape(name)) != 2:
                raise CheckpointError(f"{store.where(name)} has shape {list(shape)}, expected a matrix")
            return _EightBit(store, name)
        states = [name + _STATE + kind for kind in ("nf4", "fp4")]
        state = next((each for each in states if each in store), None)
        if state is None:
            raise CheckpointError(f"{store.where(name)} has dtype {dtype}, but no {states[0]!r} is beside it")
        return _FourBit(store, name, _State.read(store, state))
