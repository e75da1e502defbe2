"""Logprobs of a prompt's tokens, gathered over the chunks of its prefill."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.v1.outputs import LogprobsTensors


class PromptLogprobs:
    """What requests asked for with `prompt_logprobs`, until their prompt is complete.

    Args:
        sampler: vLLM's; ranks and likeliest tokens are its own.
        mode: vLLM's `logprobs_mode`. Processors of logits take no part in a prompt, so raw and processed are equal.
        vocab_size: V; what `prompt_logprobs=-1` stands for.
    """

    def __init__(self, sampler: Any, mode: str, vocab_size: int):
        self._sampler, self._are_logits, self._vocab_size = sampler, mode.endswith("logits"), vocab_size
        self._counts: dict[str, int] = {}
        self._done: dict[str, list[tuple[torch.Tensor, ...]]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the logits of this request's prompt are needed."""
        return name in self._counts

    def start(self, name: str, params: Any) -> None:
        """Takes in a request whose `SamplingParams` may ask for logprobs of the prompt."""
        if (count := params.prompt_logprobs) is not None:
            self._counts[name] = self._vocab_size if count == -1 else count

    def forget(self, name: str) -> None:
        """The request ended, or starts over."""
        self._counts.pop(name, None)
        self._done.pop(name, None)

    def restart(self, name: str) -> None:
        """The request's prompt is prefilled again."""
        self._done.pop(name, None)

    def add(self, name: str, prompt: list[int], start: int, logits: np.ndarray) -> LogprobsTensors | None:
        """Takes the logits [n, V] after tokens `start` to `start + n - 1`; returns the result with the last token's.

        Row i of the result is about token i + 1 of the prompt: nothing comes before token 0.
        """
        targets = prompt[start + 1 : start + 1 + len(logits)]
        if targets:
            scores = torch.from_numpy(np.ascontiguousarray(logits[: len(targets)], np.float32))
            if not self._are_logits:
                scores = self._sampler.compute_logprobs(scores)
            found = self._sampler.gather_logprobs(scores, self._counts[name], torch.tensor(targets))
            self._done.setdefault(name, []).append(tuple(found[:3]))
        if start + len(logits) < len(prompt):
            return None
        parts = self._done.get(name)
        width = self._counts[name] + 1
        self.forget(name)
        if not parts:  # a prompt of one token
            return LogprobsTensors.empty_cpu(0, width)
        return LogprobsTensors(*(torch.cat(column) for column in zip(*parts, strict=True)))
