"""Engines over tiny packages, and what one request gets alone."""

import functools

import numpy as np
import pytest
from llm_packages import LoadedPackage

from tcim_lite.llm import Sampler
from tcim_lite.llm.engine import Engine, SamplingParams, Slots

CONTEXT, CHUNK = 64, 16


@pytest.fixture(scope="session")
def alone(tiny_package):
    """One request by `LanguageModel.generate`, with nothing in its caches."""

    @functools.cache
    def loaded(context):
        return LoadedPackage(tiny_package(prefill_length=CHUNK, context_length=context))

    def generate(prompt, limit, sampler=None, context=CONTEXT):
        model = loaded(context)
        model.cached_tokens = []
        return list(model.generate(prompt, sampler or Sampler(), limit, ()))

    return generate


@pytest.fixture
def make_engine(tiny_package):
    def make(batch=4, context=CONTEXT, **options):
        package = tiny_package(prefill_length=CHUNK, context_length=context, batch=batch)
        return Engine(Slots.open(package), **options)

    return make


def prompt_of(length, seed):
    return np.random.default_rng(seed).integers(0, 300, length).tolist()


def run(engine, answers=None):
    """Steps until there is nothing left; the tokens of each request, and its last event."""
    answers, last = {} if answers is None else answers, {}
    while engine.has_work:
        for event in engine.step():
            answers.setdefault(event.request_id, []).extend(event.token_ids)
            last[event.request_id] = event
    return answers, last


def check_engine_answers_as_the_generator(package, prompts):
    engine, alone = Engine(Slots.open(package)), LoadedPackage(package)
    for index, prompt in enumerate(prompts):
        engine.add(prompt, SamplingParams(max_tokens=6), request_id=str(index))
    answers, _ = run(engine)
    for index, prompt in enumerate(prompts):
        alone.cached_tokens = []
        assert list(alone.generate(prompt, Sampler(), 6, ())) == answers[str(index)]


def hold_after_a_step(driver, event, monkeypatch):
    """The engine waits for the event behind its first step: it could answer a request before others have a turn."""
    advance, first = driver.engine.advance, iter([True])
    monkeypatch.setattr(driver.engine, "advance", lambda: (next(first, False) or event.wait(20)) and advance())
