"""Requests that come and go at random: no slot is lost, and every answer is the one that `generate` gives alone.

All of it runs in strict mode, in a process of its own, because the mode is chosen before the runtime is imported.
"""

import os
import random
from pathlib import Path

import pytest
import warm_python
from engine_tools import CHUNK, CONTEXT, prompt_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from llm_packages import LoadedPackage

from tcim_lite.llm import Package
from tcim_lite.llm.engine import Engine, PromptLookup, QueueFullError, SamplingParams, Slots, State


def slots_are_whole(engine):
    """Every slot is free or has one request that knows it; nobody is in two places."""
    waiting = [request for request in engine.requests.values() if request.state is State.WAITING]
    running = [request for request in engine.requests.values() if request.state is not State.WAITING]
    by_slot = {entry["slot"]: entry["request"] for entry in engine.snapshot() if entry["request"] is not None}
    assert by_slot == {request.slot: request.id for request in running}
    assert [request.slot for request in waiting] == [-1] * engine.waiting
    assert all(len(held) <= engine.slots.context_length for held in engine.slots.tokens)


class Comparison:
    """Answers of an engine against those of `LanguageModel.generate`, each computed once."""

    def __init__(self, package):
        self._model, self._known = LoadedPackage(package), {}

    def answer(self, prompt, params):
        key = tuple(prompt), params.temperature, params.seed
        if key not in self._known:
            self._model.cached_tokens = []
            self._known[key] = list(self._model.generate(prompt, params.sampler(), CONTEXT, ()))
        return self._known[key][: params.max_tokens]

    def check(self, prompt, params, tokens, reason):
        """An answer that was aborted is a beginning of the whole one."""
        assert reason in ("length", "abort"), reason
        expected = self.answer(prompt, params)
        assert tokens == (expected if reason == "length" else expected[: len(tokens)])


class Traffic:
    """Random requests of a few prompts with common beginnings, and what became of them."""

    def __init__(self, engine, max_waiting, comparison, seed=0):
        self.engine, self.max_waiting, self.comparison = engine, max_waiting, comparison
        self.random = random.Random(seed)
        self.kinds = [SamplingParams(max_tokens=limit) for limit in (1, 3, 8, 30)]
        self.kinds += [SamplingParams(max_tokens=n, temperature=1.5, seed=n) for n in (3, 8, 20)]
        systems = [prompt_of(length, length) for length in (3, 20, 36)]
        self.prompts = [[*system, *prompt_of(n, n)] for system in systems for n in (1, 5, 17)]
        self.open, self.aborted, self.reasons = {}, set(), []

    def add(self, prompt, kind):
        params = self.kinds[kind]
        is_full = len(self.engine.requests) >= len(self.engine.slots) + self.max_waiting
        try:
            request = self.engine.add(self.prompts[prompt], params)
        except QueueFullError:
            assert is_full
            return
        assert not is_full
        self.open[request.id] = (self.prompts[prompt], params, [])

    def add_any(self):
        self.add(self.random.randrange(len(self.prompts)), self.random.randrange(len(self.kinds)))

    def abort(self, which):
        name = list(self.open)[which % len(self.open)]
        assert self.engine.abort(name) == (name not in self.aborted)
        assert not self.engine.abort(name)
        self.aborted.add(name)

    def step(self):
        for event in self.engine.step():
            prompt, params, tokens = self.open[event.request_id]
            tokens += event.token_ids
            if event.finish_reason:
                del self.open[event.request_id]
                assert (event.finish_reason == "abort") == (event.request_id in self.aborted)
                self.aborted.discard(event.request_id)
                self.reasons.append(event.finish_reason)
                self.comparison.check(prompt, params, tokens, event.finish_reason)
        slots_are_whole(self.engine)
        assert not self.aborted  # their slots are free after one step
        assert set(self.open) == set(self.engine.requests)


def engine_of(folder, batch, **options):
    return Engine(Slots.open(Package.open(Path(folder) / f"batch{batch}")), **options)


