"""Which module reads a `quant_method` of `quantization_config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...common.errors import CompileError
from .. import four_bit, packed_experts
from ..checkpoint import Checkpoint, PartStore
from ..four_bit import FourBit, FourBitCheckpoint
from . import bitsandbytes, compressed, fp8, modelopt
from .keys import WHERE
from .store import DecodedTensors, Layout

Scheme: TypeAlias = FourBit | Layout

_READERS: Mapping[str, Callable[[Mapping[str, Any]], Scheme | None]] = {
    **dict.fromkeys(four_bit.METHODS, four_bit.four_bit_scheme),
    packed_experts.METHOD: lambda _: None,  # of the experts alone, whose tensors say so themselves
    fp8.METHOD: fp8.Fp8.read,
    compressed.METHOD: compressed.Compressed.read,
    bitsandbytes.METHOD: bitsandbytes.BitsAndBytes.read,
    modelopt.METHOD: modelopt.ModelOpt.read,
}
METHODS = tuple(_READERS)


def scheme_of(config: Mapping[str, Any]) -> Scheme | None:
    """Reads `quantization_config` of a config.json; None where there is none, or no Linear is stored as codes.

    Raises:
        CompileError: A method or layout that is not read here.
    """
    text = config.get("text_config")  # of models that see, some say it there
    scheme = config.get(WHERE) or (text.get(WHERE) if isinstance(text, Mapping) else None)
    if not scheme:
        return None
    method = scheme.get("quant_method", "?") if isinstance(scheme, Mapping) else scheme
    if method == "?" and bitsandbytes.is_meant(scheme):
        method = bitsandbytes.METHOD
    if not isinstance(scheme, Mapping) or method not in METHODS:
        raise CompileError(
            f"the checkpoint is already quantised ({method!r}), which is not read here; expected one of "
            f"{', '.join(METHODS)}; use one of these, the original checkpoint in bf16, or a GGUF file, or save the "
            "model from transformers after model.dequantize()"
        )
    return _READERS[method](scheme)


def decoded(checkpoint: Checkpoint, config: Mapping[str, Any]) -> PartStore | FourBitCheckpoint:
    """Returns a checkpoint as floats, whatever its config.json says of how it is quantised.

    Raises:
        CompileError: As `scheme_of`.
    """
    scheme = scheme_of(config)
    if scheme is None:
        return checkpoint
    return FourBitCheckpoint(checkpoint, scheme) if isinstance(scheme, FourBit) else DecodedTensors(checkpoint, scheme)
