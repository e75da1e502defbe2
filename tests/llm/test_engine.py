"""The engine gives every request the tokens that it gets alone, whatever else comes and goes."""

import random

import numpy as np
import pytest
from engine_tools import CHUNK, CONTEXT, prompt_of, run

from tcim_lite.llm.engine import QueueFullError, RequestError, SamplingParams, State, answer_all


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("chunks", [1, 2, None])
def test_answers_in_slots_equal_answers_alone(make_engine, alone, batch, chunks):
    engine = make_engine(batch, chunks_per_step=chunks)
    prompts = {f"p{i}": prompt_of(length, i) for i, length in enumerate([3, 40, 17, 64, 1, 33, 16, 50, 5])}
    for name, prompt in prompts.items():
        engine.add(prompt, SamplingParams(max_tokens=12), request_id=name)
    answers, last = run(engine)
    for name, prompt in prompts.items():
        assert answers[name] == alone(prompt, 12), name
        assert last[name].finish_reason == "length"
        assert last[name].usage.prompt_tokens == len(prompt)
        assert last[name].usage.completion_tokens == len(answers[name])


def long_prompt_logits(engine):
    """The logits after a prompt of four chunks, a decode step of another slot between each two."""
    logits = {}
    engine.slots.alone_by_prefill = False
    prefill = engine.slots.prefill

    def record(slot, tokens, *others):
        logits[slot] = prefill(slot, tokens, *others).copy()
        return logits[slot]

    engine.slots.prefill = record
    engine.add(prompt_of(4, 1), SamplingParams(max_tokens=30))
    engine.step()
    engine.add(prompt_of(60, 2), SamplingParams(max_tokens=4), request_id="long")
    steps = engine.stats.decode_steps
    while not engine.requests["long"].tokens:
        engine.step()
    assert engine.stats.decode_steps - steps == 4
    return logits[1]


def test_a_decode_step_leaves_a_prompt_in_mid_prefill_alone(make_engine):
    alone = make_engine(2)
    for begin in range(0, 60, CHUNK):
        expected = alone.slots.prefill(0, prompt_of(60, 2)[begin : begin + CHUNK]).copy()
    np.testing.assert_array_equal(long_prompt_logits(make_engine(2)), expected)

    # What the rule prevents: the valid length 0 for a slot that takes no part.
    engine = make_engine(2)
    engine.slots.stages[0].decode = ZeroForIdle(engine)
    engine.slots.alone_by_prefill = False
    assert (long_prompt_logits(engine) != expected).any()


class ZeroForIdle:
    """A decode module whose slot 1 is given the valid length 0 until it decodes."""

    def __init__(self, engine):
        stage = engine.slots.stages[0]
        self._engine, self._decode, self._name = engine, stage.decode, stage.lanes[1].valid

    def __getattr__(self, name):
        return getattr(self._decode, name)

    def set_input(self, name, value):
        is_idle = name == self._name and self._engine.snapshot()[1]["state"] != "decode"
        self._decode.set_input(name, np.zeros(1, np.int32) if is_idle else value)


def test_a_full_idle_slot_gives_up_its_last_row(make_engine):
    slots = make_engine(2).slots
    slots.alone_by_prefill = False
    full = prompt_of(CONTEXT, 1)
    for begin in range(0, CONTEXT, CHUNK):
        expected = slots.prefill(0, full[begin : begin + CHUNK])
    slots.prefill(1, [1, 2, 3])
    slots.decode({1: 4})
    assert slots.tokens[0] == full[:-1]
    np.testing.assert_array_equal(slots.prefill(0, full[-1:]), expected)


class Lengths:
    """A decode module that notes the valid lengths of its runs."""

    def __init__(self, stage):
        self._decode, self._names = stage.decode, [lane.valid for lane in stage.lanes]
        self._now, self.runs = {}, []

    def __getattr__(self, name):
        return getattr(self._decode, name)

    def set_input(self, name, value):
        if name in self._names:
            self._now[self._names.index(name)] = int(value[0])
        self._decode.set_input(name, value)

    def run(self):
        self.runs.append([self._now[slot] for slot in range(len(self._names))])
        self._decode.run()


