"""Whisper's temperature fallback: doubtful texts are made again, as OpenAI's program does it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from starlette.requests import ClientDisconnect

from ..llm.engine import Event, MixedPrompt, QueueFullError, SamplingParams
from ..llm.sounds import WhisperReader
from .answers import Answers, refusal
from .errors import too_slow
from .service import Service

_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)  # after 0; the last text is believed
_PAUSE_S = 0.05  # before a queue that was full is tried again


class TemperatureFallback(Answers):
    """Answers to the parts of a sound; the events of a part come when its text is believed.

    A text that repeats itself, or is unlikely, is made again at the next temperature, with seeds that are the same each
    time. Where it is unlikely and nobody seems to speak, there is none.

    Args:
        service: Its engines answer.
        whisper: Of the package.
        prompts: One for each part.
        greedy: How the first texts are made.
    """

    def __init__(
        self, service: Service, whisper: WhisperReader, prompts: Sequence[MixedPrompt], greedy: SamplingParams
    ):
        super().__init__(service.engines, service.metrics, service.options.timeout_s)
        self._service, self._whisper, self._prompts, self._greedy = service, whisper, prompts, greedy
        self._has_no_speech: dict[int, bool] = {}  # of parts that were asked

    async def events(self, idle_s: float) -> AsyncGenerator[tuple[int, Event] | None, None]:
        """As `Answers.events`."""
        held: list[list[Event]] = [[] for _ in self._prompts]
        tries = [0] * len(held)
        async with contextlib.aclosing(super().events(idle_s)) as events:
            async for item in events:
                if item is None:
                    yield None
                    continue
                index, event = item
                held[index].append(event)
                if event.finish_reason is None:
                    continue
                if await self._is_believed(index, held[index]) or tries[index] == len(_TEMPERATURES):
                    for each in held[index]:
                        yield index, each
                    continue
                held[index] = []
                tries[index] += 1
                await self._again(index, tries[index])

    async def _is_believed(self, index: int, events: list[Event]) -> bool:
        """Judges the text of a part; where nobody speaks, leaves its end alone."""
        last, thresholds = events[-1], self._whisper.thresholds
        tokens = [token for event in events for token in event.token_ids]
        tokens += [last.stop_reason] if isinstance(last.stop_reason, int) else []
        unlikely = thresholds.is_unlikely((last.sum_logprob or 0.0) / max(len(tokens), 1))
        if unlikely and thresholds.no_speech is not None:
            if index not in self._has_no_speech:
                self._has_no_speech[index] = await self._no_speech(self._prompts[index]) > thresholds.no_speech
            if self._has_no_speech[index]:
                events[:] = [replace(last, token_ids=(), text="", logprobs=())]
                return True
        return not unlikely and not thresholds.repeats(tokens, self._whisper.size)

    async def _no_speech(self, prompt: MixedPrompt) -> float:
        """How probable it is that nobody speaks: the token for it, where the text would begin."""
        end = prompt.tokens.index(self._whisper.placeholder) + 1
        begun = MixedPrompt(prompt.tokens[:end], prompt.places)
        asked = SamplingParams(max_tokens=1, logprobs=0, logprob_token_ids=(self._whisper.no_speech,), ignore_eos=True)
        answers, found = Answers(self._service.engines, self._service.metrics, self._service.options.timeout_s), 0.0
        await self._queue(answers, 0, begun, replace(asked, adapter=self._greedy.adapter))
        async for item in answers.events(math.inf):
            if item is not None and item[1].logprobs:
                found = math.exp(item[1].logprobs[0].top[0][1])
        return found

    async def _again(self, index: int, number: int) -> None:
        """Asks for a part once more."""
        params = SamplingParams.of(
            self._service.defaults,
            temperature=_TEMPERATURES[number - 1],
            max_tokens=self._greedy.max_tokens,
            adapter=self._greedy.adapter,
            rules=self._greedy.rules,
            seed=number,
        )
        await self._queue(self, index, self._prompts[index], params)
        if self._aborted:  # meanwhile
            self.abort()

    async def _queue(self, answers: Answers, index: int, prompt: MixedPrompt, params: SamplingParams) -> None:
        """Submits as soon as the queue has room.

        Raises:
            ApiError: 503 at shutdown, 504 at the limit of time.
            ClientDisconnect: After `abort`.
        """
        while True:
            if self._aborted:
                raise ClientDisconnect
            if self._loop.time() > self._deadline:
                raise too_slow(self._timeout_s)
            try:
                await self._loop.run_in_executor(self._service.executor, answers.submit_one, index, prompt, params)
                return
            except QueueFullError:
                await asyncio.sleep(_PAUSE_S)
            except Exception as error:
                raise refusal(error) from error
