"""Guesses of a model's own layer of multi-token prediction (`tcim-lite compile --mtp`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..package import Package
from ..prompt import last_logits
from ..sampling import greedy_token, is_sure
from .slots import POST_NORM_HIDDEN, Slots

_CACHES = ("past_key_cache", "past_value_cache")


class MtpLayer:
    """Guesses from the hidden states of the model, greedily, until it is unsure.

    The layer takes token i + 1 with the hidden state of token i, into row i of its caches. It is shown the states of a
    prompt as its chunks are run, and those of an answer when it guesses next. The rows of its own guesses, which go by
    its own states, are written again then.

    Args:
        slots: Of the package, one; their `on_hidden` is set.
        prefill: Module of the layer for several tokens.
        decode: For one token; its caches are bound to those of `prefill`.
        margin: It stops where the best logit is less than this above the second.
    """

    def __init__(self, slots: Slots, prefill: Any, decode: Any, margin: float = 1.0):
        self.margin = margin
        self._embedding, self._prefill, self._decode = slots.embedding, prefill, decode
        self._length: int = prefill.get_input_info(POST_NORM_HIDDEN).shape[1]
        for name in _CACHES:
            decode.set_dev_input(name, prefill.get_dev_input(name))
        self._begin = 0  # rows of the caches that are those of the text
        self._hidden = np.zeros((0, slots.embedding.shape[1]), slots.embedding.dtype)  # of the tokens from there on
        slots.on_hidden = self.observe

    @classmethod
    def open(cls, package: Package, slots: Slots) -> MtpLayer:
        """The layer of a package whose other graphs `slots` runs, with their weights.

        Raises:
            FileNotFoundError: It is missing.
            TcimError: A file that cannot be loaded.
        """
        (weights,) = slots.managers
        suffix = "hmms" if len(slots.devices) > 1 else "hmm"
        prefill = tcim.load(str(package.graph(f"prefill_mtp.{suffix}")), option=tcim.Option(weights))
        option = tcim.Option(weights).set_dummy_tensors(list(_CACHES))
        return cls(slots, prefill, tcim.load(str(package.graph(f"decode_mtp.{suffix}")), option=option))

    def observe(self, held: int, tokens: Sequence[int], hidden: np.ndarray, is_prompt: bool) -> None:
        """Takes what a run of the model gave for `tokens`, [tokens, H], behind `held` others."""
        if held == 0:
            self._begin, self._hidden = 0, hidden[:0]
        self._hidden = np.concatenate([self._hidden[: held - self._begin], hidden])
        if is_prompt:  # all of it is kept; its last token waits for the one behind it
            self._take(tokens[self._begin + 1 - held :])

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """The layer's own choices."""
        known = len(text) - 1
        self._hidden = self._hidden[: known - self._begin]
        if count < 1 or not len(self._hidden) or self._begin + len(self._hidden) != known:
            return []
        logits, hidden = self._take(text[self._begin + 1 :])
        proposed = [greedy_token(logits)]
        while len(proposed) < count and is_sure(logits, self.margin):
            logits, hidden = self._run(self._decode, proposed[-1:], hidden, known + len(proposed) - 1)
            proposed.append(greedy_token(logits))
        return proposed

    def _take(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Writes the rows of `tokens`, each with the state before it; the logits [V] and the state [1, H] after all."""
        found = np.zeros(0, np.float16), self._hidden[:0]
        for begin in range(0, len(tokens), self._length):
            part = tokens[begin : begin + self._length]
            graph = self._decode if len(part) == 1 else self._prefill
            found = self._run(graph, part, self._hidden[: len(part)], self._begin)
            self._begin, self._hidden = self._begin + len(part), self._hidden[len(part) :]
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
