"""The loop: prefill a prompt in chunks, then decode one token at a time.

Shapes: input 0 is the embeddings [1, P, H] (prefill) or [1, 1, H] (decode); then come the lengths and the KV caches
with the context length C as their axis 2, and positions, masks or deepstack inputs, if the package has them
(`ports.py`); output 0 is the logits [1, 1, V].
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .carried import carried_of, clear_carried, gives_each_state
from .generation_defaults import GenerationDefaults
from .masks import Masks
from .option_types import check_whole
from .ports import check_decode, hidden_of_verify, lanes_of, tokens_of
from .prompt import check_prompt, common_prefix, context_length, last_logits, prefill, run_graph
from .sampling import Sampler
from .step_states import StepStates


@dataclass
class GenerationStats:
    """Figures of the last `generate`; as text, one line.

    Attributes:
        prompt_tokens: tokens of the prompt.
        reused_tokens: of these, found in the cache from the turn before.
        new_tokens: tokens chosen, a stop token included.
        first_token_s: seconds from the call to the first token.
        prefill_s: seconds in prefill.
        decode_s: seconds for all tokens but the first.
        token_s: when each token came, in seconds from the call; their differences are the times between tokens.
        stopped_by: "eos", "max_new_tokens" or "context".
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    first_token_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    token_s: list[float] = field(default_factory=list)
    stopped_by: str = ""

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second that were not reused; 0 when there were none."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first; 0 when there were none."""
        return (self.new_tokens - 1) / self.decode_s if self.decode_s else 0.0

    def __str__(self) -> str:
        return (
            f"{self.prompt_tokens} prompt tokens ({self.reused_tokens} cached), {self.new_tokens} new | "
            f"TTFT {self.first_token_s * 1e3:.1f} ms | prefill {self.prefill_rate:.0f} tok/s | "
            f"decode {self.decode_rate:.0f} tok/s | stopped by {self.stopped_by}"
        )


class LanguageModel(ABC):
    """A prompt in, tokens out, over whatever runs the graphs: one pair of modules, a pipeline, several devices.

    It remembers which tokens the caches hold, so a prompt that begins like the last one costs only its new part. Not
    thread-safe.

    Attributes:
        context_length: Tokens the caches hold.
        vocab_size: Number of token ids.
        defaults: What `generate` does where the caller does not say: `Package.generation_defaults`, or greedy and
            without stop tokens.
        cached_tokens: What the caches hold now; a prefix of it may be assigned to forget the rest.
        stats: Of the last `generate`.
    """

    def __init__(self, context_length: int, vocab_size: int, defaults: GenerationDefaults | None = None):
        self.context_length, self.vocab_size = context_length, vocab_size
        self.defaults = defaults or GenerationDefaults()
        self.cached_tokens: list[int] = []
        self.stats = GenerationStats()

    @abstractmethod
    def prefill(self, tokens: Sequence[int], start: int = 0) -> np.ndarray:
        """Writes `tokens` into the caches from position `start` on; returns the logits [V] after the last.

        Raises:
            ValueError: No tokens, or more than fit into the context.
        """

    def reusable(self, count: int) -> int:
        """How many of the first `count` tokens that the caches hold need not be run again."""
        return count

    @abstractmethod
    def decode(self, token: int, position: int) -> np.ndarray:
        """Appends one token at `position`; returns the logits [V] after it."""

    def generate(
        self,
        tokens: Sequence[int],
        sampler: Sampler | None = None,
        max_new_tokens: int | None = None,
        stop_tokens: Collection[int] | None = None,
    ) -> Iterator[int]:
        """Yields tokens after the prompt `tokens` until a stop token (not yielded), the limit, or a full context.

        Without a sampler or stop tokens, `self.defaults` decide. `self.stats` is complete when the iterator ends.

        Raises:
            ValueError: An empty prompt, one that leaves no room in the context, something else than ids of the
                vocabulary, or `max_new_tokens` below 1.
            TypeError: An argument of another type.
            RuntimeError: Another `generate` of this generator has begun since; there is one cache.
        """
        if max_new_tokens is not None:
            check_whole(max_new_tokens=max_new_tokens)
            if max_new_tokens < 1:
                raise ValueError(f"max_new_tokens={max_new_tokens}: expected at least 1, or None for no limit")
        if sampler is not None and (isinstance(sampler, type) or not callable(sampler)):
            raise TypeError(f"sampler={sampler!r:.80}: expected a Sampler, or None for the package's defaults")
        if not isinstance(stop_tokens, Collection | None) or isinstance(stop_tokens, str | bytes):
            raise TypeError(f"stop_tokens={stop_tokens!r:.80}: expected token ids, or None for the package's own")
        sampler = self.defaults.sampler() if sampler is None else sampler
        stop_tokens = self.defaults.stop_tokens if stop_tokens is None else stop_tokens
        tokens = check_prompt(tokens, self.context_length, self.vocab_size)
        started = time.perf_counter()
        self.stats = stats = GenerationStats(prompt_tokens=len(tokens))
        # At least one token is left to run: it makes the logits.
        stats.reused_tokens = self.reusable(min(common_prefix(tokens, self.cached_tokens), len(tokens) - 1))
        # Rows beyond the valid length are never read, so forgetting a tail of the cache costs nothing.
        self.cached_tokens = self.cached_tokens[: stats.reused_tokens]
        logits = self.prefill(tokens[stats.reused_tokens :], stats.reused_tokens)
        self.cached_tokens = list(tokens)
        stats.prefill_s = time.perf_counter() - started

        while True:
            token = sampler(logits, self.cached_tokens, len(tokens))
            stats.new_tokens += 1
            stats.token_s.append(time.perf_counter() - started)
            stats.first_token_s = stats.token_s[0]
            stats.decode_s = stats.token_s[-1] - stats.first_token_s
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


