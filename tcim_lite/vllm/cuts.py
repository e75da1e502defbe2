"""Where the runs of one sequence are cut, for packages with states of linear attention.

States are rounded at the end of each run, so another cut of a prompt shows in the last bits. vLLM cuts prompts where a
step has no more room, and runs a sequence that it preempted again as one prompt. The worker runs the chunks that the
sequence would have alone: those of the prompt, the last one shorter, then a token each. What is less than the next one
waits for a later step; the last token of a sequence always ends a run, so nothing waits where logits are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


def runs_to(
    target: int, held: int, prompt: int, chunk: int, cut: Callable[[int, int], int] | None = None
) -> Iterator[tuple[int, int]]:
    """Yields begin and end of the runs that bring a sequence from `held` tokens as near to `target` as may be.

    Args:
        target: Tokens that vLLM counts as computed after the step.
        held: Tokens that the slot has.
        prompt: Tokens of the prompt.
        chunk: Tokens that a prefill run takes.
        cut: Where a run of the prompt from a token on ends, of at most so many; by default as late as may be.
    """
    cut = cut or int.__add__
    while (end := min(cut(held, chunk), prompt) if held < prompt else held + 1) <= target:
        yield held, end
        held = end


def held_at(computed: int, prompt: int, chunk: int) -> int:
    """Returns how many tokens a slot has where vLLM counts `computed` ones."""
    return computed if computed >= prompt else computed // chunk * chunk
