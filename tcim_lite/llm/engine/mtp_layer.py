"""Guesses of a model's own layer of multi-token prediction (`tcim-lite compile --mtp`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..package import Package
from ..prompt import last_logits
from .guesses import greedy_guesses
from .slots import POST_NORM_HIDDEN, Slots

_CACHES = ("past_key_cache", "past_value_cache")


@dataclass(eq=False)
class _Text:
    """What the layer was shown of a slot's text.

    Attributes:
        decode: The layer for one token, with the slot's caches.
        hidden: States of the model after each token, [C, H].
        begin: Rows of the caches that are those of the text.
        end: Rows of `hidden` that are.
    """

    decode: Any
    hidden: np.ndarray
    begin: int = 0
    end: int = 0


class MtpLayer:
    """Guesses from the hidden states of the model, greedily, until it is unsure.

    The layer takes token i + 1 with the hidden state of token i, into row i of its caches. With one slot it is shown
    the states of a prompt as its chunks are run, and those of an answer when it guesses next. With several it is shown
    all when it guesses, which it need not do while several answers are being made. The rows of its own guesses, which
    go by its own states, are written again then.

    Args:
        slots: Of the package; their `on_hidden` is set.
        prefill: Module of the layer for several tokens; it is bound to the caches of the slot that it works for.
        decodes: For one token, one for each slot, with caches of its own.
        margin: It stops where the best logit is less than this above the second.
    """

    def __init__(self, slots: Slots, prefill: Any, decodes: Sequence[Any], margin: float = 1.0):
        self.margin = margin
        self._slots, self._embedding, self._prefill = slots, slots.embedding, prefill
        self._length: int = prefill.get_input_info(POST_NORM_HIDDEN).shape[1]
        states = (slots.context_length, slots.embedding.shape[1])
        self._texts = [_Text(decode, np.empty(states, slots.embedding.dtype)) for decode in decodes]
        self._bound: _Text | None = None  # whose caches `prefill` has
        slots.on_hidden = self.observe

    @classmethod
    def open(cls, package: Package, slots: Slots) -> MtpLayer:
        """The layer of a package whose other graphs `slots` runs, with their weights.

        Raises:
            FileNotFoundError: It is missing.
            TcimError: A file that cannot be loaded.
        """
        weights = slots.managers[-1]  # where the head is
        suffix = "hmms" if len(slots.devices) > 1 and len(slots.stages) == 1 else "hmm"
        option = tcim.Option(weights).set_dummy_tensors(list(_CACHES))
        prefill = tcim.load(str(package.graph(f"prefill_mtp.{suffix}")), option=option)
        path = str(package.graph(f"decode_mtp.{suffix}"))
        return cls(slots, prefill, [tcim.load(path, option=tcim.Option(weights)) for _ in range(len(slots))])

    def observe(self, slot: int, held: int, tokens: Sequence[int], hidden: np.ndarray, is_prompt: bool) -> None:
        """Takes what a run of the model gave for `tokens`, [tokens, H], behind `held` others of a slot."""
        text = self._texts[slot]
        if held == 0:
            text.begin = text.end = 0
        if held <= text.end:
            text.end = held + len(tokens)
            text.hidden[held : text.end] = hidden
        if is_prompt and len(self._texts) == 1:  # all of it is kept; its last token waits for the one behind it
            self._take(text, tokens[text.begin + 1 - held :])

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """The layer's own choices, as far as there are rows; none where no slot holds the text but its last token."""
        known, held = len(text) - 1, list(text[:-1])
        count = min(count, self._slots.context_length - len(text))
        slot = next((slot for slot, tokens in enumerate(self._slots.tokens) if tokens == held), None)
        if slot is None or count < 1 or not (shown := self._texts[slot]).begin < known <= shown.end:
            return []
        shown.end = known
        logits, hidden = self._take(shown, text[shown.begin + 1 :])

        def after(token: int, guesses: int) -> np.ndarray:
            nonlocal hidden
            logits, hidden = self._run(shown.decode, [token], hidden, known + guesses - 1)
            return logits

        return greedy_guesses(logits, count, self.margin, after)

    def _take(self, text: _Text, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Writes the rows of `tokens`, each with the state before it; the logits [V] and the state [1, H] after all."""
        found = np.zeros(0, np.float16), text.hidden[:0]
        for begin in range(0, len(tokens), self._length):
            part = tokens[begin : begin + self._length]
            graph, end = text.decode, text.begin + len(part)
            if len(part) > 1:
                graph = self._prefill
                if self._bound is not text:
                    self._bound = text
                    for name in _CACHES:
                        graph.set_dev_input(name, text.decode.get_dev_input(name))
            found = self._run(graph, part, text.hidden[text.begin : end], text.begin)
            text.begin = end
        return found

    def _run(self, graph: Any, tokens: Sequence[int], hidden: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
        length = graph.get_input_info(POST_NORM_HIDDEN).shape[1]
        for name, values in (("next_token_embedding", self._embedding[list(tokens)]), (POST_NORM_HIDDEN, hidden)):
            rows = np.zeros((1, length, values.shape[1]), values.dtype)
            rows[0, : len(tokens)] = values
            graph.set_input(name, rows)
        graph.set_input("valid_length", np.array([row], np.int32))
        graph.set_input("current_length", np.array([len(tokens)], np.int32))
        graph.run()
        graph.sync()
        last = graph.get_output("post_norm_out").numpy()[0, len(tokens) - 1 : len(tokens)]
        return last_logits(graph.get_output("logits").numpy(), len(tokens)), last
