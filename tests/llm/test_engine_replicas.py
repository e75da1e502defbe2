"""Several engines behind one face: who gets a request, what is summed up, how all end."""

import queue
import threading

import pytest
from engine_tools import CHUNK, CONTEXT, hold_after_a_step, prompt_of

from tcim_lite.llm.engine import Driver, Engine, QueueFullError, Replicas, SamplingParams, Slots


@pytest.fixture
def make_replicas(tiny_package):
    made = []

    def make(count, batch=2, **options):
        package = tiny_package(prefill_length=CHUNK, context_length=CONTEXT, batch=batch)
        made.append(Replicas([Driver(Engine(Slots.open(package), **options)) for _ in range(count)]))
        return made[-1]

    yield make
    for replicas in made:
        assert replicas.close(timeout=20)
        assert not replicas.is_alive


class Asked:
    """A request, and what became of it; `hold` keeps its engine at its first event."""

    def __init__(self, replicas, prompt, limit, hold=None):
        self.tokens, self._events, self._hold = [], queue.SimpleQueue(), hold
        self.id = replicas.submit(prompt, SamplingParams(max_tokens=limit), self._see)

    def _see(self, event):
        if self._hold is not None:
            self._hold.wait(20)
        self._events.put(event)

    def end(self):
        while (event := self._events.get(timeout=20)).finish_reason is None:
            self.tokens += event.token_ids
        self.tokens += event.token_ids
        return self.tokens, event.finish_reason


def test_answers_are_those_of_one_engine_and_counts_are_summed_up(make_replicas, alone):
    replicas = make_replicas(3)
    prompts = [prompt_of(5 + i, i) for i in range(20)]
    asked = [Asked(replicas, prompt, 9) for prompt in prompts]
    assert [each.end() for each in asked] == [(alone(prompt, 9), "length") for prompt in prompts]
    assert replicas.pending == replicas.waiting == 0
    assert replicas.stats.prompt_tokens == sum(map(len, prompts))
    assert replicas.stats.completion_tokens == 20 * 9
    assert replicas.stats.finished == {"stop": 0, "length": 20, "abort": 0, "error": 0}
    assert all(driver.engine.stats.prompt_tokens for driver in replicas.drivers)
    slots = replicas.snapshot()
    assert [slot["slot"] for slot in slots] == list(range(6))
    assert [slot["replica"] for slot in slots] == [0, 0, 1, 1, 2, 2]


def test_a_request_goes_where_the_least_is_to_do(make_replicas):
    replicas, hold = make_replicas(2, max_waiting=1), threading.Event()
    asked = [Asked(replicas, prompt_of(4, i), 3, hold) for i in range(6)]  # two slots and one that waits, each
    assert [driver.pending for driver in replicas.drivers] == [3, 3]
    with pytest.raises(QueueFullError):
        Asked(replicas, prompt_of(4, 9), 3)
    assert replicas.pending == 6
    hold.set()
    assert [each.end()[1] for each in asked] == ["length"] * 6
    assert Asked(replicas, prompt_of(4, 9), 3).end()[1] == "length"


def test_a_prompt_goes_to_the_replica_that_holds_its_beginning(make_replicas):
    replicas, hold = make_replicas(2), threading.Event()
    beginnings = [prompt_of(40, 1), prompt_of(40, 2)]
    first = [Asked(replicas, beginning, 30, hold) for beginning in beginnings]  # one each: the first is not done
    hold.set()
    for each in first:
        each.end()
    for _ in range(3):
        for beginning in beginnings:
            Asked(replicas, [*beginning, 7], 2).end()
    assert [driver.engine.stats.cached_tokens for driver in replicas.drivers] == [120, 120]


def test_abort_finds_the_replica(make_replicas, monkeypatch):
    replicas, hold = make_replicas(2, batch=1), threading.Event()
    for driver in replicas.drivers:
        hold_after_a_step(driver, hold, monkeypatch)
    asked = [Asked(replicas, prompt_of(4, i), 50) for i in range(2)]
    replicas.abort(asked[1].id)
    replicas.abort("unknown")
    hold.set()
    assert [each.end()[1] for each in asked] == ["length", "abort"]
    replicas.abort(asked[0].id)


def test_closing_ends_all(make_replicas, monkeypatch):
    replicas, hold = make_replicas(2, batch=1), threading.Event()
    for driver in replicas.drivers:
        hold_after_a_step(driver, hold, monkeypatch)
    asked = [Asked(replicas, prompt_of(4, i), 50) for i in range(4)]
    assert not replicas.close(timeout=0)
    hold.set()
    assert replicas.close(timeout=20)
    assert {each.end()[1] for each in asked} == {"abort"}


def test_closing_waits_for_the_last_callback(make_replicas):
    replicas, hold = make_replicas(2, batch=1), threading.Event()
    asked = Asked(replicas, prompt_of(4, 0), 3, hold)
    for _ in range(2):  # the engines' own threads end in the first
        assert not replicas.close(timeout=0.5)
    hold.set()
    assert replicas.close(timeout=20)
    assert asked.end()[1] in ("length", "abort")


def test_packages_of_different_sizes_are_no_replicas(tiny_package):
    drivers = [Driver(Engine(Slots.open(tiny_package(prefill_length=CHUNK, context_length=n)))) for n in (32, 64)]
    with pytest.raises(ValueError, match="replicas of different"):
        Replicas(drivers)
    with pytest.raises(ValueError, match="is empty"):
        Replicas([])
    for driver in drivers:
        driver.close()
