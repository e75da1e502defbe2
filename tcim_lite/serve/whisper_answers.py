"""The text of a sound of any length by Whisper, window after window, as OpenAI's program and transformers make it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from starlette.requests import ClientDisconnect

from ..llm.engine import Event, MixedPrompt, QueueFullError, SamplingParams
from ..llm.media import MediaError
from ..llm.sounds import LongSound, SoundPrompts, Task, WhisperReader
from .answers import Answers, refusal
from .errors import ApiError, too_slow
from .service import Service
from .transcript import WindowText
from .usage import UsageCount

_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)  # after 0; the last text is believed
_DRIFTS = 0.5  # at this temperature a text may go astray, and the next window is not told of it
_PAUSE_S = 0.05  # before a queue that was full is tried again


@dataclass(frozen=True, kw_only=True)
class Question:
    """What Whisper is asked.

    Attributes:
        language: a code; None for a model of English alone.
        task: to write down what is said, or to translate it into English.
        timed: times are written between words.
        before: tokens of the client's text before the sound.
        conditions: a window is told of the text before it.
        tells_all: how probable silence is has to be known of each window.
    """

    language: str | None
    task: Task
    timed: bool
    before: Sequence[int]
    conditions: bool
    tells_all: bool


class WhisperAnswers(Answers):
    """One event for each window, when its text is believed.

    A text that repeats itself, or is unlikely, is made again at the next temperature, with seeds that are the same each
    time. Where it is unlikely and nobody seems to speak, there is none. A request that says a temperature gets that one
    alone.

    Args:
        service: Its engines answer.
        sounds: Of the package, a Whisper.
        whisper: Their reader, which writes prompts and reads texts.
        sound: All of it.
        question: What is asked of each window.
        params: How the first text of each window is made.
        texts: Of the windows, to which each is added before its event comes.
        usage: Counts tokens.
    """

    def __init__(
        self,
        service: Service,
        sounds: SoundPrompts,
        whisper: WhisperReader,
        sound: LongSound,
        question: Question,
        params: SamplingParams,
        texts: list[WindowText],
        usage: UsageCount,
    ):
        super().__init__(service.engines, service.metrics, service.options.timeout_s)
        self._service, self._sounds, self._whisper, self._sound = service, sounds, whisper, sound
        self._question, self._texts, self._usage = question, texts, usage
        self._params = replace(params, rules=whisper.rules(timed=question.timed))
        self._temperatures = (0.0, *_TEMPERATURES) if not params.temperature else (params.temperature,)
        self._said = list(question.before)  # what the next window is told of
        self._seek, self._tries = 0, 0
        self._silence: float | None = None  # of this window, how probable it is; None until it is asked for
        self._prompt: MixedPrompt | None = None

    async def begin(self) -> None:
        """Asks about the first window.

        Raises:
            ApiError: As `Answers.submit`; 400 for a prompt that cannot be used.
        """
        await self.submit(self._service.executor, [await self._next_prompt()], self._params, 1)

    async def events(self, idle_s: float) -> AsyncGenerator[tuple[int, Event] | None, None]:
        """As `Answers.events`."""
        held = list[Event]()
        async with contextlib.aclosing(super().events(idle_s)) as events:
            async for item in events:
                if item is None:
                    yield None
                    continue
                index, event = item
                held.append(event)
                if event.finish_reason is None:
                    continue
                tokens = tuple(token for each in held for token in each.token_ids)
                held = []
                if (text := await self._judged(tokens, event)) is None:
                    self._tries += 1
                    await self._queue(self, index, self._asked(), self._again())
                    continue
                self._texts.append(text)
                yield index, replace(event, token_ids=tokens)
                if self._seek < self._sound.frames:
                    await self._queue(self, index + 1, await self._next_prompt(), self._params)

    async def _next_prompt(self) -> MixedPrompt:
        """The prompt of the window at which the sound has arrived.

        Raises:
            ApiError: 400: The client's text has the token that begins a text.
        """
        asked, tells = self._question, self._question.before
        if asked.conditions and self._temperatures[self._tries] < _DRIFTS:
            tells = self._said
        tokens = self._whisper.prompt(asked.language, asked.task, timed=asked.timed, text=tells)
        seen = self._whisper.window(self._sound, self._seek)
        try:
            self._prompt = await self._service.in_tower_thread(lambda: self._sounds.place(tokens, [seen]))
        except MediaError as error:
            raise ApiError(400, f"prompt: {error}", param="prompt", code="invalid_audio") from None
        self._tries, self._silence = 0, None
        self._usage.add_prompt(len(self._prompt))
        return self._prompt

    async def _judged(self, tokens: tuple[int, ...], last: Event) -> WindowText | None:
        """The text of this window, behind which the next begins; None where it is not believed."""
        whisper, thresholds = self._whisper, self._whisper.thresholds
        ended = [*tokens, last.stop_reason] if isinstance(last.stop_reason, int) else list(tokens)
        mean = (last.sum_logprob or 0.0) / max(len(ended), 1)
        unlikely = thresholds.is_unlikely(mean)
        may_be_silence = unlikely and thresholds.no_speech is not None
        if self._silence is None and (may_be_silence or self._question.tells_all):
            self._silence = await self._no_speech()
        is_silence = may_be_silence and (self._silence or 0.0) > (thresholds.no_speech or 0.0)
        ratio = thresholds.ratio(ended, whisper.size)
        is_doubted = unlikely or thresholds.repeats(ratio)
        if is_doubted and not is_silence and self._tries + 1 < len(self._temperatures):
            return None
        begin, frames = self._seek, self._sound.frames_from(self._seek)
        segments, self._seek = ([], begin + frames) if is_silence else whisper.cut(tokens, self._sound, begin)
        self._said += whisper.remembered(segments)
        decode = self._service.vocabulary.decode
        return WindowText(
            [(segment, decode(whisper.words(segment.tokens))) for segment in segments],
            seconds=self._sound.seconds,
            seek=begin,
            temperature=self._temperatures[self._tries],
            mean_logprob=mean,
            compression_ratio=ratio,
            no_speech=self._silence,
        )

    async def _no_speech(self) -> float:
        """How probable it is that nobody speaks: the token for it, where the text would begin."""
        prompt = self._asked()
        end = prompt.tokens.index(self._whisper.placeholder) + 1
        begun = MixedPrompt(prompt.tokens[:end], prompt.places)
        asked = SamplingParams(max_tokens=1, logprobs=0, logprob_token_ids=(self._whisper.no_speech,), ignore_eos=True)
        answers, found = Answers(self._service.engines, self._service.metrics, self._service.options.timeout_s), 0.0
        await self._queue(answers, 0, begun, replace(asked, adapter=self._params.adapter))
        async for item in answers.events(math.inf):
            if item is not None and item[1].logprobs:
                found = math.exp(item[1].logprobs[0].top[0][1])
        return found

    def _asked(self) -> MixedPrompt:
        assert self._prompt is not None
        return self._prompt

    def _again(self) -> SamplingParams:
        """How a text of this window is made once more."""
        return SamplingParams.of(
            self._service.defaults,
            temperature=self._temperatures[self._tries],
            max_tokens=self._params.max_tokens,
            adapter=self._params.adapter,
            rules=self._params.rules,
            seed=self._tries,
        )

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
            except QueueFullError:
                await asyncio.sleep(_PAUSE_S)
                continue
            except Exception as error:
                raise refusal(error) from error
            if self._aborted:  # meanwhile
                self.abort()
            return