class Generator(LanguageModel):
    """A prefill and a decode module that share their KV caches.

    Args:
        prefill: Module of a prefill graph of one slot.
        decode: Module of the same package, its caches bound to those of `prefill`. Of a package with multi-token
            prediction or an assistant it takes several tokens a run; here it takes one.
        embedding: [V, H] table; row i is what token i looks like to the graph.
        defaults: As in `LanguageModel`.

    Raises:
        ValueError: The decode graph has several batch slots, or is the verify graph of a package that decodes
            with another.
    """

    def __init__(self, prefill: Any, decode: Any, embedding: np.ndarray, defaults: GenerationDefaults | None = None):
        super().__init__(context_length(prefill), embedding.shape[0], defaults)
        self._prefill, self._decode, self._embedding = prefill, decode, embedding
        self._rows, self._lane = decode.get_input_name(0), lanes_of(decode)[0]
        self._logits = decode.get_output_name(0)
        slots = decode.get_input_info(self._rows).shape[0]
        if slots != 1:
            raise ValueError(f"the decode graph has {slots} batch slots, Generator drives one; compile with --batch 1")
        self._step_states = StepStates(decode, [carried_of(prefill)]) if gives_each_state(decode) else None
        self._verifies = self._step_states is not None or bool(hidden_of_verify(decode))
        if not self._verifies:
            check_decode(decode)
        self._masks = Masks(decode)
        decode.set_input(self._lane.current, np.array([1], np.int32))  # set once: inputs keep their value
        self._lane.clear_deepstack(decode)
        self._lane.set_linear_mask(decode, 1)
        self._held = 0  # tokens that the states of linear attention have seen

    def prefill(self, tokens: Sequence[int], start: int = 0) -> np.ndarray:
        """As `LanguageModel.prefill`."""
        if start == 0:
            clear_carried(self._prefill)
            self._held = 0
            if self._step_states is not None:
                self._step_states.reset(0)
        if self._step_states is not None:
            self._step_states.settle(start)
        self._go_on(start, len(tokens))
        return prefill(self._prefill, self._embedding, tokens, start)

    def decode(self, token: int, position: int) -> np.ndarray:
        """As `LanguageModel.decode`."""
        self._go_on(position, 1)
        if self._step_states is not None:
            self._step_states.bind(0, position)
        if self._verifies:
            rows = np.zeros((1, tokens_of(self._decode), self._embedding.shape[1]), self._embedding.dtype)
            rows[0, 0] = self._embedding[token]
            return last_logits(run_graph(self._decode, rows, position, 1), 1)
        self._lane.set_rows(self._decode, self._embedding[token].reshape(1, 1, -1))
        self._lane.set_place(self._decode, np.array([position], np.int32))
        self._masks.set(position, 1)
        self._decode.run()
        self._decode.sync()
        return self._decode.get_output(self._logits).numpy().reshape(-1)

    def reusable(self, count: int) -> int:
        """As `LanguageModel.reusable`: states of linear attention go on from where they are, or from the start."""
        return count if not self._lane.carried or count == self._held else 0

    def _go_on(self, position: int, count: int) -> None:
        if self._lane.carried and position != self._held:
            raise ValueError(
                f"position {position}: the states of this package have seen {self._held} tokens and only go forward; "
                "begin at 0 again"
            )
        self._held = position + count
