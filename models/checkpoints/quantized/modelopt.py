"""NVIDIA's ModelOpt: `MODULE.weight` in FP8 with one `weight_scale`, or in NVFP4 with `weight_scale_2` as well.

What is quantised stands in `config.json` or, of earlier versions, in `hf_quant_config.json` beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...common.errors import CheckpointError, CompileError
from ..checkpoint import FLOATS, Checkpoint
from .fp8 import Float8Tensor
from .keys import ANYTHING, INSTEAD, NAMES, WHERE, check_keys, one_of
from .nvfp4 import GROUP, Nvfp4Tensor
from .scales import BlockScales
from .store import Coded

METHOD = "modelopt"
_WEIGHT, _SCALE, _WHOLE = ".weight", "_scale", "_scale_2"
_OF_INPUTS = ".input_scale"  # activations are quantised as `--quant` says
_BEFORE = ".pre_quant_scale"  # of AWQ, which would change the weights
_DTYPES = {"FP8": "F8_E4M3", "NVFP4": "U8"}
_RULES = {
    "quant_method": ANYTHING,
    "quant_algo": one_of(*_DTYPES),
    "group_size": one_of(GROUP),
    "producer": ANYTHING,
    "config_groups": ANYTHING,  # says the same in the terms of compressed-tensors
    "ignore": NAMES,  # what is stored as floats: the tensors say so themselves
    "exclude_modules": NAMES,
    "kv_cache_quant_algo": ANYTHING,  # caches have the dtype of the graphs
    "kv_cache_scheme": ANYTHING,
    "has_zero_point": one_of(False),
    "pre_quant_scale": one_of(False),
}


@dataclass(frozen=True, slots=True)
class ModelOpt:
    """As `store.Layout`; `algorithm` is one of `_DTYPES`."""

    algorithm: str

    @classmethod
    def read(cls, scheme: Mapping[str, Any]) -> ModelOpt | None:
        """Reads `quantization_config`; CompileError for what is not known, None where caches alone are quantised."""
        check_keys(scheme, _RULES, METHOD)
        if (algorithm := scheme.get("quant_algo")) is None:
            if scheme.get("kv_cache_quant_algo") is None:
                raise CompileError(f"{WHERE}: {METHOD} has no quant_algo, expected {' or '.join(_DTYPES)}{INSTEAD}")
            return None
        return cls(algorithm)

    def names(self, stored: Sequence[str]) -> Iterator[str]:
        known = set(stored)
        for name in stored:
            module = name.removesuffix(_OF_INPUTS).removesuffix(_WEIGHT + _SCALE).removesuffix(_WEIGHT + _WHOLE)
            if module == name or module + _WEIGHT not in known:
                yield name

    def coded(self, store: Checkpoint, name: str) -> Coded | None:
        if not name.endswith(_WEIGHT) or name not in store:
            return None
        dtype, shape = store.dtype(name), store.shape(name)
        if name + _SCALE not in store:
            if dtype in FLOATS:
                return None
            raise CheckpointError(f"{store.where(name)} has dtype {dtype}, but no {name + _SCALE!r} is beside it")
        if dtype != _DTYPES[self.algorithm] or len(shape) != 2:
            raise CheckpointError(
                f"{store.where(name)} has dtype {dtype} and shape {list(shape)}, expected a matrix of "
                f"{_DTYPES[self.algorithm]}, as {WHERE} says {self.algorithm}"
            )
        if (before := name.removesuffix(_WEIGHT) + _BEFORE) in store:
            raise CheckpointError(f"{store.where(before)} is of AWQ, which is not supported{INSTEAD}")
        if self.algorithm == "NVFP4":
            return Nvfp4Tensor(store, name, name + _SCALE, name + _WHOLE, divides=False)
        return Float8Tensor(store, name, BlockScales(store, name + _SCALE, shape, (shape[0], shape[1]), FLOATS))
