"""Guesses of a model's assistant (`tcim-lite compile --draft` of one), which reads the caches of the model itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..masks import HIDDEN
from ..package import Package
from .guesses import greedy_guesses
from .slots import Slots

_SHARED = [f"shared_{what}_cache_{kind}" for what in ("key", "value") for kind in ("sliding", "full")]


class Assistant:
    """Guesses from the last hidden state and the caches of the model, greedily, until it is unsure.

    It has no rows of its own: guesses differ by their embeddings and hidden states, and all of a round stand at one
    position, as transformers has it.

    Args:
        slots: Of the package, one; their `on_hidden` is set.
        module: The assistant. It is bound to the caches.
        margin: It stops where the best logit is less than this above the second.

    Raises:
        ValueError: It is an assistant of an earlier version, which does not say what it reads.
    """

    def __init__(self, slots: Slots, module: Any, margin: float = 1.0):
        self.margin = margin
        self._slots, self._module = slots, module
        try:
            message = json.loads(module.get_custom_msg())
            self._window, read = int(message["sliding_window"]), [int(layer) for layer in message["shared_caches"]]
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                "the assistant's custom_msg does not say 'sliding_window' and 'shared_caches'; compile the package "
                "with --draft again"
            ) from None
        caches = slots.stages[0].caches[0]  # all keys, then all values
        for name, place in zip(_SHARED, [*read, *(len(caches) // 2 + layer for layer in read)], strict=True):
            module.set_dev_input(name, caches[place])
        self._hidden = np.zeros((0, 0), slots.embedding.dtype)  # states of the model after its last tokens
        self._end = 0  # tokens before the last of these states
        slots.on_hidden = self.observe

    @classmethod
    def open(cls, package: Package, slots: Slots) -> Assistant:
        """The assistant of a package whose other graphs `slots` runs.

        Raises:
            FileNotFoundError: It is missing.
            TcimError: A file that cannot be loaded.
            ValueError: As the class.
        """
        option = tcim.Option(slots.managers[0]).set_dummy_tensors(_SHARED)
        return cls(slots, tcim.load(str(package.graph("assistant.hmm")), option=option))

    def observe(self, slot: int, held: int, tokens: Sequence[int], hidden: np.ndarray, is_prompt: bool) -> None:
        """Takes the states [tokens or 1, H] that a run gave after `tokens`, or after the last, behind `held` others."""
        self._hidden, self._end = hidden, held + len(tokens)

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """The assistant's own choices; none where the slot does not hold the text but its last token."""
        known = len(text) - 1
        state = known - 1 - (self._end - len(self._hidden))
        if count < 1 or self._slots.tokens[0] != list(text[:-1]) or not 0 <= state < len(self._hidden):
            return []
        self._set_place(known)
        hidden = self._hidden[state]

        def after(token: int, guesses: int) -> np.ndarray:
            nonlocal hidden
            logits, hidden = self._run(token, hidden)
            return logits

        return greedy_guesses(after(text[-1], 0), count, self.margin, after)

    def _set_place(self, known: int) -> None:
        """Says what is seen behind `known` rows of the caches."""
        module = self._module
        module.set_input("past_seq_length", np.array([known], np.int32))
        module.set_input("current_input_length", np.array([1], np.int32))
        for name, window in (("local_attention_mask", self._window), ("global_attention_mask", known)):
            info = module.get_input_info(name)
            mask = np.full(info.shape, HIDDEN, info.dtype)
            # The last column of the former may be the position itself, which has no row yet.
            first = max(known - (info.shape[-1] - 1), 0) if name.startswith("local") else 0
            mask[..., max(known - window, 0) - first : known - first] = 0
            module.set_input(name, mask)

    def _run(self, token: int, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logits [V] after a token behind a hidden state [H], and the state after it."""
        module, width = self._module, len(hidden)
        row = np.concatenate([self._slots.embedding[token][:width], hidden])
        module.set_input("inputs_embeds", row.reshape(1, 1, -1))
        module.run()
        module.sync()
        state = module.get_output("assistant_hidden_state").numpy().reshape(-1)
        return module.get_output("logits").numpy().reshape(-1), state
