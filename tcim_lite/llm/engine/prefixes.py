"""Rows that are there already: where a prompt begins like one that was answered, only the rest is prefilled.

A cache row depends on its token, the tokens before it and the adapter, and on nothing else: not on the slot, not on
how the prompt was cut. So the rows of any common beginning can be used in place, copied from slot to slot, or kept on
the host. Where a prompt has features of images, its keys (`MixedPrompt`) stand for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..mixed_prompt import MixedPrompt, keys_of
from ..prompt import common_prefix
from .driven import DrivenSlots
from .slots import Slots

# Fewer rows than this are prefilled again: a copy has a cost for each cache, and all chats begin with the same few
# tokens of their template.
WORTH_COPYING = 16


@dataclass(eq=False)
class _Entry:
    tokens: np.ndarray  # [n] int64, ids or keys
    rows: list[np.ndarray]  # of each cache, [1, Hkv, n, D]
    adapter: str | None


class HostRows:
    """Cache rows in host memory, the least recently used dropped first. Not thread-safe.

    Args:
        max_bytes: Budget for the rows; 0 keeps nothing.

    Raises:
        ValueError: A negative budget.
    """

    def __init__(self, max_bytes: int):
        if max_bytes < 0:
            raise ValueError(f"prefix_cache_bytes={max_bytes}: expected 0 (nothing on the host) or more")
        self.max_bytes = max_bytes
        self._entries: list[_Entry] = []  # the most recently used last

    def __len__(self) -> int:
        """How many prompts and answers are kept."""
        return len(self._entries)

    @property
    def used_bytes(self) -> int:
        """Of the rows kept now."""
        return sum(_bytes(entry) for entry in self._entries)

    def longest(self, prompt: Sequence[int], adapter: str | None = None) -> int:
        """How many tokens `find` would find; what is found does not count as used."""
        return max(self._shared(prompt, adapter), default=0)

    def find(self, prompt: Sequence[int], adapter: str | None = None) -> tuple[int, list[np.ndarray]]:
        """The longest kept beginning of `prompt`: how many tokens it has, and their rows (or more)."""
        lengths = self._shared(prompt, adapter)
        if not any(lengths):
            return 0, []
        entry = self._entries.pop(int(np.argmax(lengths)))
        self._entries.append(entry)
        return max(lengths), entry.rows

    def keep(self, slots: Slots, slot: int) -> None:
        """Copies what a slot holds, unless it is kept already but for a few tokens, or larger than the budget."""
        tokens, adapter = np.asarray(slots.tokens[slot], np.int64), slots.adapter_of[slot]
        size = len(tokens) * slots.row_bytes
        if size > self.max_bytes or slots.carries:
            return
        shared = self._shared(tokens, adapter)
        if shared and len(tokens) - max(shared) < WORTH_COPYING:
            self._entries.append(self._entries.pop(int(np.argmax(shared))))
            return
        # What the new one begins with is not needed beside it.
        gone = [e for e, length in zip(self._entries, shared, strict=True) if len(e.tokens) - length < WORTH_COPYING]
        left = [e for e in self._entries if e not in gone]
        while sum(_bytes(e) for e in left) + size > self.max_bytes:
            left.pop(0)
        self._entries = left
        del gone  # freed before the copy is made
        self._entries.append(_Entry(tokens, slots.read_rows(slot), adapter))

    def _shared(self, prompt: Sequence[int] | np.ndarray, adapter: str | None) -> list[int]:
        """How many tokens each entry has in common with a prompt of an adapter."""
        wanted = np.asarray(prompt, np.int64)
        return [_equal_tokens(e.tokens, wanted) if e.adapter == adapter else 0 for e in self._entries]


@dataclass(frozen=True)
class Seat:
    """Where a prompt goes, and what it finds there.

    Attributes:
        slot: a free one.
        matched: tokens of the prompt whose rows can be had; the prompt's last token is never among them, because it
            makes the logits.
        source: the slot that has them, which may be `slot`; None where the host has them.
        rows: what the host has.
        adapter: that makes the rows.
    """

    slot: int
    matched: int
    source: int | None
    rows: Sequence[np.ndarray] = ()
    adapter: str | None = None


def choose_seat(
    prompt: Sequence[int], slots: Slots, free: Collection[int], host: HostRows, adapter: str | None = None
) -> Seat:
    """The seat that saves the most prefill.

    Where the rows lie in a free slot and are most of what it holds, they are used in place. Otherwise they are copied
    into the slot that has been idle longest, and what another prompt may need stays where it is.

    Args:
        prompt: Token ids, or a mixed prompt.
        slots: What each slot holds.
        free: Slots that may be given away, the one that has been idle longest first.
        host: Rows on the host.
        adapter: Rows of others do not count.
    """
    oldest = next(iter(free))
    if slots.carries:
        return Seat(oldest, 0, oldest, adapter=adapter)
    matches = [_usable(prompt, length) for length in matches_of(prompt, adapter, slots)]
    best = max(range(len(matches)), key=lambda slot: (matches[slot], slot in free, slot == oldest))
    kept, rows = host.find(keys_of(prompt), adapter) if len(host) else (0, [])
    kept = _usable(prompt, kept)
    gain = max(matches[best], kept) - matches[oldest]
    if gain < WORTH_COPYING:
        return Seat(oldest, matches[oldest], oldest, adapter=adapter)
    if kept > matches[best]:
        return Seat(oldest, kept, None, rows, adapter)
    if best in free and 2 * matches[best] >= len(slots.tokens[best]):
        return Seat(best, matches[best], best, adapter=adapter)
    return Seat(oldest, matches[best], best, adapter=adapter)


def matches_of(prompt: Sequence[int], adapter: str | None, slots: DrivenSlots) -> list[int]:
    """How many tokens of a prompt each slot holds the rows of, as the adapter makes them; any thread may ask."""
    keys = keys_of(prompt)
    held = [(list(tokens), made) for tokens, made in zip(slots.tokens, slots.adapter_of, strict=True)]
    return [common_prefix(keys, tokens) if made == adapter else 0 for tokens, made in held]


def take_seat(seat: Seat, prompt: Sequence[int], slots: Slots, host: HostRows) -> None:
    """Makes the seat's slot hold the matched tokens; rows that this overwrites go to the host."""
    held = slots.tokens[seat.slot]
    stays = seat.matched if seat.source == seat.slot else 0
    if host.max_bytes and len(held) - stays >= WORTH_COPYING:
        host.keep(slots, seat.slot)
    slots.assign(seat.slot, seat.adapter)
    held = slots.tokens[seat.slot]
    if seat.source is None:
        slots.write_rows(seat.slot, keys_of(prompt)[: seat.matched], seat.rows)
    elif seat.source != seat.slot:
        slots.copy_rows(seat.source, seat.slot, seat.matched)
    else:
        del held[seat.matched :]


def take_newer_rows(prompt: Sequence[int], slot: int, slots: Slots) -> int:
    """Copies more of a prompt into its slot if another slot has come to hold it; returns how many tokens were copied.

    Prompts that begin alike often come together. When the first has been prefilled, the others need not be.
    """
    if slots.carries:
        return 0
    matches = [_usable(prompt, length) for length in matches_of(prompt, slots.adapter_of[slot], slots)]
    best = max(range(len(matches)), key=matches.__getitem__)
    gain = matches[best] - len(slots.tokens[slot])
    if gain < WORTH_COPYING:
        return 0
    slots.copy_rows(best, slot, matches[best])
    return gain


def _usable(prompt: Sequence[int], equal: int) -> int:
    """Of so many equal rows those that a prompt can begin with; its last token makes the logits."""
    equal = min(equal, len(prompt) - 1)
    return prompt.whole(equal) if isinstance(prompt, MixedPrompt) else equal


def _equal_tokens(first: np.ndarray, second: np.ndarray) -> int:
    """How many leading tokens are equal."""
    length = min(first.size, second.size)
    different = first[:length] != second[:length]
    return int(different.argmax()) if different.any() else length


def _bytes(entry: _Entry) -> int:
    return sum(rows.nbytes for rows in entry.rows)
