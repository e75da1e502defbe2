"""Rows that are there already: in place, from another slot, from host memory. The answers stay the same."""

import numpy as np
import pytest
from engine_tools import prompt_of, run

from tcim_lite.llm.engine import SamplingParams
from tcim_lite.llm.engine.prefixes import HostRows

SHORT = SamplingParams(max_tokens=3)


def ask(engine, alone, prompt, limit=3):
    """Answers one prompt, checks the answer, and returns how many of its tokens were there already."""
    name = engine.add(prompt, SamplingParams(max_tokens=limit)).id
    answers, last = run(engine)
    assert answers[name] == alone(prompt, limit)
    return last[name].usage.cached_tokens


def test_a_prompt_takes_the_slot_that_begins_alike(make_engine, alone):
    engine = make_engine(4)
    prompts = [prompt_of(30, seed) for seed in range(4)]
    for prompt in prompts:
        engine.add(prompt, SHORT)
    run(engine)
    longer = [prompt[:25] + prompt_of(12, 9) for prompt in reversed(prompts)]
    for i, prompt in enumerate(longer):
        engine.add(prompt, SamplingParams(max_tokens=5), request_id=f"longer{i}")
    answers, last = run(engine)
    for i, prompt in enumerate(longer):
        assert answers[f"longer{i}"] == alone(prompt, 5)
        assert last[f"longer{i}"].usage.cached_tokens == 25
    engine.reuse_prefixes = False
    engine.add(longer[0], SamplingParams(max_tokens=5), request_id="fresh")
    assert run(engine)[1]["fresh"].usage.cached_tokens == 0


def test_rows_are_copied_from_a_slot_at_work(make_engine, alone):
    engine = make_engine(2)
    system = prompt_of(30, 1)
    engine.add([*system, 5], SamplingParams(max_tokens=20), request_id="first")
    while not engine.requests["first"].tokens:
        engine.step()
    engine.add([*system, 6, 7], SamplingParams(max_tokens=20), request_id="second")
    answers, last = run(engine, {"first": list(engine.requests["first"].tokens)})
    assert answers == {"first": alone([*system, 5], 20), "second": alone([*system, 6, 7], 20)}
    assert last["second"].usage.cached_tokens == 30


@pytest.mark.parametrize("chunks", [1, None])
def test_prompts_that_come_together_are_prefilled_once(make_engine, alone, chunks):
    engine = make_engine(4, chunks_per_step=chunks)
    prompt = prompt_of(40, 1)
    params = [SamplingParams(max_tokens=9, temperature=1.0, seed=seed) for seed in range(4)]
    names = [engine.add(prompt, each).id for each in params]
    answers, last = run(engine)
    assert [answers[name] for name in names] == [alone(prompt, 9, each.sampler()) for each in params]
    assert [last[name].usage.cached_tokens for name in names] == [0, 39, 39, 39]
    assert engine.stats.cached_tokens == 3 * 39
    assert engine.stats.prefill_chunks == 3 + 3


def test_a_small_common_part_of_a_long_answer_is_copied_and_the_answer_stays(make_engine, alone):
    engine = make_engine(2)
    long, part = prompt_of(60, 1), prompt_of(60, 1)[:20] + prompt_of(10, 2)
    assert ask(engine, alone, long) == 0
    assert ask(engine, alone, part) == 20
    assert engine.slots.tokens[0][:60] == long
    assert ask(engine, alone, [*long[:59], 1]) == 59


def test_a_few_common_tokens_cost_no_other_prompt_its_rows(make_engine, alone):
    engine = make_engine(2)
    long, other = prompt_of(50, 1), prompt_of(50, 1)[:5] + prompt_of(9, 2)
    ask(engine, alone, long)
    assert ask(engine, alone, other) == 0
    assert ask(engine, alone, long) == 49


def test_rows_that_left_their_slot_come_back_from_the_host(make_engine, alone):
    engine = make_engine(1, prefix_cache_bytes=1 << 20)
    books = [prompt_of(40, seed) for seed in range(3)]
    assert [ask(engine, alone, [*book, 1, 2]) for book in books] == [0, 0, 0]
    assert [ask(engine, alone, [*book, 3]) for book in books] == [40, 40, 40]
    assert 0 < engine.host_rows.used_bytes <= 1 << 20
    assert len(engine.host_rows) == 3
    assert engine.stats.cached_tokens == 120


def test_the_budget_drops_what_was_used_least_recently(make_engine, alone):
    row = make_engine(1).slots.row_bytes
    engine = make_engine(1, prefix_cache_bytes=2 * 46 * row)
    books = [prompt_of(40, seed) for seed in range(4)]
    for book in books[:3]:
        ask(engine, alone, book)  # the third is in the slot, the others on the host
    assert ask(engine, alone, [*books[0], 9]) == 40  # used last of all
    assert ask(engine, alone, [*books[3], 9]) == 0
    assert engine.host_rows.used_bytes <= 2 * 46 * row
    assert ask(engine, alone, [*books[1], 9]) == 0
    assert ask(engine, alone, [*books[0], 8]) == 40
    # A budget below one prompt keeps nothing.
    small = make_engine(1, prefix_cache_bytes=20 * row)
    assert [ask(small, alone, book) for book in (books[0], books[1], books[0])] == [0, 0, 0]
    assert small.host_rows.used_bytes == 0
    with pytest.raises(ValueError, match="prefix_cache_bytes=-1"):
        HostRows(-1)


def test_a_longer_conversation_replaces_its_beginning(make_engine, alone):
    engine = make_engine(1, prefix_cache_bytes=1 << 20)
    turn = prompt_of(20, 1)
    ask(engine, alone, turn)
    ask(engine, alone, prompt_of(20, 2))
    longer = turn + prompt_of(20, 3)
    assert ask(engine, alone, longer) == 20
    ask(engine, alone, prompt_of(30, 4))
    # `turn` and its answer had 22 rows; all but those of the answer are in the longer one.
    assert sorted(len(entry.tokens) for entry in engine.host_rows._entries) == [22, 42]
    assert ask(engine, alone, [*turn, 7]) == 20


def test_an_error_while_rows_are_copied_ends_that_request_only(make_engine, alone, monkeypatch):
    engine = make_engine(2)
    system = prompt_of(30, 1)
    engine.add([*system, 5], SamplingParams(max_tokens=9), request_id="first")
    engine.step()
    engine.step()

    def fail(*_):
        raise RuntimeError("device gone")

    with monkeypatch.context() as patch:
        patch.setattr(engine.slots, "copy_rows", fail)
        engine.add([*system, 6], SHORT, request_id="second")
        events = engine.step()
    assert [e.error for e in events if e.request_id == "second"] == ["RuntimeError: device gone"]
    assert ask(engine, alone, [*system, 6]) == 30
    assert engine.stats.finished["length"] == 2


def test_rows_read_and_written_are_the_same_rows(make_engine):
    slots = make_engine(3).slots
    slots.prefill(0, prompt_of(11, 1))
    rows = slots.read_rows(0)
    assert all(part.shape[2] == 11 for part in rows)
    assert sum(part.nbytes for part in rows) == 11 * slots.row_bytes
    slots.write_rows(1, slots.tokens[0][:7], rows)
    slots.copy_rows(0, 2, 9)
    for slot, count in ((1, 7), (2, 9)):
        assert slots.tokens[slot] == slots.tokens[0][:count]
        for ours, theirs in zip(slots.read_rows(slot), rows, strict=True):
            np.testing.assert_array_equal(ours, theirs[:, :, :count])
