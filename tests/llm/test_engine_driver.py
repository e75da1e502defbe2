"""The engine's thread: requests from several threads, callbacks, aborts, closing."""

import queue
import threading
import time

import pytest
from engine_tools import hold_after_a_step

from tcim_lite.llm.engine import Driver, Engine, QueueFullError, RequestError, SamplingParams, Slots


@pytest.fixture
def make_driver(tiny_package):
    made = []

    def make(**options):
        slots = Slots.open(tiny_package(prefill_length=16, context_length=64, batch=4))
        made.append(Driver(Engine(slots, **options)))
        return made[-1]

    yield make
    for driver in made:
        assert driver.close(timeout=20)


def answer(driver, prompt, limit):
    events = queue.SimpleQueue()
    driver.submit(prompt, SamplingParams(max_tokens=limit), events.put)
    tokens = []
    while True:
        event = events.get(timeout=20)
        tokens += event.token_ids
        if event.finish_reason:
            return tokens, event.finish_reason


def test_threads_get_the_answers_they_would_get_alone(make_driver):
    driver = make_driver()
    prompts = [[seed + 1, 2, 3] for seed in range(12)]
    alone = [answer(driver, prompt, 10) for prompt in prompts]
    together = [None] * len(prompts)

    def ask(i):
        together[i] = answer(driver, prompts[i], 10)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert together == alone
    assert driver.pending == 0


def test_abort_ends_a_request_with_an_event(make_driver, monkeypatch):
    driver, events, aborted = make_driver(), queue.SimpleQueue(), threading.Event()
    hold_after_a_step(driver, aborted, monkeypatch)
    request_id = driver.submit([1, 2], None, lambda event: events.put(event.finish_reason))
    assert events.get(timeout=20) is None
    driver.abort(request_id)
    aborted.set()
    while (reason := events.get(timeout=20)) is None:  # of the step that was being taken
        pass
    assert reason == "abort"
    driver.abort(request_id)
    driver.abort("nobody")


def test_the_engine_goes_on_while_its_events_are_taken(make_driver):
    driver, taken, events = make_driver(), threading.Event(), queue.SimpleQueue()

    def hold(event):
        taken.wait(20)
        events.put(event)

    driver.submit([1, 2], SamplingParams(max_tokens=30), hold)
    end = time.monotonic() + 20
    while driver.engine.stats.completion_tokens < 30:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert (driver.pending, events.empty()) == (1, True)
    taken.set()
    found = [events.get(timeout=20) for _ in range(30)]
    assert [event.finish_reason for event in found] == [None] * 29 + ["length"]


@pytest.mark.parametrize("alone_by_prefill", [False, True])
def test_a_token_is_handed_out_before_the_next_run_ends(make_driver, alone_by_prefill):
    driver, events, runs = make_driver(), queue.SimpleQueue(), []

    class Waiting:
        """A graph whose runs do not begin before the tokens of all earlier ones have come."""

        def __init__(self, graph):
            self.graph = graph

        def __getattr__(self, name):
            return getattr(self.graph, name)

        def run(self):
            end = time.monotonic() + 20
            while events.qsize() < len(runs):
                assert time.monotonic() < end
                time.sleep(0.001)
            runs.append(None)
            self.graph.run()

    stage, driver.engine.slots.alone_by_prefill = driver.engine.slots.stages[0], alone_by_prefill
    stage.prefill, stage.decode = Waiting(stage.prefill), Waiting(stage.decode)
    driver.submit([3, 4], SamplingParams(max_tokens=20), events.put)
    while driver.pending:
        time.sleep(0.001)
    found = [events.get(timeout=20) for _ in range(20)]
    assert [event.finish_reason for event in found] == [None] * 19 + ["length"]
    assert len(runs) == 20


def test_refusals_come_at_once(make_driver):
    driver = make_driver(max_waiting=0)
    with pytest.raises(RequestError, match="is empty"):
        driver.submit([], None, print)
    hold, entered = threading.Event(), threading.Event()

    def block(_):
        entered.set()
        hold.wait(20)

    ids = [driver.submit([1], SamplingParams(max_tokens=20), block, request_id=f"r{i}") for i in range(4)]
    assert entered.wait(20)  # the engine stands still
    with pytest.raises(QueueFullError):
        driver.submit([1], None, print)
    hold.set()
    for request_id in ids:
        driver.abort(request_id)


def test_a_callback_that_raises_costs_its_own_request_only(make_driver, monkeypatch):
    driver, asked = make_driver(), threading.Event()
    abort = driver.abort
    monkeypatch.setattr(driver, "abort", lambda request_id: (abort(request_id), asked.set()))
    hold_after_a_step(driver, asked, monkeypatch)

    def fail(_):
        raise OSError("the client is gone")

    driver.submit([1, 2, 3], None, fail)
    assert answer(driver, [4, 5], 5)[1] == "length"
    while driver.pending:
        pass
    assert driver.engine.stats.finished["abort"] == 1


@pytest.mark.parametrize(("finish", "reason"), [(True, "length"), (False, "abort")])
def test_close_answers_or_aborts_what_is_left(make_driver, monkeypatch, finish, reason):
    driver, events, closed = make_driver(), queue.SimpleQueue(), threading.Event()
    advance = driver.engine.advance
    monkeypatch.setattr(driver.engine, "advance", lambda: closed.wait(20) and advance())
    for _ in range(6):
        driver.submit([1, 2], SamplingParams(max_tokens=60), events.put)
    assert not driver.close(finish=finish, timeout=0)
    closed.set()
    reasons = []
    while len(reasons) < 6:
        if (found := events.get(timeout=20).finish_reason) is not None:
            reasons.append(found)
    assert reasons == [reason] * 6
    assert driver.close(finish=finish, timeout=20)
    with pytest.raises(RuntimeError, match="closed"):
        driver.submit([1], None, print)