def test_a_free_slot_costs_no_attention_and_keeps_its_rows(make_engine, alone):
    engine = make_engine(3)
    engine.slots.alone_by_prefill = False
    stage = engine.slots.stages[0]
    stage.decode = module = Lengths(stage)
    kept, small = prompt_of(CONTEXT, 1), prompt_of(10, 2)
    for prompt, name in ((kept, "kept"), (small, "small"), (prompt_of(5, 3), "other")):
        engine.add(prompt, SamplingParams(max_tokens=1 if name != "other" else 9), request_id=name)
    answers, _ = run(engine)
    assert answers["other"] == alone(prompt_of(5, 3), 9)
    # The full slot passes 0 and loses nothing; for the short one, parking would cost more than its rows do.
    assert module.runs[-1] == [0, 10, 12]
    assert engine.slots.tokens[0] == kept
    engine.add(kept, SamplingParams(max_tokens=1), request_id="again")
    engine.add([*kept[:40], 7], SamplingParams(max_tokens=5), request_id="part")
    answers, last = run(engine)
    assert answers == {"again": alone(kept, 1), "part": alone([*kept[:40], 7], 5)}
    assert [last[name].usage.cached_tokens for name in ("again", "part")] == [CONTEXT - 1, 40]


@pytest.mark.parametrize(("device", "clock", "expected"), [("cpu", "off", True), ("", "", True), ("cpu", "m50", False)])
def test_a_token_alone_is_appended_by_prefill_where_only_this_cpu_counts(
    make_engine, monkeypatch, device, clock, expected
):
    monkeypatch.setenv("TCIM_LITE_DEVICE", device)
    monkeypatch.setenv("TCIM_LITE_CLOCK", clock)
    assert make_engine(3).slots.alone_by_prefill is expected


@pytest.mark.parametrize("by_prefill", [True, False])
def test_an_answer_alone_costs_one_row_and_is_the_same(make_engine, alone, by_prefill):
    engine = make_engine(3)
    engine.slots.alone_by_prefill = by_prefill
    stage = engine.slots.stages[0]
    stage.decode = module = Lengths(stage)
    kept, params = prompt_of(40, 1), SamplingParams(max_tokens=CONTEXT)
    engine.add(kept, SamplingParams(max_tokens=1))
    run(engine)
    engine.add(prompt_of(5, 3), params, request_id="first")
    begun = {"first": [token for _ in range(10) for event in engine.step() for token in event.token_ids]}
    assert len(module.runs) == (0 if by_prefill else 10)
    engine.add(prompt_of(7, 4), SamplingParams(max_tokens=4), request_id="second")  # and then it is alone again
    answers, last = run(engine, begun)
    assert answers["second"] == alone(prompt_of(7, 4), 4)
    assert answers["first"] == alone(prompt_of(5, 3), CONTEXT)
    assert last["first"].usage.completion_tokens == CONTEXT - 4  # until the context is full
    engine.add([*kept, 7], SamplingParams(max_tokens=3), request_id="again")
    answers, last = run(engine)
    assert answers["again"] == alone([*kept, 7], 3)
    assert last["again"].usage.cached_tokens == 40


@pytest.mark.parametrize(("static", "steps"), [(False, 126), (True, 396)])
def test_the_queue_of_the_specification(make_engine, static, steps):
    """32 prompts, 8 slots, 100 tokens for every eighth prompt and 10 for the others."""
    engine = make_engine(8, context=128, static=static, chunks_per_step=None)
    random_prompts = random.Random(42)
    for i in range(32):
        prompt = [random_prompts.randrange(300) for _ in range(random_prompts.randint(4, 20))]
        engine.add(prompt, SamplingParams(max_tokens=100 if i % 8 == 0 else 10))
    run(engine)
    assert engine.stats.decode_steps == steps


