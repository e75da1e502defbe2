"""The device side: tokens go in, logits come out, and every slot knows what its caches hold.

A slot is one lane of a decode graph: a valid length, a current length and KV caches of its own.

**The idle-slot rule.** A decode run writes one cache row in every slot, at the slot's valid length: a current length of
0 is refused. A slot that takes no part therefore passes its own number of rows. The row written there is behind what is
valid, and the slot's next token overwrites it. Passing 0 would destroy row 0 of a prompt in mid-prefill, and of rows
kept for the next prompt. A full slot has no such row, so an idle one gives up its last.

A slot that is free is parked (`slot_rows.py`): it passes 0 until it is used again.

States of linear attention have no row to give away: the mask of an idle slot hides its token from them.

A step of one slot alone may run the prefill graph on one token instead, which leaves the other slots out: it computes
one row where the decode graph computes B. On this CPU both give the same bits; a GPU decodes B rows as fast as one.

`Slots.decode` is the only place that runs a decode graph of several slots.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..mixed_prompt import MixedPrompt
from ..package import HIDDEN_STATES, Package
from ..ports import check_decode, hidden_of_verify, tokens_of
from ..prompt import last_logits
from ..sampling import largest
from .slot_rows import SlotRows
from .stage import DecodeStep, Stage
from .stages import load_stages

POST_NORM_HIDDEN = "post_norm_hidden"  # what prefill and verify hand to the layer of multi-token prediction


class Slots(SlotRows):
    """Prefill and decode over the slots of a package.

    Args:
        stages: One, or those of a pipeline, first layers first.
        embedding: [V, H] table.

    Attributes:
        embedding: As given.
        context_length: Rows C of a slot.
        chunk_length: Tokens P that one prefill run takes.
        verify_length: Tokens T that one verify run takes; 0 without a verify graph.
        alone_by_prefill: Whether a token of one slot alone is appended by the prefill graph. Initially True if the
            graphs run on this CPU and no modelled time counts (TCIM_LITE_DEVICE, TCIM_LITE_CLOCK); may be set between
            two steps.
        all_logits: Prefill gives the logits of every row (`compile --all-logits`).
        hidden_size: Of the hidden states that graphs of `compile --hidden-states` return in place of logits; else 0.
        gives_largest: The decode graph also returns the id of each slot's largest logit (`compile --argmax`).
        vocab_size: V.
        row_bytes: Of one token in all caches of a slot.
        decodes_by_verify: A token is appended by the verify graph, because the package has multi-token prediction or an
            assistant, and one slot.
        hidden_output: The output with the hidden states from which these guess; empty without them.
        on_hidden: Called after a run of such a package, for each slot at work: its number, its tokens before the run,
            those of the run, the hidden states after each or after the last, [tokens or 1, H], and whether they are a
            prompt's. May be set. It is told nothing of mixed prompts.
        managers: Of the weights, one for each stage, and `devices`; what `open` used.

    Raises:
        ValueError: The graphs do not fit together.
    """

    def __init__(self, stages: Sequence[Stage], embedding: np.ndarray):
        super().__init__(stages)
        self.embedding = embedding
        first, last = self.stages[0], self.stages[-1]
        batches = [len(stage.lanes) for stage in self.stages]
        contexts = [stage.context_length for stage in self.stages]
        if len(set(batches)) > 1 or len(set(contexts)) > 1:
            raise ValueError(f"the stages have {batches} slots of {contexts} rows; use those of one package")
        self.chunk_length = tokens_of(first.prefill)
        self.verify_length = 0 if first.verify is None else tokens_of(first.verify)
        self.context_length = contexts[0]
        outputs: int = last.decode.get_output_info(last.decode.get_output_name(0)).shape[-1]
        self.hidden_size = outputs if last.decode.get_output_name(0) == HIDDEN_STATES else 0
        self.vocab_size: int = embedding.shape[0] if self.hidden_size else outputs
        given: int = last.prefill.get_output_info(last.prefill.get_output_name(0)).shape[-2]
        self.all_logits = given == self.chunk_length and not self.hidden_size
        self.gives_largest = "token_id" in last.outputs
        on_cpu = (os.environ.get("TCIM_LITE_DEVICE") or "cpu") == "cpu"
        on_cpu &= (os.environ.get("TCIM_LITE_CLOCK") or "off") == "off"
        self.hidden_output = POST_NORM_HIDDEN if POST_NORM_HIDDEN in last.outputs else hidden_of_verify(last.decode)
        self.alone_by_prefill = on_cpu and batches[0] > 1 and not self.all_logits
        caches = [cache for stage in self.stages for cache in stage.caches[0]]
        self.row_bytes = sum(cache.mem_size for cache in caches) // self.context_length
        self.decodes_by_verify = any(stage.decodes_by_verify for stage in self.stages)
        if self.decodes_by_verify:
            if not self.hidden_output:  # a verify graph in place of a decode graph
                check_decode(last.decode)
            for stage in self.stages:
                stage.verify = stage.decode
        self.on_hidden: Callable[[int, int, Sequence[int], np.ndarray, bool], None] | None = None
        self.managers: list[tcim.WeightManager] = []
        self.devices: tuple[int, ...] = ()
        self._rows = np.zeros((batches[0], 1, embedding.shape[1]), embedding.dtype)

    @classmethod
    def open(
        cls,
        package: Package | str | PathLike[str],
        *,
        name: str | None = None,
        devices: Sequence[int] = (0,),
        pipeline: bool = False,
        adapters: Mapping[str, str | PathLike[str]] = MappingProxyType({}),
    ) -> Slots:
        """Loads a package: a pair or a batch package on one device, with its verify graph where it has one.

        On several devices these are the `.hmms` graphs, or with `pipeline` the stages, one on each device. The stages
        run one after the other. `adapters` are folders by name, such as `Package.adapters`.

        Raises:
            FileNotFoundError: As `Package.open`, or the package has no graphs for that many devices.
            TcimError: A file that cannot be loaded.
            ValueError: No devices, not as many as stages, graphs that do not fit together, or as `Adapters.add`.
        """
        if not isinstance(package, Package):
            package = Package.open(Path(package), name)
        stages, managers = load_stages(package, devices, pipeline)
        slots = cls(stages, stages[0].table(package, stages[-1]))
        slots.managers, slots.devices = managers, tuple(devices)
        for adapter, folder in adapters.items():
            slots.adapters.add(adapter, folder)
        return slots

    def before_run(self, call: Callable[[], None]) -> None:
        """Has `call` called whenever a step of prompt or answer is about to run on the device."""
        self.stages[0].before_run = call

    def prefill(self, slot: int, tokens: Sequence[int], mixed: MixedPrompt | None = None) -> np.ndarray:
        """Appends at most `chunk_length` tokens to a slot; returns the logits [V] after the last.

        Any cut of a prompt gives the same bits; one of a mixed prompt has to be at one of its `cut`s.

        Args:
            slot: Its number.
            tokens: Ids, or keys of a mixed prompt.
            mixed: The prompt whose keys `tokens` are, behind those that the slot holds.

        Raises:
            ValueError: No tokens, more than one chunk takes, more than fit behind the slot's rows, or the states of the
                slot have not seen its tokens, and those alone.
        """
        self._mixed[slot] = mixed
        logits = self._run_prompt("prefill", self.chunk_length, slot, tokens, mixed)
        return last_logits(logits, len(tokens))

    def prefill_all(self, slot: int, tokens: Sequence[int], mixed: MixedPrompt | None = None) -> np.ndarray:
        """As `prefill`, but returns the logits [tokens, V] after each.

        Raises:
            ValueError: As `prefill`; or the prefill graph returns the last logits alone.
        """
        if not self.all_logits:
            raise ValueError("the prefill graph returns the logits of one row; compile the package with --all-logits")
        self._mixed[slot] = mixed
        return self._run_prompt("prefill", self.chunk_length, slot, tokens, mixed)[0, : len(tokens)]

    def verify(self, slot: int, tokens: Sequence[int]) -> np.ndarray:
        """Appends at most `verify_length` tokens to a slot; returns the logits [tokens, V] after each.

        They are those that `decode` would give one by one, bit for bit. To take tokens back, delete them from the
        slot's `tokens`.

        Raises:
            ValueError: As `prefill`; or the package has no verify graph.
        """
        if not self.verify_length:
            raise ValueError("the package has no verify graph; compile it with --verify-length T")
        return self._run_prompt("verify", self.verify_length, slot, tokens)[0, : len(tokens)]

    def _run_prompt(
        self, graph: str, length: int, slot: int, tokens: Sequence[int], mixed: MixedPrompt | None = None
    ) -> np.ndarray:
        """Output 0 of the last stage after a run of its graph of that name, which takes `length` tokens."""
        held = self.tokens[slot]
        if not 0 < len(tokens) <= length:
            raise ValueError(f"{len(tokens)} tokens: one {graph} run takes 1 to {length}")
        if len(held) + len(tokens) > self.context_length:
            raise ValueError(
                f"{len(held)} + {len(tokens)} tokens do not fit into the {self.context_length} rows of a slot"
            )
        self._unpark(slot)
        self._settle({slot}, None if graph == "prefill" else slot)
        if not held:
            for stage in self.stages:
                stage.begin(slot)
        elif slot != self._verified:
            self._check_states(slot)
        self._seen[slot] = None
        self._activate([slot])
        rows = np.zeros((1, length, self.embedding.shape[1]), self.embedding.dtype)
        more: dict[str, Any] = {}
        if mixed is not None:
            span = (len(held), len(held) + len(tokens))
            rows[0, : len(tokens)], more["part"] = mixed.rows(self.embedding, *span), mixed.part(*span)
        else:
            rows[0, : len(tokens)] = self.embedding[list(tokens)]
            more["shift"] = self._shift(slot)
        for stage in self.stages:
            rows = stage.run_prompt(getattr(stage, graph), slot, rows, len(held), len(tokens), **more)
        if graph == "verify":
            self._verified = slot
        if self.on_hidden is not None and self._mixed[slot] is None:
            hidden = getattr(self.stages[-1], graph).get_output(self.hidden_output).numpy()[0, : len(tokens)]
            self.on_hidden(slot, len(held), tokens, hidden, graph == "prefill")
        held.extend(tokens)
        self._seen[slot] = len(held)
        return rows

    def decode(self, tokens: Mapping[int, int]) -> np.ndarray:
        """Appends one token to each slot named; the others keep their rows (the idle-slot rule).

        Args:
            tokens: Slot number to token id.

        Returns:
            Logits [B, V]; those of slots that took no part mean nothing.

        Raises:
            ValueError: A slot named is full, its states are not those of its tokens, or slots have different adapters.
        """
        if (alone := self._decode_alone(tokens)) is not None:
            return np.broadcast_to(alone, (len(self), self.vocab_size))
        return self._run_decode(tokens).reshape(len(self), self.vocab_size)

    def decode_greedy(self, tokens: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """As `decode`, but returns the largest logit of each slot and leaves the others on the device.

        Returns:
            Ids [B], of equal logits the lowest; the logits [B], NaN where all are. Those of slots that took no part
            mean nothing.

        Raises:
            ValueError: As `decode`; or the decode graph does not return them.
        """
        if not self.gives_largest:
            raise ValueError("the decode graph returns logits alone; compile the package with --argmax")
        if (alone := self._decode_alone(tokens)) is not None:
            best = largest(alone)
            return np.full(len(self), best), np.full(len(self), alone[best])
        ids = self._run_decode(tokens, "token_id")
        return ids.reshape(-1), self.stages[-1].decoded("token_logit").reshape(-1)

    def _decode_alone(self, tokens: Mapping[int, int]) -> np.ndarray | None:
        """Makes slots ready for a step. Where the prefill or verify graph does it: the logits [V]; else None."""
        for slot in tokens:
            if len(self.tokens[slot]) >= self.context_length:
                raise ValueError(f"slot {slot} is full: it holds {self.context_length} rows")
            self._unpark(slot)
        if not self.decodes_by_verify and (len(tokens) > 1 or not self.alone_by_prefill):
            return None
        ((slot, token),) = tokens.items()
        if self.decodes_by_verify:
            return last_logits(self._run_prompt("verify", self.verify_length, slot, [token]), 1)
        return last_logits(self._run_prompt("prefill", self.chunk_length, slot, [token]), 1)

    def _run_decode(self, tokens: Mapping[int, int], output: str | None = None) -> np.ndarray:
        """An output of the last stage's decode graph after a step of the slots named."""
        self._activate(tokens)
        self._settle(tokens, None)
        for slot in tokens:
            self._check_states(slot)
        lengths = []
        for slot, held in enumerate(self.tokens):
            if slot in tokens:
                self._rows[slot, 0] = self.embedding[tokens[slot]]
            else:
                self._rows[slot, 0] = 0
                if slot not in self._parked:
                    del held[self.context_length - 1 :]  # no row behind these to write to
            lengths.append(0 if slot in self._parked else len(held))
        rows = self._rows
        self._seen = [None if slot in tokens else seen for slot, seen in enumerate(self._seen)]
        step = DecodeStep(lengths, tokens, {slot: self._shift(slot) for slot in tokens})
        for stage in self.stages:
            rows = stage.run_decode(rows, step, output if stage is self.stages[-1] else None)
        if self.on_hidden is not None:
            hidden = self.stages[-1].decoded(self.hidden_output)
            for slot in (slot for slot in tokens if self._mixed[slot] is None):
                self.on_hidden(slot, len(self.tokens[slot]), [tokens[slot]], hidden[slot], False)
        for slot, token in tokens.items():
            self.tokens[slot].append(token)
            self._seen[slot] = len(self.tokens[slot])
        return rows
