"""What each of several devices computes: Linears are cut by outputs, what mixes tokens by heads (numerics.md, 8)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.errors import CompileError
from ..model_config import ModelConfig
from ..weights.packing import BLOCK
from ..weights.roles import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The part of one device; of a single device, everything.

    Attributes:
        rank: Of the device.
        ndevice: How many there are.
        kv_heads: How many KV heads it has.
        hidden: Its outputs of the projections back to the hidden size.
        inner: Its outputs of gate and of up, or of up alone.
        expert_inner: The same of each expert; empty where there are none.
        vocab: Its logits.
    """

    rank: int
    ndevice: int
    kv_heads: int
    hidden: range
    inner: range
    expert_inner: range
    vocab: range

    def even(self, count: int) -> range:
        """Its part of what devices share out evenly."""
        return range(self.rank * count // self.ndevice, (self.rank + 1) * count // self.ndevice)

    def rows(self, role: Role, sections: Sequence[int]) -> list[range] | None:
        """Returns which rows of a weight it takes, in order; None for all of a weight that is not cut.

        `sections` are the rows of what lies side by side in the weight, by heads.
        """
        if role.cut == "heads":
            ends = itertools.accumulate(sections)
            return [_moved(self.even(rows), end - rows) for rows, end in zip(sections, ends, strict=True)]
        if role.cut == "inner":
            return [_scaled(self.inner, 2)]  # a block of gate, a block of up
        if role.cut == "inner_alone":
            return [self.inner]
        if role.cut == "expert_inner":
            return [_scaled(self.expert_inner, 2)]
        if role.cut == "expert_alone":
            return [self.expert_inner]
        if role.cut == "hidden":
            return [self.hidden]
        return [self.vocab] if role.cut == "vocab" else None

    def weight_name(self, role: Role, layer: int | None) -> str:
        """Returns what its part of a weight is called in the package."""
        whole = self.ndevice == 1 or role.cut is None
        return role.name_of(layer) if whole else f"{role.name_of(layer)}.{self.rank}of{self.ndevice}"


def shards_of(config: ModelConfig, ndevice: int) -> list[Shard]:
    """Returns the parts of all devices in rank order.

    Raises:
        CompileError: KV heads that cannot be shared out evenly, or a device without outputs of some Linear.
    """
    if config.num_kv_heads % ndevice:
        raise CompileError(
            f"--ndevice {ndevice} does not divide the model's {config.num_kv_heads} KV heads; attention is split by "
            "whole heads, equally many on each device"
        )
    hidden = _tiles("hidden_size", config.hidden_size, ndevice)
    inner = _tiles("intermediate_size", config.padded_intermediate, ndevice)
    experts = config.experts
    expert_inner = (
        [range(0)] * ndevice if experts is None else _tiles("the size of an expert", experts.padded_inner, ndevice)
    )
    vocab = _tiles("vocab_size" if config.classes is None else "the number of classes", config.head_outputs, ndevice)
    return [
        Shard(
            rank=rank,
            ndevice=ndevice,
            kv_heads=config.num_kv_heads // ndevice,
            hidden=hidden[rank],
            inner=inner[rank],
            expert_inner=expert_inner[rank],
            vocab=vocab[rank],
        )
        for rank in range(ndevice)
    ]


def _tiles(what: str, extent: int, parts: int) -> list[range]:
    """Cuts in whole blocks of 16, which keeps packed weights as they are; the first parts get what is left over."""
    blocks = -(-extent // BLOCK)
    if blocks < parts:
        raise CompileError(
            f"--ndevice {parts} leaves a device without outputs: {what}={extent} are {blocks} blocks of {BLOCK}"
        )
    ends = [min((part * (blocks // parts) + min(part, blocks % parts)) * BLOCK, extent) for part in range(parts + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(ends)]


def _scaled(part: range, factor: int) -> range:
    return range(part.start * factor, part.stop * factor)


def _moved(part: range, offset: int) -> range:
    return range(part.start + offset, part.stop + offset)
