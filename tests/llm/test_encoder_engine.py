"""The engine over an encoder: which texts run together, what it refuses, and what a run that fails ends."""

from __future__ import annotations

import queue

import numpy as np
import pytest

from tcim_lite.llm.encoders import Encoder, EncoderEngine, EncoderPackage
from tcim_lite.llm.engine import Driver, QueueFullError, RequestError, SamplingParams

pytest.importorskip("onnx", reason="compiles ONNX")

from sums_encoder import compile_sums


@pytest.fixture
def engine(tmp_path):
    return EncoderEngine(Encoder(EncoderPackage.open(compile_sums(tmp_path, pooling="cls"))), 99, max_waiting=3)


def test_an_engine_runs_texts_of_one_length_together_in_order(engine):
    prompts = [[1], [2] * 7, [3] * 2, [4]]
    for number, prompt in enumerate(prompts):
        engine.enqueue(engine.prepare(prompt, None, str(number)))
    ran = []
    while engine.has_work:
        engine.advance()
        ran.append([event.request_id for event in engine.take_events()])
    assert ran == [["0", "2"], ["1"], ["3"]]
    assert (engine.stats.prefill_chunks, engine.stats.finished["length"], engine.stats.prompt_tokens) == (3, 4, 11)


def test_what_an_engine_cannot_do_is_refused(engine):
    for prompt, params, message in (
        ([], None, "empty"),
        ([1] * 9, None, "9 tokens, the context holds 8; .*--lengths"),
        ([50], None, "outside the vocabulary of 50"),
        ([1], SamplingParams(max_tokens=5), "writes no text"),
    ):
        with pytest.raises(RequestError, match=message):
            engine.prepare(prompt, params, "a")
    for number in range(5):  # two in a batch, three that wait
        engine.enqueue(engine.prepare([1], None, str(number)))
    with pytest.raises(QueueFullError):
        engine.enqueue(engine.prepare([1], None, "6"))
    assert engine.abort("3")
    assert not engine.abort("3")
    assert [(event.request_id, event.finish_reason) for event in engine.take_events()] == [("3", "abort")]


def test_a_run_that_fails_ends_its_requests_and_no_others(engine, monkeypatch):
    run = engine.slots.encoder.run

    def fail(prompts):
        raise RuntimeError("lost")

    monkeypatch.setattr(engine.slots.encoder, "run", fail)
    for number in range(3):
        engine.enqueue(engine.prepare([7], None, str(number)))
    engine.advance()
    monkeypatch.setattr(engine.slots.encoder, "run", run)
    engine.advance()
    events = engine.take_events()
    assert [(event.request_id, event.error) for event in events] == [("0", "lost"), ("1", "lost"), ("2", None)]
    np.testing.assert_allclose(events[2].hidden, [7, 14, 21, 28])


def test_a_driver_runs_it(engine):
    driver, found = Driver(engine), queue.Queue()
    try:
        for number in (5, 6, 7):
            driver.submit([number], SamplingParams(max_tokens=0), found.put)
        values = sorted(found.get(timeout=20).hidden[0] for _ in range(3))
        assert values == [5, 6, 7]
    finally:
        assert driver.close(timeout=20)
