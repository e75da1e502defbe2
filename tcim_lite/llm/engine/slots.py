"""The device side: graphs, caches, and how many rows each slot holds.

A slot is one lane of a decode graph: a valid length, a current length and KV caches of its own. The decode graph owns
the caches; the prefill graph, which takes one prompt, is bound to the caches of the slot that it works for.

**The idle-slot rule.** A decode run writes one cache row in every slot, at the slot's valid length: a current length of
0 is refused (llm-graphs 2.1, G-7). A slot that takes no part therefore passes its own number of rows. The row written
there is behind what is valid, and the slot's next token overwrites it. Passing 0 would destroy row 0 of a prompt in
mid-prefill, and of rows kept for the next prompt. A full slot has no such row, so an idle one gives up its last.
`Slots.decode` is the only place that runs a decode graph of several slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..kv_cache import cache_names
from ..package import Package
from ..prompt import last_logits, run_graph, takes_positions


@dataclass(frozen=True)
class Lane:
    """Names of one slot's inputs of the decode graph."""

    valid: str
    current: str
    positions: str | None
    caches: tuple[str, ...]


class Slots:
    """Prefill and decode over the slots of a package.

    Args:
        prefill: Module of one prompt, [1, P, H] to logits [1, 1, V] (or [1, P, V]).
        decode: Module of B slots, [B, 1, H] to logits [B, 1, V]; it owns the caches.
        embedding: [V, H] table.

    Attributes:
        tokens: What the caches of each slot hold, one list for each. Its length is the number of valid rows. A tail may
            be deleted to forget it: rows behind the valid length are never read.
        context_length: Rows C of a slot.
        chunk_length: Tokens P that one prefill run takes.
        vocab_size: V.
        row_bytes: Of one token in all caches of a slot.

    Raises:
        ValueError: The graphs do not fit together.
    """

    def __init__(self, prefill: Any, decode: Any, embedding: np.ndarray):
        self._prefill, self._decode, self._embedding = prefill, decode, embedding
        self.lanes = _lanes(decode)
        self._prefill_caches = cache_names(prefill)
        first = self.lanes[0].caches
        if len(first) != len(self._prefill_caches):
            raise ValueError(
                f"the prefill graph has {len(self._prefill_caches)} KV caches, a slot of the decode graph "
                f"{len(first)}; use both of one package"
            )
        self.chunk_length = prefill.get_input_info(prefill.get_input_name(0)).shape[1]
        self.context_length = decode.get_input_info(first[0]).shape[2]
        self.vocab_size = decode.get_output_info(decode.get_output_name(0)).shape[-1]
        self._rows_name, self._logits_name = decode.get_input_name(0), decode.get_output_name(0)
        self._caches = [[decode.get_dev_input(name) for name in lane.caches] for lane in self.lanes]
        self.row_bytes = sum(cache.mem_size for cache in self._caches[0]) // self.context_length
        self._bound: int | None = None
        self._rows = np.zeros((len(self.lanes), 1, embedding.shape[1]), embedding.dtype)
        self._lengths = [-1] * len(self.lanes)  # valid lengths the graph has now
        self.tokens: list[list[int]] = [[] for _ in self.lanes]
        for lane in self.lanes:
            decode.set_input(lane.current, np.array([1], np.int32))  # set once: inputs keep their value

    @classmethod
    def open(
        cls, package: Package | str | PathLike[str], *, name: str | None = None, devices: Sequence[int] = (0,)
    ) -> Slots:
        """Loads a package: a pair or a batch package on one device, `.hmms` graphs on several.

        Raises:
            FileNotFoundError: As `Package.open`, or the package has no graphs for that many devices.
            TcimError: A file that cannot be loaded.
            ValueError: No devices, or graphs that do not fit together.
        """
        if not isinstance(package, Package):
            package = Package.open(Path(package), name)
        if not devices:
            raise ValueError("devices is empty; name at least one, such as [0]")
        if len(devices) == 1:
            weights = tcim.WeightManager(devices[0])
            prefill_path, decode_path = package.prefill_path, package.decode_path
        else:
            weights = tcim.WeightManager(tcim.DevManager(list(devices), "Xh2HalBackend"))
            prefill_path, decode_path = package.graph("prefill.hmms"), package.graph("decode.hmms")
        decode = tcim.load(str(decode_path), option=tcim.Option(weights))
        # Slot 0 has the names of prefill. Declared as dummies, they cost prefill no memory.
        option = tcim.Option(weights).set_dummy_tensors(list(_lanes(decode)[0].caches))
        prefill = tcim.load(str(prefill_path), option=option)
        return cls(prefill, decode, package.embedding_for(prefill))

    def __len__(self) -> int:
        """The number of slots, B."""
        return len(self.lanes)

    def prefill(self, slot: int, tokens: Sequence[int]) -> np.ndarray:
        """Appends at most `chunk_length` tokens to a slot; returns the logits [V] after the last.

        Any cut of a prompt gives the same bits.

        Raises:
            ValueError: No tokens, more than one chunk takes, or more than fit behind the slot's rows.
        """
        held = self.tokens[slot]
        if not 0 < len(tokens) <= self.chunk_length:
            raise ValueError(f"{len(tokens)} tokens: one prefill run takes 1 to {self.chunk_length}")
        if len(held) + len(tokens) > self.context_length:
            raise ValueError(
                f"{len(held)} + {len(tokens)} tokens do not fit into the {self.context_length} rows of a slot"
            )
        if self._bound != slot:
            self._bound = None  # until all are bound
            for name, cache in zip(self._prefill_caches, self._caches[slot], strict=True):
                self._prefill.set_dev_input(name, cache)
            self._bound = slot
        rows = np.zeros((1, self.chunk_length, self._embedding.shape[1]), self._embedding.dtype)
        rows[0, : len(tokens)] = self._embedding[list(tokens)]
        logits = run_graph(self._prefill, rows, len(held), len(tokens))
        held.extend(tokens)
        return last_logits(logits, len(tokens))

    def decode(self, tokens: Mapping[int, int]) -> np.ndarray:
        """Appends one token to each slot named; the others keep their rows (the idle-slot rule).

        Args:
            tokens: Slot number to token id.

        Returns:
            Logits [B, V]; those of slots that took no part mean nothing.

        Raises:
            ValueError: A slot named is full.
        """
        for slot in tokens:
            if len(self.tokens[slot]) >= self.context_length:
                raise ValueError(f"slot {slot} is full: it holds {self.context_length} rows")
        for slot, (lane, held) in enumerate(zip(self.lanes, self.tokens, strict=True)):
            if slot in tokens:
                self._rows[slot, 0] = self._embedding[tokens[slot]]
            else:
                self._rows[slot, 0] = 0
                del held[self.context_length - 1 :]  # no row behind these to write to
            length = len(held)
            if slot in tokens or self._lengths[slot] != length:  # those of slots at work always change (S-203)
                self._lengths[slot] = -1
                value = np.array([length], np.int32)
                self._decode.set_input(lane.valid, value)
                if lane.positions is not None:
                    self._decode.set_input(lane.positions, value.reshape(1, 1))
                self._lengths[slot] = length
        self._decode.set_input(self._rows_name, self._rows)
        self._decode.run()
        self._decode.sync()
        for slot, token in tokens.items():
            self.tokens[slot].append(token)
        return self._decode.get_output(self._logits_name).numpy().reshape(len(self.lanes), self.vocab_size)

    def read_rows(self, slot: int) -> list[np.ndarray]:
        """Copies of the valid rows of a slot's caches, each [1, Hkv, rows, D], in the order of the graph."""
        count = len(self.tokens[slot])
        return [_first_rows(cache, count).to_host(True).numpy() for cache in self._caches[slot]]

    def write_rows(self, slot: int, tokens: Sequence[int], rows: Sequence[np.ndarray]) -> None:
        """Makes a slot hold `tokens`, whose rows `read_rows` gave: each [1, Hkv, at least len(tokens), D]."""
        self.tokens[slot] = []
        for cache, values in zip(self._caches[slot], rows, strict=True):
            part = np.ascontiguousarray(values[:, :, : len(tokens)])
            tcim.Tensor(tcim.TensorInfo(part.shape, part.dtype.type), part).copy_to(_first_rows(cache, len(tokens)))
        self.tokens[slot] = list(tokens)

    def copy_rows(self, source: int, target: int, count: int) -> None:
        """Makes one slot hold the first `count` tokens of another, without the host."""
        self.tokens[target] = []
        for theirs, ours in zip(self._caches[source], self._caches[target], strict=True):
            _first_rows(theirs, count).copy_to(_first_rows(ours, count))
        self.tokens[target] = self.tokens[source][:count]


def _first_rows(cache: Any, count: int) -> Any:
    """A view of the first rows of a cache [1, Hkv, C, D]."""
    _, heads, _, size = cache.shape
    return cache.select_roi([0, 0, 0, 0], [1, heads, count, size])


def _lanes(decode: Any) -> list[Lane]:
    """After input 0, the rows [B, 1, H], every slot has valid length, current length and its caches."""
    batch, length = decode.get_input_info(decode.get_input_name(0)).shape[:2]
    if length != 1:
        raise ValueError(f"the decode graph takes {length} tokens a run, expected 1; this is a verify or prefill graph")
    names = [decode.get_input_name(i) for i in range(1, decode.get_num_inputs())]
    if takes_positions(decode):
        if batch != 1:
            raise ValueError("this package was compiled with --position-ids, which no graph of several slots has")
        return [Lane(names[0], names[1], names[2], tuple(names[3:]))]
    each = len(names) // batch
    lanes = [names[begin : begin + each] for begin in range(0, len(names), each)]
    return [Lane(valid, current, None, tuple(caches)) for valid, current, *caches in lanes]
