"""What an engine has done."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class EngineStats:
    """Counts since the engine began.

    Attributes:
        decode_steps: runs of the decode graph, and of the prefill graph for a token of one slot alone.
        decode_tokens: tokens from these; divided by `decode_steps` times the slots, how busy the slots were.
        verify_steps: runs of the verify graph.
        drafted_tokens: guesses that these checked.
        accepted_tokens: of these, the ones that became tokens of an answer.
        prefill_chunks: runs of the prefill graph.
        decode_s: seconds in decode and verify runs.
        prefill_s: seconds in prefill runs.
        prompt_tokens: of admitted requests.
        cached_tokens: of these, found in a slot or on the host.
        completion_tokens: chosen, stop tokens included.
        finished: requests by finish reason.
    """

    decode_steps: int = 0
    decode_tokens: int = 0
    verify_steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    prefill_chunks: int = 0
    decode_s: float = 0.0
    prefill_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0))