@pytest.mark.parametrize("static", [False, True])
def test_a_list_of_prompts_however_long(make_engine, alone, static):
    engine = make_engine(3, max_waiting=2, static=static)
    prompts = [prompt_of(length, length) for length in (3, 20, 40, 7, 1, 30, 12)]
    answers = answer_all(engine, prompts, SamplingParams(max_tokens=6, logprobs=1))
    assert [list(answer.token_ids) for answer in answers] == [alone(prompt, 6) for prompt in prompts]
    assert [len(answer.logprobs) for answer in answers] == [6] * 7
    assert [answer.usage.prompt_tokens for answer in answers] == [len(prompt) for prompt in prompts]
    limits = [SamplingParams(max_tokens=n + 1) for n in range(7)]
    assert [len(answer.token_ids) for answer in answer_all(engine, prompts, limits)] == [1, 2, 3, 4, 5, 6, 7]
    assert answer_all(engine, []) == []
    with pytest.raises(ValueError, match="2 params for 7 prompts"):
        answer_all(engine, prompts, limits[:2])
    with pytest.raises(RequestError, match="is empty"):
        answer_all(engine, [[1], []])
    engine.add([1, 2])
    with pytest.raises(ValueError, match="the engine has 1 requests"):
        answer_all(engine, prompts)


def test_abort_in_every_state_frees_the_slot_within_a_step(make_engine, alone):
    engine = make_engine(1)
    for seed, name in enumerate(("decode", "prefill", "waiting", "other")):
        engine.add(prompt_of(40, seed), SamplingParams(max_tokens=9), request_id=name)
    for name, state in [("waiting", State.WAITING), ("decode", State.DECODE), ("prefill", State.PREFILL)]:
        request = engine.requests[name]
        for _ in range(20):
            if request.state is not state:
                engine.step()
        assert engine.abort(name)
        assert not engine.abort(name)
        event = next(event for event in engine.step() if event.request_id == name)
        assert (event.finish_reason, request.state) == ("abort", State.DONE)
    answers, _ = run(engine)
    assert answers["other"] == alone(prompt_of(40, 3), 9)
    assert engine.stats.finished == {"stop": 0, "length": 1, "abort": 3, "error": 0}


def test_what_cannot_be_answered_is_refused_with_both_numbers(make_engine):
    engine = make_engine(2, max_waiting=1)
    with pytest.raises(RequestError, match="65 tokens, the context holds 64"):
        engine.add(prompt_of(65, 1))
    with pytest.raises(RequestError, match="is empty"):
        engine.add([])
    with pytest.raises(RequestError, match="outside the vocabulary"):
        engine.add([10**6])
    with pytest.raises(RequestError, match="whole numbers in one list"):
        engine.add([[1, 2]])
    for _ in range(3):
        engine.add([1, 2])
    with pytest.raises(QueueFullError, match="3 requests wait or are being answered; 2 slots and a queue of 1"):
        engine.add([1, 2])


def test_an_error_of_the_runtime_ends_its_requests_and_no_others(make_engine, alone, monkeypatch):
    engine = make_engine(2)
    engine.add([1, 2, 3], SamplingParams(max_tokens=50), request_id="first")
    engine.step()

    def fail(*_):
        raise RuntimeError("device gone")

    with monkeypatch.context() as patch:
        patch.setattr(engine.slots, "prefill", fail)
        engine.add([4, 5], request_id="second")
        events = engine.step()
    assert [event.error for event in events if event.request_id == "second"] == ["RuntimeError: device gone"]
    long = prompt_of(40, 1)
    engine.add(long, SamplingParams(max_tokens=5), request_id="third")
    with monkeypatch.context() as patch:
        patch.setattr(engine.slots, "decode", fail)
        events = engine.step()
    assert [(event.request_id, event.finish_reason) for event in events] == [("first", "error")]
    answers, last = run(engine)
    assert answers["third"] == alone(long, 5)
    assert last["third"].finish_reason == "length"
