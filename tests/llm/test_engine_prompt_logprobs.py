"""Logarithms of probabilities of prompts."""

import itertools

import numpy as np
import pytest
from engine_tools import CHUNK, CONTEXT, prompt_of, run

from tcim_lite.llm.engine import Engine, RequestError, SamplingParams, Slots, answer_all


def test_logprobs_of_a_prompt_are_those_of_each_of_its_rows(tiny_package):
    package = tiny_package(prefill_length=CHUNK, context_length=CONTEXT, batch=2, all_logits=True)
    prompt = prompt_of(40, 3)
    slots = Slots.open(package)
    expected = []
    for token, following in itertools.pairwise(prompt):
        logits = slots.prefill(0, [token]).astype(np.float64)
        expected.append(logits[following] - np.logaddexp.reduce(logits))
    engine = Engine(Slots.open(package))
    engine.add(prompt, SamplingParams(max_tokens=4))  # rows that would save the next one's prefill
    plain, _ = run(engine)
    engine.add(prompt, SamplingParams(max_tokens=4, prompt_logprobs=1), request_id="judged")
    events = [event for _ in iter(lambda: engine.has_work, False) for event in engine.step()]
    found = events[0].prompt_logprobs
    assert not any(event.prompt_logprobs for event in events[1:])
    assert [item.token for item in found] == prompt[1:]
    np.testing.assert_allclose([item.logprob for item in found], expected, atol=1e-9)
    assert [token for event in events for token in event.token_ids] == next(iter(plain.values()))
    assert events[-1].usage.cached_tokens == 0


def test_a_prompt_can_be_judged_without_an_answer(tiny_package):
    engine = Engine.open(tiny_package(prefill_length=CHUNK, context_length=CONTEXT, batch=2, all_logits=True))
    prompts = [prompt_of(40, 3), prompt_of(5, 4)]
    longer = answer_all(engine, prompts, SamplingParams(max_tokens=3, prompt_logprobs=1))
    alone = answer_all(engine, prompts, SamplingParams(max_tokens=0, prompt_logprobs=1))
    assert [event.prompt_logprobs for event in alone] == [event.prompt_logprobs for event in longer]
    assert [len(event.prompt_logprobs) for event in alone] == [39, 4]
    assert {(event.token_ids, event.finish_reason, event.usage.completion_tokens) for event in alone} == {
        ((), "length", 0)
    }
    assert not engine.has_work


def test_a_prompt_without_an_answer_leaves_its_rows(tiny_package):
    engine = Engine.open(tiny_package(prefill_length=CHUNK, context_length=CONTEXT, batch=2))
    prompt = prompt_of(40, 3)
    (alone,) = answer_all(engine, [prompt], SamplingParams(max_tokens=0))
    assert (alone.token_ids, alone.finish_reason, alone.prompt_logprobs) == ((), "length", ())
    (longer,) = answer_all(engine, [prompt], SamplingParams(max_tokens=3))
    assert longer.usage.cached_tokens == len(prompt) - 1


def test_logprobs_of_a_prompt_need_all_logits(make_engine):
    engine = make_engine(2)
    with pytest.raises(RequestError, match="compile with --all-logits"):
        engine.add([1, 2], SamplingParams(prompt_logprobs=0))
    with pytest.raises(ValueError, match="--all-logits"):
        engine.slots.prefill_all(0, [1, 2])
