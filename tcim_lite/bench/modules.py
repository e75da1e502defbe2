"""A package's modules, loaded and bound as a program would, and one run of them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import tcim_lite.runtime as tcim

from ..llm import Lane, Masks, Package, clear_carried, context_length, lanes_of, share_carried, share_kv_cache
from ..llm.lora import share_lora


class Graph:
    """A loaded graph and the rows it gets.

    The rows are numbers of a usual size; the time of a run does not depend on them.
    """

    def __init__(self, module: tcim.Module):
        self.module = module
        info = module.get_input_info(module.get_input_name(0))
        self.length = info.shape[1]
        self._masks = Masks(module)
        share_lora(module)
        self.slots = lanes_of(module)
        for slot in self.slots:
            slot.clear_deepstack(module)
        self._rows = np.random.default_rng(0).standard_normal(info.shape, np.float32).astype(info.dtype)

    def run(self, valid: int, current: int) -> None:
        """One run as programs make it: inputs set, run, output read.

        Args:
            valid: Tokens in the caches of every slot.
            current: Real rows of every slot.
        """
        self.module.set_input(self.module.get_input_name(0), self._rows)
        for number, slot in enumerate(self.slots):
            self._masks.set(valid, current, number)
            self.module.set_input(slot.valid, np.array([valid], np.int32))
            self.module.set_input(slot.current, np.array([current], np.int32))
            slot.set_text_positions(self.module, valid)
            slot.set_linear_mask(self.module, current)
        self.module.run()
        self.module.sync()
        self.module.get_output(self.module.get_output_name(0)).numpy()


class Modules:
    """Prefill, decode and, where the package has it, verify, with one copy of the weights and of the caches.

    Attributes:
        prefill: For one slot.
        decode: With all slots; of more than one, the caches are its own.
        verify: None in a package without it, or one whose decode graph has several slots.
        context: Tokens a cache holds.
        load_first_s: Seconds for the first of prefill and decode.
        load_second_s: For the other.
    """

    def __init__(self, package: Package, verify: Path | None, slots: int):
        weights = tcim.WeightManager(0)
        paths = [package.prefill_path, package.decode_path]
        if slots > 1:
            paths.reverse()  # prefill then borrows the caches of slot 0
        started = time.perf_counter()
        first = Graph(tcim.load(paths[0], tcim.Option(weights)))
        loaded = time.perf_counter()
        second = Graph(tcim.load(paths[1], tcim.Option(weights).set_dummy_tensors(list(first.slots[0].caches))))
        self.load_first_s, self.load_second_s = loaded - started, time.perf_counter() - loaded
        self.prefill, self.decode = (first, second) if slots == 1 else (second, first)
        self.context: int = context_length(self.prefill.module)
        self._lend(first.slots[0], second, first)
        clear_carried(self.prefill.module)
        if slots == 1:
            share_carried(self.prefill.module, [self.decode.module])
        self.verify: Graph | None = None
        if verify is not None and slots == 1:
            self.verify = Graph(tcim.load(verify, tcim.Option(weights).set_dummy_tensors(list(first.slots[0].caches))))
            share_kv_cache(self.prefill.module, self.verify.module)

    def fill(self, depth: int) -> None:
        """Prefills every slot of decode up to `depth` tokens: rows that were never written may not be in memory."""
        for slot in self.decode.slots:
            if len(self.decode.slots) > 1:
                self._lend(slot, self.prefill, self.decode)
            for begin in range(0, depth, self.prefill.length):
                self.prefill.run(begin, min(self.prefill.length, depth - begin))

    def _lend(self, slot: Lane, borrower: Graph, owner: Graph) -> None:
        for theirs, ours in zip(borrower.slots[0].caches, slot.caches, strict=True):
            borrower.module.set_dev_input(theirs, owner.module.get_dev_input(ours))
