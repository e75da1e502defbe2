"""Packages with multi-token prediction behind the engine: the answers of plain decode, whatever is guessed."""

import numpy as np
import pytest
from engine_tools import run
from llm_packages import HYBRIDS, LoadedPackage

from tcim_lite.llm import Sampler
from tcim_lite.llm.engine import Engine, SamplingParams, Slots

SIZES = {"prefill_length": 16, "context_length": 64}
FAMILIES_WITH_MTP = [family for family in HYBRIDS if family != "minicpmv4_6"]
PROMPTS = [np.random.default_rng(seed).integers(0, 331, length).tolist() for seed, length in enumerate((21, 3, 32))]


def wanted(tiny_package, family, limit, **options):
    """From a package without multi-token prediction, whose other weights are the same."""
    model = LoadedPackage(tiny_package(family, **SIZES, **options))
    answers = {}
    for index, prompt in enumerate(PROMPTS):
        model.cached_tokens = []
        answers[str(index)] = list(model.generate(prompt, Sampler(), limit, ()))
    return answers


def answers_of(engine, limit, **params):
    for index, prompt in enumerate(PROMPTS):
        engine.add(prompt, SamplingParams(max_tokens=limit, **params), request_id=str(index))
    answers, last = run(engine)
    assert {event.error for event in last.values()} == {None}
    return answers


class Told:
    """Knows the answers, and guesses so many tokens right in turn before a wrong one."""

    def __init__(self, answers):
        self.answers, self.right = answers, 0

    def propose(self, text, count):
        for prompt, answer in zip(PROMPTS, self.answers, strict=True):
            whole = prompt + answer
            if whole[: len(text)] == list(text):
                self.right = (self.right + 1) % (count + 1)
                guesses = whole[len(text) : len(text) + count]
                if self.right < len(guesses):
                    guesses[self.right] = (guesses[self.right] + 1) % 331
                return guesses
        return []


@pytest.mark.parametrize("speculate", ["off", "draft", "lookup", "auto"])
@pytest.mark.parametrize("family", FAMILIES_WITH_MTP)
def test_answers_are_those_of_plain_decode(tiny_package, strict_mode, family, speculate):
    engine = Engine.open(tiny_package(family, mtp=True, **SIZES), speculate=speculate)
    assert answers_of(engine, 9) == wanted(tiny_package, family, 9)
    assert (engine.stats.drafted_tokens > 0) == (speculate in ("draft", "auto"))


@pytest.mark.parametrize("options", [{}, {"split_conv": True}, {"recurrent_in_place": True}, {"quant": "float32"}])
def test_any_number_of_guesses_may_be_right(tiny_package, strict_mode, options):
    answers = wanted(tiny_package, "qwen3_5", 20, **options)
    slots = Slots.open(tiny_package("qwen3_5", mtp=True, argmax=True, **SIZES, **options))
    engine = Engine(slots, drafter=Told(list(answers.values())))
    assert answers_of(engine, 20) == answers
    stats = engine.stats
    assert 0 < stats.accepted_tokens < stats.drafted_tokens
    assert stats.verify_steps + stats.decode_steps < 3 * 19


def test_sampled_answers_do_not_change(tiny_package):
    package, params = tiny_package("qwen3_next", mtp=True, **SIZES), {"temperature": 0.8, "seed": 5}
    plain = answers_of(Engine.open(tiny_package("qwen3_next", **SIZES)), 12, **params)
    drafter = Told(list(plain.values()))
    assert answers_of(Engine(Slots.open(package), drafter=drafter), 12, **params) == plain
    assert answers_of(Engine.open(package, speculate="draft"), 12, **params) == plain


def test_on_two_devices(tiny_package, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    package = tiny_package("qwen3_5_moe", mtp=True, ndevice=2, **SIZES)
    engine = Engine.open(package, devices=[1, 0], speculate="draft")
    assert answers_of(engine, 9) == wanted(tiny_package, "qwen3_5_moe", 9)
    assert engine.stats.drafted_tokens > 0


def test_a_prompt_may_go_on_behind_an_answer(tiny_package, strict_mode):
    """As programs use slots: the states after the tokens that were kept go back to prefill."""
    plain = Slots.open(tiny_package("qwen3_5", quant="float32", **SIZES))
    for options in ({}, {"recurrent_in_place": True}):
        slots = Slots.open(tiny_package("qwen3_5", quant="float32", mtp=True, **options, **SIZES))
        plain.tokens[0] = []
        plain.prefill(0, PROMPTS[1])
        slots.prefill(0, PROMPTS[1])
        slots.verify(0, [5, 6, 7])
        del slots.tokens[0][-1:]
        for token in (5, 6):
            plain.decode({0: token})
        for more in (PROMPTS[0][:9], PROMPTS[0][9:]):
            np.testing.assert_array_equal(slots.prefill(0, more), plain.prefill(0, more))
        np.testing.assert_array_equal(slots.decode({0: 8}), plain.decode({0: 8}))
    slots.tokens[0] = slots.tokens[0][:-2]
    with pytest.raises(ValueError, match="states only go forward"):
        slots.decode({0: 8})
