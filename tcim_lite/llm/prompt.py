"""A prompt into a graph, chunk by chunk."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .masks import Masks
from .mixed_prompt import Part
from .ports import lanes_of


def check_prompt(prompt: Iterable[int], context: int, vocab_size: int) -> list[int]:
    """The ids of a prompt: a list, an array or a tensor of one axis.

    Raises:
        ValueError: It is no such thing, empty, longer than the context, or has an id outside the vocabulary.
    """
    try:
        tokens = [operator.index(token) for token in prompt]
    except TypeError:
        raise ValueError(
            f"the prompt must be token ids, whole numbers in one list, got {prompt!r:.60}; of a batch [1, N] give row 0"
        ) from None
    if not tokens:
        raise ValueError("the prompt is empty")
    if len(tokens) > context:
        raise ValueError(
            f"the prompt has {len(tokens)} tokens, the context holds {context}; shorten it or compile with a larger "
            "--context-length"
        )
    bad = next((token for token in tokens if not 0 <= token < vocab_size), None)
    if bad is not None:
        raise ValueError(f"token {bad} is outside the vocabulary of {vocab_size}; is this the package's own tokenizer?")
    return tokens


def prompt_chunks(
    embedding: np.ndarray, tokens: Sequence[int], length: int, start: int = 0
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Cuts a prompt into what a prefill graph takes at a time.

    Args:
        embedding: [V, H] table.
        tokens: Ids.
        length: Token axis P of the graph.
        start: Tokens already in the cache.

    Yields:
        Rows [1, P, H] of the table's dtype, zero after the last token; the valid length; the current length.

    Raises:
        ValueError: An id is not in the table.
    """
    largest = max(tokens, default=0)
    if largest >= len(embedding) or min(tokens, default=0) < 0:
        raise ValueError(
            f"token ids {min(tokens)} to {largest}, but the embedding has {len(embedding)} rows; the tokenizer belongs "
            "to another package"
        )
    for begin in range(0, len(tokens), length):
        chunk = tokens[begin : begin + length]
        rows = np.zeros((1, length, embedding.shape[1]), embedding.dtype)
        rows[0, : len(chunk)] = embedding[chunk]
        yield rows, start + begin, len(chunk)


def run_graph(
    module: Any, rows: np.ndarray, valid: int, current: int, *, shift: int = 0, part: Part | None = None
) -> np.ndarray:
    """Runs an LLM graph once and returns its first output.

    Args:
        module: Of one slot; its inputs are as in `lanes_of`.
        rows: As input 0.
        valid: Tokens already in the cache.
        current: Real rows; what follows is padding.
        shift: What positions of text are more than the numbers of its tokens, behind an image.
        part: Positions and deepstack of a part of a mixed prompt; without it the tokens are those of text.
    """
    (lane,) = lanes_of(module)
    lane.set_rows(module, rows)
    module.set_input(lane.valid, np.array([valid], np.int32))
    module.set_input(lane.current, np.array([current], np.int32))
    if part is not None and lane.has_axes:
        lane.set_positions(module, part.positions)
    else:
        lane.set_text_positions(module, valid + shift)
    lane.set_deepstack(module, () if part is None else part.deepstack)
    lane.set_linear_mask(module, current)
    Masks(module).set(valid, current, blocks=None if part is None else part.blocks)
    module.run()
    module.sync()
    return module.get_output(module.get_output_name(0)).numpy()


def prefill(module: Any, embedding: np.ndarray, tokens: Sequence[int], start: int = 0) -> np.ndarray:
    """Writes `tokens` into the caches of a prefill graph from position `start` on.

    Args:
        module: A prefill graph, [1, P, H] to logits [1, 1, V] or, with all logits, [1, P, V].
        embedding: [V, H] table.
        tokens: Ids, at least one.
        start: Tokens already in the cache.

    Returns:
        The logits [V] after the last token.

    Raises:
        ValueError: No tokens, or more than fit into the context.
    """
    if not tokens:
        raise ValueError("prefill needs at least one token")
    context = context_length(module)
    if start + len(tokens) > context:
        raise ValueError(
            f"{start} + {len(tokens)} tokens do not fit into the context of {context}; shorten the prompt or compile "
            "with a larger --context-length"
        )
    length = module.get_input_info(module.get_input_name(0)).shape[1]
    for rows, valid, current in prompt_chunks(embedding, tokens, length, start):
        logits = run_graph(module, rows, valid, current)
    return last_logits(logits, current)


def last_logits(logits: np.ndarray, current: int) -> np.ndarray:
    """The logits [V] after the last of `current` real rows, from what a prefill graph returns.

    Args:
        logits: [1, 1, V] or [1, V], that row already; or [1, P, V] from a graph with all logits.
        current: Real rows of the call.
    """
    rows = logits.reshape(-1, logits.shape[-1])
    return rows[min(current, len(rows)) - 1]


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    length = min(len(first), len(second))
    if list(first[:length]) == list(second[:length]):  # the usual case, 50 times as fast
        return length
    return next(i for i in range(length) if first[i] != second[i])


def takes_positions(module: Any) -> bool:
    """Whether an LLM graph takes the positions of its tokens: one, [1, T], or three, [T]."""
    return bool(lanes_of(module)[0].positions)


def set_positions(module: Any, valid: int) -> None:
    """Sets the positions of tokens that follow `valid` others, for the next run of a graph that takes positions."""
    for lane in lanes_of(module):
        lane.set_text_positions(module, valid)


def context_length(module: Any) -> int:
    """Rows of the KV caches of an LLM graph; of one that has states alone, the tokens that it was compiled for."""
    if caches := lanes_of(module)[0].caches:
        return int(module.get_input_info(caches[0]).shape[2])
    try:
        return int(json.loads(module.get_custom_msg())["context_length"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "the graph has no KV caches, and its custom_msg does not say 'context_length'; compile the package again"
        ) from None
