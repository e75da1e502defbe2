"""compressed-tensors, as llm-compressor writes it: FP8, NVFP4, and integers of 4 and 8 bits, packed or not.

`config_groups` says how the weights of the modules that its `targets` name are stored. Beside `MODULE.weight`, or
`MODULE.weight_packed` of codes that share a word, lie `MODULE.weight_scale` and others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...common.errors import CheckpointError, CompileError
from ..checkpoint import FLOATS, Checkpoint
from .fp8 import Float8Tensor
from .integers import ORDER, PACKED, SHAPE, ZEROS, IntegerTensor, packed_shape
from .keys import ANYTHING, BLOCK, FLAG, INSTEAD, NAMES, WHERE, Rule, check_keys, is_size, one_of
from .nvfp4 import GROUP, Nvfp4Tensor
from .scales import BlockScales
from .store import Coded

METHOD = "compressed-tensors"
_WEIGHT, _SCALE, _WHOLE = ".weight", "_scale", "_global_scale"
_BESIDE = (_SCALE, _WHOLE, ZEROS, SHAPE, ORDER)
# Of activations, which are quantised as `--quant` says.
_OF_INPUTS = ("input_scale", "input_zero_point", "input_global_scale")
_FORMATS = (
    "dense",
    "naive-quantized",
    "float-quantized",
    "int-quantized",
    "pack-quantized",
    "nvfp4-pack-quantized",
    "mixed-precision",  # each group has its own
)


def _is_dense(got: Any) -> bool:
    return isinstance(got, Mapping) and got.get("format", "dense") == "dense"


_RULES = {
    "quant_method": ANYTHING,
    "config_groups": Rule("an object of groups", lambda got: isinstance(got, Mapping) and bool(got)),
    "format": one_of(*_FORMATS),
    "ignore": NAMES,  # modules that are stored as floats: the tensors say so themselves
    "kv_cache_scheme": ANYTHING,  # caches have the dtype of the graphs
    "quantization_status": one_of("compressed", "frozen"),
    "global_compression_ratio": ANYTHING,
    "sparsity_config": Rule("none, or the format dense", _is_dense),
    "transform_config": Rule("none", lambda got: got == {}),
    "version": ANYTHING,
}
_GROUP_RULES = {
    "targets": NAMES,
    "weights": Rule("an object", lambda got: isinstance(got, Mapping)),
    "input_activations": ANYTHING,
    "format": one_of(*_FORMATS[:-1]),
}
_WEIGHT_RULES = {
    "num_bits": one_of(4, 8),
    "type": one_of("int", "float"),
    "symmetric": FLAG,
    "strategy": one_of("tensor", "channel", "group", "block", "tensor_group"),
    "group_size": Rule("a positive integer or -1", lambda got: is_size(got) or got == -1),
    "block_structure": BLOCK,
    "dynamic": one_of(False),
    "actorder": one_of("group", "weight", "static", "dynamic", True, False),  # the file has the order, where it counts
    "observer": ANYTHING,
    "observer_kwargs": ANYTHING,
    "scale_dtype": ANYTHING,
    "zp_dtype": ANYTHING,
}


@dataclass(frozen=True, slots=True)
class _Group:
    """How the weights of some modules are stored.

    Attributes:
        targets: Names of modules, patterns behind `re:`, or names of classes.
        bits: Of a code.
        floats: Codes are floats, not integers.
        symmetric: There are no zeros.
        block: Rows and inputs that share a scale; 0 stands for all.
    """

    targets: tuple[str, ...]
    bits: int
    floats: bool
    symmetric: bool
    block: tuple[int, int]

    @classmethod
    def read(cls, group: Any, where: str) -> _Group | None:
        """Reads a group; None of one that has no weights."""
        if not isinstance(group, Mapping):
            raise CompileError(
                f"{WHERE}: {where} is {group!r:.80}, expected an object with targets and weights{INSTEAD}"
            )
        check_keys(group, _GROUP_RULES, METHOD, f"{WHERE}: {where}")
        if (weights := group.get("weights")) is None:
            return None
        where = f"{WHERE}: {where}.weights"
        check_keys(weights, _WEIGHT_RULES, METHOD, where)
        size, bits, kind = weights.get("group_size"), weights.get("num_bits", 8), weights.get("type", "int")
        floats, symmetric = kind == "float", weights.get("symmetric", True)
        usual = "tensor" if size is None else "channel" if size == -1 else "group"
        strategy = weights.get("strategy") or usual
        if strategy in ("group", "tensor_group") and not is_size(size):
            raise CompileError(f"{where}: strategy={strategy!r} with group_size={size!r}, expected a positive integer")
        if strategy == "block" and weights.get("block_structure") is None:
            raise CompileError(f"{where}: strategy='block' without block_structure, expected two positive integers")
        if (floats and bits == 4) != (strategy == "tensor_group") or (floats and bits == 4 and size != GROUP):
            raise CompileError(
                f"{where}: num_bits={bits} and type={kind!r} with strategy={strategy!r} and "
                f"group_size={size!r} is not supported; floats of 4 bits have tensor_group and {GROUP}, others have "
                f"neither{INSTEAD}"
            )
        if floats and not symmetric:
            raise CompileError(f"{where}: symmetric=False with type='float' is not supported, expected True{INSTEAD}")
        blocks = {"tensor": (0, 0), "channel": (1, 0), "group": (1, size or 0), "tensor_group": (1, GROUP)}
        block: tuple[int, int] = blocks.get(strategy) or tuple(weights["block_structure"])
        return cls(tuple(group.get("targets") or ()), bits, floats, symmetric, block)

    def names(self, modules: Sequence[str]) -> bool:
        """Whether a target is a module, by one of its names."""
        return any(
            re.match(target.removeprefix("re:"), module) if target.startswith("re:") else target == module
            for target in self.targets
            for module in modules
        )


@dataclass(frozen=True, slots=True)
class Compressed:
    """As `store.Layout`."""

    groups: tuple[_Group, ...]

    @classmethod
    def read(cls, scheme: Mapping[str, Any]) -> Compressed:
        """Reads `quantization_config`; CompileError for what is not known."""
        check_keys(scheme, _RULES, METHOD)
        given = scheme.get("config_groups") or {}
        groups = tuple(
            group for name, one in given.items() if (group := _Group.read(one, f"config_groups.{name}")) is not None
        )
        for target in [target for group in groups for target in group.targets if target.startswith("re:")]:
            try:
                re.compile(target.removeprefix("re:"))
            except re.error as error:
                raise CompileError(f"{WHERE}: the target {target!r:.80} is no regular expression: {error}") from None
        return cls(groups)

    def names(self, stored: Sequence[str]) -> Iterator[str]:
        known = set(stored)
        for name in stored:
            if name.endswith(_WEIGHT + PACKED):
                yield name.removesuffix(PACKED)
                continue
            module, _, what = name.rpartition(".")
            beside = what in _OF_INPUTS or what.removeprefix("weight") in _BESIDE
            if not (beside and {module + _WEIGHT, module + _WEIGHT + PACKED} & known):
                yield name

    def coded(self, store: Checkpoint, name: str) -> Coded | None:
        if not name.endswith(_WEIGHT):
            return None
        packed, plain = name + PACKED in store, name in store
        codes = name + PACKED if packed else name
        if not packed and (not plain or (name + _SCALE not in store and store.dtype(name) in FLOATS)):
            return None
        if name + _SCALE not in store:
            raise CheckpointError(
                f"{store.where(codes)} has dtype {store.dtype(codes)}, but no {name + _SCALE!r} is beside it"
            )
        if len(shape := store.shape(codes)) != 2:
            raise CheckpointError(f"{store.where(codes)} has shape {list(shape)}, expected a matrix")
        group = self._group(store, name)
        # What is packed, of which numbers -> as what.
        form = (packed, group.floats, group.bits)
        dtype = {
            (True, False, 4): "I32",
            (True, False, 8): "I32",
            (True, True, 4): "U8",
            (False, True, 8): "F8_E4M3",
            (False, False, 8): "I8",
            (False, False, 4): "I8",
        }.get(form)
        if dtype is None or store.dtype(codes) != dtype:
            raise CheckpointError(
                f"{store.where(codes)} has dtype {store.dtype(codes)}, but {WHERE} says "
                f"{'floats' if group.floats else 'integers'} of {group.bits} bits"
                f"{'' if dtype is None else f', expected {dtype}'}"
            )
        if dtype == "U8":
            return Nvfp4Tensor(store, codes, name + _SCALE, name + _WHOLE, divides=True)
        outputs, inputs = packed_shape(store, name) if packed else shape
        scales = BlockScales(
            store, name + _SCALE, (outputs, inputs), (group.block[0] or outputs, group.block[1] or inputs), FLOATS
        )
        if group.floats:
            return Float8Tensor(store, name, scales)
        return IntegerTensor(store, name, group.bits, scales, group.symmetric)

    def _group(self, store: Checkpoint, name: str) -> _Group:
        """The group of a weight: one that names its module, or else one for all Linears."""
        if len(self.groups) == 1:
            return self.groups[0]
        modules = [each.removesuffix(_WEIGHT) for each in (store.stored_name(name), name)]
        found = [group for group in self.groups if group.names(modules)]
        found += [group for group in self.groups if "Linear" in group.targets]
        if not found:
            raise CheckpointError(f"{WHERE}: no target of config_groups is {modules[0]!r}, whose weight has codes")
        return found[0]