def five_thousand_aborts(folder):
    comparison = Comparison(Package.open(Path(folder) / "batch1"))
    for seed, batch in enumerate((1, 3)):
        engine = engine_of(folder, batch, max_waiting=3, prefix_cache_bytes=1 << 20)
        traffic = Traffic(engine, 3, comparison, seed)
        while engine.stats.finished["abort"] < 2500:
            for _ in range(traffic.random.randint(0, 2 * batch)):
                traffic.add_any()
            for _ in range(min(traffic.random.randint(0, batch), len(traffic.open))):
                traffic.abort(traffic.random.randrange(100))
            traffic.step()
        while engine.has_work:
            traffic.step()
        assert traffic.reasons.count("abort") >= 2500
        assert traffic.reasons.count("length") > 250
        assert all(entry["state"] == "idle" for entry in engine.snapshot())
        assert engine.stats.cached_tokens > engine.stats.prompt_tokens / 4


def every_concurrency(folder):
    comparison = Comparison(Package.open(Path(folder) / "batch1"))
    for concurrency in range(1, 17):
        batch = 16 if concurrency == 16 else min(4, concurrency)
        engine = engine_of(folder, batch, prefix_cache_bytes=1 << 18, chunks_per_step=concurrency % 3 or None)
        traffic = Traffic(engine, 256, comparison, concurrency)
        while len(traffic.reasons) < 150:
            while len(traffic.open) < concurrency and traffic.random.random() < 0.8:
                traffic.add_any()
            if traffic.open and traffic.random.random() < 0.15:
                traffic.abort(traffic.random.randrange(100))
            traffic.step()
        assert set(traffic.reasons) == {"length", "abort"}
        assert engine.stats.cached_tokens > 0


def state_machine(folder):
    comparison = Comparison(Package.open(Path(folder) / "batch1"))
    slots = Slots.open(Package.open(Path(folder) / "batch3"))

    class Machine(RuleBasedStateMachine):
        """`Traffic` is the model: what is open, and what each answer must be."""

        @initialize(
            chunks=st.sampled_from([1, 2, None]),
            static=st.booleans(),
            reuse=st.booleans(),
            host_bytes=st.sampled_from([0, 20000, 1 << 20]),
            guesses=st.booleans(),
        )
        def begin(self, chunks, static, reuse, host_bytes, guesses):
            options = {"chunks_per_step": chunks, "static": static, "reuse_prefixes": reuse}
            drafter = PromptLookup(2, 1) if guesses else None
            engine = Engine(slots, max_waiting=2, prefix_cache_bytes=host_bytes, drafter=drafter, **options)
            self.traffic = Traffic(engine, 2, comparison)

        @rule(kind=st.integers(0, 6), prompt=st.integers(0, 8))
        def add(self, kind, prompt):
            self.traffic.add(prompt, kind)

        @precondition(lambda self: self.traffic.open)
        @rule(which=st.integers(0, 5))
        def abort(self, which):
            self.traffic.abort(which)

        @rule(steps=st.integers(1, 6))
        def step(self, steps):
            for _ in range(steps):
                self.traffic.step()

        @invariant()
        def no_slot_is_lost(self):
            slots_are_whole(self.traffic.engine)

        def teardown(self):
            for _ in range(200):
                self.traffic.step()
            assert not self.traffic.open
            assert not self.traffic.engine.has_work

    run_state_machine_as_test(Machine, settings=settings(max_examples=100, stateful_step_count=30, derandomize=True))


RUN = "import sys; sys.path[:0] = sys.argv[3:]; import test_engine_storm as t; getattr(t, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def folder(tiny_package, tmp_path_factory):
    """Packages of one model with several numbers of slots."""
    folder = tmp_path_factory.mktemp("storm")
    for batch in (1, 2, 3, 4, 16):
        package = tiny_package(prefill_length=CHUNK, context_length=CONTEXT, batch=batch, verify_length=4)
        (folder / f"batch{batch}").symlink_to(package.folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("work", [five_thousand_aborts, every_concurrency, state_machine], ids=lambda w: w.__name__)
def test_in_strict_mode(folder, work):
    here = Path(__file__).parent
    environment = os.environ | {"TCIM_LITE_STRICT": "error"}
    done = warm_python.run("-c", RUN, work.__name__, folder, here, here.parent, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tcim_lite" not in done.stderr  # no finding, no warning
