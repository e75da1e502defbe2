"""The loop: prefill a prompt in chunks, then decode one token at a time.

Shapes (llm-graphs 2.1): input 0 is the embeddings [1, P, H] (prefill) or [1, 1, H] (decode), inputs 1 and 2 are the
valid and current lengths, the first KV cache is input 3 with the context length C as its axis 2; output 0 is the logits
[1, 1, V].
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .sampling import Sampler


@dataclass
class GenerationStats:
    """Of the last `generate`. Times in seconds; rates are tokens per second and 0 when nothing was done."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, found in the cache from the turn before
    new_tokens: int = 0
    first_token_s: float = 0.0  # from the call to the first token
    prefill_s: float = 0.0
    decode_s: float = 0.0  # all tokens but the first
    stopped_by: str = ""  # "eos", "max_new_tokens" or "context"

    @property
    def prefill_rate(self) -> float:
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_rate(self) -> float:
        return (self.new_tokens - 1) / self.decode_s if self.decode_s else 0.0


class Generator:
    """Drives a prefill and a decode module that share their KV caches. Not thread-safe.

    It remembers which tokens the cache holds, so a prompt that begins like the last one costs only its new part.

    Args:
        prefill: Module with inputs as above.
        decode: Module of the same package, its caches bound to those of `prefill`.
        embedding: [V, H] table; row i is what token i looks like to the graph.

    Raises:
        ValueError: The decode graph has several batch slots.
    """

    def __init__(self, prefill: Any, decode: Any, embedding: np.ndarray):
        self._prefill, self._decode, self._embedding = prefill, decode, embedding
        self._inputs = [[module.get_input_name(i) for i in range(3)] for module in (prefill, decode)]
        self._outputs = [module.get_output_name(0) for module in (prefill, decode)]
        _, self.prefill_length, self.hidden_size = prefill.get_input_info(self._inputs[0][0]).shape
        slots = decode.get_input_info(self._inputs[1][0]).shape[0]
        if slots != 1:
            raise ValueError(f"the decode graph has {slots} batch slots, Generator drives one; compile with --batch 1")
        self.context_length = prefill.get_input_info(prefill.get_input_name(3)).shape[2]
        self.cached_tokens: list[int] = []
        self.stats = GenerationStats()

    def prefill(self, tokens: Sequence[int], start: int = 0) -> np.ndarray:
        """Writes `tokens` into the cache from position `start` on; returns the logits [V] after the last.

        Raises:
            ValueError: No tokens, or more than fit into the context.
        """
        if not tokens:
            raise ValueError("prefill needs at least one token")
        if start + len(tokens) > self.context_length:
            raise ValueError(
                f"{start} + {len(tokens)} tokens do not fit into the context of {self.context_length}; shorten the "
                "prompt or compile with a larger --context-length"
            )
        embeddings, valid, current = self._inputs[0]
        padded = np.zeros((1, self.prefill_length, self.hidden_size), self._embedding.dtype)
        for begin in range(0, len(tokens), self.prefill_length):
            chunk = tokens[begin : begin + self.prefill_length]
            padded[0, : len(chunk)] = self._embedding[chunk]
            padded[0, len(chunk) :] = 0
            self._prefill.set_input(embeddings, padded)
            self._prefill.set_input(valid, np.array([start + begin], np.int32))
            self._prefill.set_input(current, np.array([len(chunk)], np.int32))
            self._prefill.run()
            self._prefill.sync()
        return self._prefill.get_output(self._outputs[0]).numpy().reshape(-1)

    def decode(self, token: int, position: int) -> np.ndarray:
        """Appends one token at `position`; returns the logits [V] after it."""
        embeddings, valid, _ = self._inputs[1]
        self._decode.set_input(embeddings, self._embedding[token].reshape(1, 1, -1))
        self._decode.set_input(valid, np.array([position], np.int32))
        self._decode.run()
        self._decode.sync()
        return self._decode.get_output(self._outputs[1]).numpy().reshape(-1)

    def generate(
        self,
        tokens: Sequence[int],
        sampler: Sampler | None = None,
        max_new_tokens: int | None = None,
        stop_tokens: Collection[int] = (),
    ) -> Iterator[int]:
        """Yields tokens after the prompt `tokens` until a stop token (not yielded), the limit, or a full context.

        `self.stats` is complete when the iterator ends.

        Raises:
            ValueError: An empty prompt, one that leaves no room in the context, an id outside the vocabulary, or
                `max_new_tokens` below 1.
            RuntimeError: Another `generate` of this generator has begun since; there is one cache.
        """
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ValueError(f"max_new_tokens={max_new_tokens}: expected at least 1, or None for no limit")
        sampler = sampler or Sampler()
        tokens = [int(token) for token in tokens]
        self._check_prompt(tokens)
        started = time.perf_counter()
        self.stats = stats = GenerationStats(prompt_tokens=len(tokens))
        stats.reused_tokens = self._common_prefix(tokens)
        # Rows beyond the valid length are never read, so forgetting a tail of the cache costs nothing.
        self.cached_tokens = self.cached_tokens[: stats.reused_tokens]
        logits = self.prefill(tokens[stats.reused_tokens :], stats.reused_tokens)
        self.cached_tokens = list(tokens)
        stats.prefill_s = time.perf_counter() - started
        self._decode.set_input(self._inputs[1][2], np.array([1], np.int32))

        while True:
            token = sampler(logits)
            stats.new_tokens += 1
            if stats.new_tokens == 1:
                stats.first_token_s = time.perf_counter() - started
            stats.decode_s = time.perf_counter() - started - stats.first_token_s
            if token in stop_tokens:
                stats.stopped_by = "eos"
                return
            yield token
            if max_new_tokens is not None and stats.new_tokens >= max_new_tokens:
                stats.stopped_by = "max_new_tokens"
                return
            if len(self.cached_tokens) >= self.context_length:
                stats.stopped_by = "context"
                return
            if self.stats is not stats:
                raise RuntimeError("another generate() has taken over the KV cache; finish one answer first")
            logits = self.decode(token, len(self.cached_tokens))
            self.cached_tokens.append(token)

    def _check_prompt(self, tokens: list[int]) -> None:
        if not tokens:
            raise ValueError("the prompt is empty")
        if len(tokens) > self.context_length:
            raise ValueError(
                f"the prompt has {len(tokens)} tokens, the context holds {self.context_length}; shorten it or compile "
                "with a larger --context-length"
            )
        vocabulary = self._embedding.shape[0]
        bad = next((token for token in tokens if not 0 <= token < vocabulary), None)
        if bad is not None:
            raise ValueError(
                f"token {bad} is outside the vocabulary of {vocabulary}; is this the package's own tokenizer?"
            )

    def _common_prefix(self, tokens: list[int]) -> int:
        """How many leading tokens the cache holds already; at least one token is left to run."""
        common = 0
        while common < min(len(tokens) - 1, len(self.cached_tokens)) and tokens[common] == self.cached_tokens[common]:
            common += 1
        return common
