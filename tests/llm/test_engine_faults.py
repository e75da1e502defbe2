"""Requests on a card in trouble: each is answered as alone or ends with an error, and later ones are answered."""

import pytest
from engine_tools import prompt_of, run

from tcim_lite.llm.engine import SamplingParams

PROMPTS = {f"p{i}": prompt_of(length, i) for i, length in enumerate([3, 40, 17, 64, 1, 33, 16, 50, 5])}


@pytest.fixture
def expected(alone):
    """The answers without faults."""
    return {name: alone(prompt, 12) for name, prompt in PROMPTS.items()}


def failures(engine, expected):
    """Answers all prompts; the last events of those that ended with an error. What was answered is right."""
    for name, prompt in PROMPTS.items():
        engine.add(prompt, SamplingParams(max_tokens=12), request_id=name)
    answers, last = run(engine)
    failed = [event for event in last.values() if event.finish_reason == "error"]
    for event in last.values():
        answer, wanted = answers.get(event.request_id, []), expected[event.request_id]
        assert answer == (wanted[: len(answer)] if event in failed else wanted), event.request_id
    assert last.keys() == PROMPTS.keys()
    return failed


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("kind", ["reset", "flaky_sync"])
def test_errors_that_pass_end_requests_and_spoil_no_others(make_engine, expected, tcim_faults, batch, kind):
    engine = make_engine(batch)
    tcim_faults(kind=kind, probability=0.05, seed=1)
    assert 0 < len(failures(engine, expected)) < len(PROMPTS)


@pytest.mark.parametrize("kind", [{"kind": "device_lost"}, {"kind": "hang", "timeout_s": 0.1}])
def test_a_lost_device_ends_all_requests_until_it_is_reset(make_engine, expected, tcim_faults, hal, kind):
    engine = make_engine(4)
    tcim_faults({**kind, "nth": 20})
    failed = failures(engine, expected)
    assert failed
    assert all("device 0" in event.error for event in failed)
    hal.ipu_reset(0)
    assert not failures(engine, expected)
