"""Windows of Whisper over engines that are played: queues that are full, clients that leave, texts that are doubted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

from starlette.requests import ClientDisconnect

from tcim_lite.llm.engine import Event, Features, MixedPrompt, QueueFullError, SamplingParams, TokenLogprob
from tcim_lite.llm.generation_defaults import GenerationDefaults
from tcim_lite.llm.sounds.whisper import FallbackThresholds
from tcim_lite.llm.sounds.windows import LongSound, cut, without_last_time
from tcim_lite.serve.usage import UsageCount
from tcim_lite.serve.whisper_answers import Question, WhisperAnswers

START, FIRST_TIME = 1, 100


class Reader:
    """As `WhisperReader`, with windows of a second."""

    thresholds = FallbackThresholds(compression_ratio=None, logprob=-1.0, no_speech=0.6)
    size, placeholder, no_speech = 1000, START, 2

    def rules(self, timed):
        return None

    def prompt(self, language, task, *, timed, text):
        return [*text, START, 4]

    def window(self, sound, seek):
        return sound.window(seek)

    def cut(self, tokens, sound, seek):
        return cut(tokens, FIRST_TIME, seek, sound.frames_from(seek))

    def remembered(self, segments):
        return [token for segment in segments for token in without_last_time(segment, FIRST_TIME)]

    def words(self, tokens):
        return [token for token in tokens if token < FIRST_TIME]


class Engines:
    """Answers by `answer(prompt, params)`; the queue is full at some of the requests."""

    def __init__(self, answer, full_at=()):
        self._answer, self._full_at, self.asked, self.prompts = answer, full_at, 0, []

    def submit(self, prompt, params, on_event):
        self.asked += 1
        if self.asked in self._full_at:
            raise QueueFullError("the queue is full")
        self.prompts.append(list(prompt))
        tokens, likely = self._answer(prompt, params)
        told = () if params.logprobs is None else (TokenLogprob(token=2, logprob=-9.0, top=((2, -9.0),)),)
        on_event(
            Event(
                request_id="a",
                token_ids=tokens,
                logprobs=told,
                finish_reason="length",
                sum_logprob=likely * len(tokens),
            )
        )
        return "a"

    def abort(self, request_id):
        pass


def answered(engines, seconds: float, *, on_text=lambda answers: None, before=(), temperature=0.0):
    """The texts of a sound, and what was counted."""
    service = SimpleNamespace(
        engines=engines,
        metrics=SimpleNamespace(watch=lambda length: lambda event: None),
        options=SimpleNamespace(timeout_s=60.0),
        executor=None,
        defaults=GenerationDefaults(),
        vocabulary=SimpleNamespace(decode=lambda tokens: " ".join(map(str, tokens))),
    )

    async def in_tower_thread(work):
        return work()

    service.in_tower_thread = in_tower_thread
    features = Features(np.zeros((1, 1), np.int32))
    sounds = SimpleNamespace(place=lambda tokens, seen: MixedPrompt(tokens, [(tokens.index(START), features)]))
    question = Question(language="en", task="transcribe", timed=True, before=before, conditions=True, tells_all=False)
    texts, usage = [], UsageCount([], 1)

    async def run():
        sound = LongSound(np.ones(round(16000 * seconds), np.float32), 20, 100)
        params = SamplingParams(temperature=temperature)
        answers = WhisperAnswers(service, sounds, Reader(), sound, question, params, texts, usage)
        await answers.begin()
        async for item in answers.events(60.0):
            usage.add(*item)
            on_text(answers)

    asyncio.run(run())
    return texts, usage


def test_a_full_queue_is_waited_for():
    """For a doubted text, the question whether anybody speaks, the text at a higher temperature, and a next window."""
    engines = Engines(lambda prompt, params: ((5,), -0.1 if params.temperature else -9.0), full_at=(2, 4, 5, 7))
    texts, _ = answered(engines, 1.5)
    assert [text.segments()[0]["avg_logprob"] for text in texts] == pytest.approx([-0.1, -0.1])
    assert [text.segments()[0]["temperature"] for text in texts] == [0.2, 0.2]
    assert engines.asked == 3 + 3 + 4


def test_a_window_is_told_of_the_text_before_it_unless_that_was_made_at_a_high_temperature():
    answers = iter([(-9.0, 5)] * 3 + [(-0.1, 6)] + [(-0.1, 7)] * 9)  # the first is believed at 0.6
    prompts = []

    def answer(prompt, params):
        if params.logprobs is not None:
            return (2,), 0.0
        likely, word = next(answers)
        prompts.append(list(prompt))
        return (FIRST_TIME, word, FIRST_TIME + 20, FIRST_TIME + 20), likely

    texts, usage = answered(Engines(answer), 1.5, before=(8,))
    assert prompts[:5] == [[8, START, 4]] * 5
    said = [FIRST_TIME, 6, FIRST_TIME + 20, FIRST_TIME, 7, FIRST_TIME + 20]
    assert prompts[5] == [8, *said, START, 4]
    assert [text.segments()[0]["seek"] for text in texts] == [0, 40, 80, 120]
    assert usage.body()["prompt_tokens"] == sum(map(len, [prompts[0], *prompts[4:]]))
    assert usage.body()["completion_tokens"] == 4 * len(texts)


def test_a_client_that_leaves_is_asked_about_no_more_windows():
    engines = Engines(lambda prompt, params: ((FIRST_TIME, 5, FIRST_TIME + 9, FIRST_TIME + 9), -0.1))
    with pytest.raises(ClientDisconnect):
        answered(engines, 9.0, on_text=lambda answers: answers.abort())
    assert engines.asked == 1
