"""Checkpoints whose Linears are GPTQ, AWQ or AutoRound, 4 bits: their codes as they are, or what these stand for.

A weight is (code - zero) * scale, with a scale and a zero for each output and group of inputs. GPTQ packs eight inputs
of an output into an int32, AWQ eight outputs of an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.weight_format import GROUP

from ..common.errors import CheckpointError, CompileError
from .checkpoint import Checkpoint
from .quantized.keys import Rule, check_keys, one_of

METHODS = ("gptq", "awq", "auto-round", "intel/auto-round")
_PER_WORD = 8
_MIDDLE = 8  # the zero of symmetric codes: 0..15 stand for -8..7
# Which of eight neighbouring outputs each nibble of an AWQ word holds, the lowest first.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_OTHER_WAY = "; another --quant, such as w8a8h1_sefp, quantises its values again"
# Who packed the codes, and what is added to a zero of the file, by the layout that a method's config names.
_LAYOUTS: Mapping[str, Mapping[str, tuple[Literal["gptq", "awq"], int]]] = {
    "gptq": {"gptq": ("gptq", 1), "gptq_v2": ("gptq", 0)},
    "awq": {"gemm": ("awq", 0)},
    "auto-round": {
        "auto_round:auto_gptq": ("gptq", 1),
        "auto_round:gptq": ("gptq", 1),
        "auto_round:gptq:exllamav2": ("gptq", 1),
        "auto_round:gptqmodel": ("gptq", 0),
        "auto_round": ("gptq", 0),
        "auto_round:auto_awq": ("awq", 0),
    },
}


def _all_of(got: Any, fits: Callable[[str, Any], bool]) -> bool:
    """Whether `got` is an object, or nothing, all of whose members fit."""
    return not got or (isinstance(got, Mapping) and all(fits(*member) for member in got.items()))


def _is_wide(module: Any) -> bool:
    bits = module.get("bits") if isinstance(module, Mapping) else None
    return isinstance(bits, int) and bits > 8


# Keys that change what a code stands for. Their programs ignore those that they do not know, and so do we.
_RULES = {
    "adapter": Rule("nothing", lambda got: not got),
    "backend": Rule("another than llm-awq, which packs otherwise", lambda got: got != "llm-awq"),
    "data_type": one_of("int"),
    "dynamic": Rule(
        "rules that leave modules as they are ('-:...')", lambda got: _all_of(got, lambda n, _: n[:1] == "-")
    ),
    "extra_config": Rule("modules in more than 8 bits", lambda got: _all_of(got, lambda _, of: _is_wide(of))),
    "is_marlin_format": one_of(False),
    "pack_dtype": one_of("int32"),
}


@dataclass(frozen=True, slots=True)
class FourBit:
    """How the weights of a checkpoint are stored.

    Attributes:
        method: Who wrote them.
        group: Inputs that share a scale; None for all of them.
        stored_zero: What is added to a zero of the file.
    """

    method: Literal["gptq", "awq"]
    group: int | None
    stored_zero: int


def four_bit_scheme(scheme: Mapping[str, Any]) -> FourBit:
    """Reads `quantization_config`, whose `quant_method` is one of `METHODS`.

    Raises:
        CompileError: A layout that is not read here.
    """
    method = scheme["quant_method"]
    bits, group = scheme.get("bits"), scheme.get("group_size", 128)
    if bits != 4:
        raise CompileError(
            f"quantization_config: bits={bits!r} is not supported, only 4: the scales of our 8-bit format are powers "
            "of two; use the original bf16 checkpoint"
        )
    if isinstance(group, bool) or not isinstance(group, int) or not (group == -1 or group > 0):
        raise CompileError(f"quantization_config: group_size must be a positive integer or -1, got {group!r}")
    check_keys({key: scheme[key] for key in _RULES if key in scheme}, _RULES, method)
    if method in ("gptq", "awq"):
        key, layout = ("version", "gemm") if method == "awq" else ("checkpoint_format", "gptq")
        layout = str(scheme.get(key) or scheme.get("format") or layout).lower()
    else:
        method, key = "auto-round", "packing_format" if "packing_format" in scheme else "backend"
        layout = str(scheme.get(key)).lower()
    if layout not in _LAYOUTS[method]:
        known = " and ".join(_LAYOUTS[method])
        raise CompileError(f"quantization_config: {key}={layout!r:.80} is not supported, only {known}")
    packed, stored_zero = _LAYOUTS[method][layout]
    return FourBit(packed, None if group == -1 else group, stored_zero)


class FourBitCheckpoint:
    """As `Checkpoint`; `X.qweight`, `X.qzeros`, `X.scales` and `X.g_idx` are seen as one tensor `X.weight`."""

    def __init__(self, checkpoint: Checkpoint, scheme: FourBit) -> None:
        self._inner, self._scheme = checkpoint, scheme
        self._packed = {name.removesuffix(".qweight") for name in checkpoint.names() if name.endswith(".qweight")}

    def __contains__(self, name: str) -> bool:
        return self._stem(name) is not None or name in self._inner

    def names(self) -> list[str]:
        own = {f"{stem}.{part}" for stem in self._packed for part in _PARTS}
        return [f"{stem}.weight" for stem in self._packed] + [name for name in self._inner.names() if name not in own]

    def shape(self, name: str) -> tuple[int, ...]:
        if (stem := self._stem(name)) is None:
            return self._inner.shape(name)
        first, second = self._inner.shape(f"{stem}.qweight")
        return (second, first * _PER_WORD) if self._scheme.method == "gptq" else (second * _PER_WORD, first)

    def check(self, name: str, shape: Sequence[int]) -> None:
        """Raises CheckpointError unless the tensor exists and all that it is made of has the shape for it."""
        if (stem := self._stem(name)) is None:
            return self._inner.check(name, shape)
        outputs, inputs = shape
        groups = -(-inputs // self._group(inputs))
        gptq = self._scheme.method == "gptq"
        words = (inputs // _PER_WORD, outputs) if gptq else (inputs, outputs // _PER_WORD)
        self._inner.check(f"{stem}.qweight", words, ("I32",))
        self._inner.check(f"{stem}.qzeros", (groups, outputs // _PER_WORD), ("I32",))
        self._inner.check(f"{stem}.scales", (groups, outputs))
        if f"{stem}.g_idx" in self._inner:
            self._inner.check(f"{stem}.g_idx", (inputs,), ("I32",))
            used = self._inner.integers(f"{stem}.g_idx")
            if used.min() < 0 or used.max() >= groups:
                raise CheckpointError(f"tensor '{stem}.g_idx' names groups {used.min()} to {used.max()} of {groups}")

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        if (stem := self._stem(name)) is None:
            return self._inner.read(name, start, stop)
        outputs, inputs = self.shape(name)
        stop = outputs if stop is None else stop
        group_of = self._groups_of_inputs(stem, inputs)
        zeros, scales = self._zeros(stem, start, stop), self._inner.read(f"{stem}.scales")[:, start:stop]
        codes = self._words(stem, start, stop)
        return np.ascontiguousarray(((codes - zeros[group_of]) * scales[group_of]).T, np.float32)

    def has_codes(self, name: str) -> bool:
        return self._stem(name) is not None

    def check_codes(self, name: str) -> None:
        stem = self._stem(name)
        assert stem is not None
        outputs, inputs = self.shape(name)
        group = self._group(inputs)
        if group % GROUP:
            raise CheckpointError(
                f"tensor {name!r} has a scale for each {group} inputs, our 4-bit format one for {GROUP}{_OTHER_WAY}"
            )
        if (self._groups_of_inputs(stem, inputs) != np.arange(inputs) // group).any():
            raise CheckpointError(
                f"tensor '{stem}.g_idx' puts inputs in the order of their activations (desc_act), but those of a group "
                f"lie side by side in our 4-bit format{_OTHER_WAY}"
            )
        zeros = self._zeros(stem, 0, outputs)
        if (other := zeros[zeros != _MIDDLE]).size:
            raise CheckpointError(
                f"tensor '{stem}.qzeros' holds a zero of {other[0]}, expected {_MIDDLE} everywhere (symmetric): our "
                f"4-bit format has no zeros{_OTHER_WAY}"
            )
        scales = self._inner.read(f"{stem}.scales")
        if (scales.astype(np.float16) != scales).any():
            raise CheckpointError(f"tensor '{stem}.scales' holds numbers that fp16 does not{_OTHER_WAY}")

    def codes(self, name: str, start: int, stop: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """Returns rows of a tensor as `packing.pack` takes them, where `check_codes` has nothing against it.

        Returns:
            Codes [stop - start, K] in -8..7 and scales [stop - start, K / 64].
        """
        stem = self._stem(name)
        assert stem is not None
        _, inputs = self.shape(name)
        codes = (self._words(stem, start, stop) - np.int8(_MIDDLE)).T
        scales = self._inner.read(f"{stem}.scales")[:, start:stop].T.astype(np.float16)
        return np.ascontiguousarray(codes), np.repeat(scales, self._group(inputs) // GROUP, axis=1)

    def _stem(self, name: str) -> str | None:
        stem = name.removesuffix(".weight")
        return stem if stem != name and stem in self._packed else None

    def _group(self, inputs: int) -> int:
        return self._scheme.group or inputs

    def _groups_of_inputs(self, stem: str, inputs: int) -> NDArray[np.int32]:
        if f"{stem}.g_idx" in self._inner:
            return self._inner.integers(f"{stem}.g_idx")
        return np.arange(inputs, dtype=np.int32) // self._group(inputs)

    def _words(self, stem: str, start: int, stop: int) -> NDArray[np.int8]:
        """Codes [K, stop - start] in 0..15."""
        name = f"{stem}.qweight"
        if self._scheme.method == "awq":
            return self._by_outputs(name, start, stop)
        nibbles = _nibbles(self._inner.integers(name, columns=slice(start, stop)))  # [K / 8, n, 8]
        return nibbles.transpose(0, 2, 1).reshape(-1, stop - start)

    def _zeros(self, stem: str, start: int, stop: int) -> NDArray[np.int8]:
        """[groups, stop - start]."""
        return self._by_outputs(f"{stem}.qzeros", start, stop) + np.int8(self._scheme.stored_zero)

    def _by_outputs(self, name: str, start: int, stop: int) -> NDArray[np.int8]:
        """Nibbles of words that hold eight neighbouring outputs each, [rows, stop - start]."""
        first = start // _PER_WORD
        nibbles = _nibbles(self._inner.integers(name, columns=slice(first, -(-stop // _PER_WORD))))
        if self._scheme.method == "awq":
            nibbles = nibbles[:, :, np.argsort(_AWQ_ORDER)]
        flat = nibbles.reshape(len(nibbles), -1)
        return flat[:, start - first * _PER_WORD : stop - first * _PER_WORD]


def _nibbles(words: NDArray[np.int32]) -> NDArray[np.int8]:
    """[..] -> [.., 8], the lowest first."""
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    return ((words.view(np.uint32)[..., None] >> shifts) & 15).astype(np.int8)
