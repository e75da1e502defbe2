"""Packages with multi-token prediction behind the engine: the answers of plain decode, whatever is guessed."""

import numpy as np
import pytest
from engine_tools import run
from llm_packages import HYBRIDS, LoadedPackage

from tcim_lite.llm import Sampler
from tcim_lite.llm.engine import Engine, Features, MixedPrompt, SamplingParams, Slots, answer_all
from tcim_lite.llm.engine.mtp_layer import MtpLayer
from tcim_lite.models.families import FAMILIES
from tcim_lite.models.weights.roles import MTP_JOIN

SIZES = {"prefill_length": 16, "context_length": 64}
FAMILIES_WITH_MTP = [name for name in HYBRIDS if MTP_JOIN in FAMILIES[name].tensors and name != "minicpmv4_6"]
PROMPTS = [np.random.default_rng(seed).integers(0, 331, length).tolist() for seed, length in enumerate((21, 3, 32))]


TWO_STAGES = {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2}
ONE_WITHOUT = {"layer_types": ["linear_attention", "full_attention", "full_attention", "full_attention"]}


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


def test_nothing_guesses_behind_features(tiny_package):
    """What guesses is neither asked nor told of a prompt whose keys are no tokens."""

    class Eager:
        def propose(self, text, count):
            return [1] * count

    slots, told = Slots.open(tiny_package("qwen3_5", mtp=True, **SIZES)), []
    slots.on_hidden = lambda slot, *_: told.append(slot)
    rows = np.random.default_rng(1).standard_normal((6, slots.feature_width)).astype(slots.embedding.dtype)
    prompt = MixedPrompt(PROMPTS[0], [(3, Features(rows, grid=(2, 3)))])
    engine, params = Engine(slots, drafter=Eager()), SamplingParams(max_tokens=9)
    (found,) = answer_all(engine, [prompt], params)
    (plain,) = answer_all(Engine.open(tiny_package("qwen3_5", **SIZES)), [prompt], params)
    assert (found.error, found.token_ids) == (None, plain.token_ids)
    assert (engine.stats.drafted_tokens, told) == (0, [])
    answer_all(engine, [PROMPTS[1]], params)
    assert engine.stats.drafted_tokens > 0
    assert told


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


@pytest.mark.parametrize("speculate", ["off", "draft", "lookup"])
@pytest.mark.parametrize("family", FAMILIES_WITH_MTP)
def test_several_slots(tiny_package, strict_mode, family, speculate):
    """More prompts than slots; the last answer is alone at the end, and is guessed."""
    engine = Engine.open(tiny_package(family, mtp=True, batch=2, argmax=True, **SIZES), speculate=speculate)
    assert len(engine.slots) == 2
    assert answers_of(engine, 16) == wanted(tiny_package, family, 16)
    assert (engine.stats.drafted_tokens > 0) == (speculate == "draft")
    assert engine.stats.decode_tokens > engine.stats.decode_steps > 0


@pytest.mark.parametrize("options", [{}, {"split_conv": True, "recurrent_in_place": True}, {"quant": "float32"}])
def test_slots_take_turns_with_any_number_of_right_guesses(tiny_package, strict_mode, options):
    """States go on from a verify run in a step of all slots, and the other way round."""
    answers = wanted(tiny_package, "qwen3_5", 20, **options)
    slots = Slots.open(tiny_package("qwen3_5", mtp=True, batch=3, **SIZES, **options))
    engine = Engine(slots, drafter=Told(list(answers.values())))
    got = {name: [] for name in answers}
    for begin in ("0", "1", "2"):
        engine.add(PROMPTS[int(begin)], SamplingParams(max_tokens=20), request_id=begin)
        for _ in range(5):
            for event in engine.step():
                got[event.request_id] += event.token_ids
    for name, tokens in run(engine)[0].items():
        got[name] += tokens
    assert got == answers
    assert 0 < engine.stats.accepted_tokens < engine.stats.drafted_tokens
    assert engine.stats.decode_steps > 0


def test_the_layer_guesses_in_slots_as_alone(tiny_package):
    """It is shown states when it guesses, whichever graph made them, and has caches for each slot."""
    alone = Slots.open(tiny_package("qwen3_5", mtp=True, **SIZES))
    several = Slots.open(tiny_package("qwen3_5", mtp=True, batch=3, **SIZES))
    layers = [MtpLayer.open(tiny_package("qwen3_5", mtp=True, **SIZES), alone)]
    layers.append(MtpLayer.open(tiny_package("qwen3_5", mtp=True, batch=3, **SIZES), several))
    for layer in layers:
        layer.margin = 0
    guesses = {}
    for index, prompt in enumerate(PROMPTS):
        alone.tokens[0] = []
        for slots, slot in ((alone, 0), (several, index)):
            for begin in range(0, len(prompt), 16):
                slots.prefill(slot, prompt[begin : begin + 16])
        for token in (3, 4, 5):
            alone.decode({0: token})
        guesses[index] = layers[0].propose([*alone.tokens[0], 6], 4)
        assert len(guesses[index]) == 4
    for token in (3, 4, 5):
        several.decode(dict.fromkeys(range(3), token))
    for index in (2, 0, 1):
        assert layers[1].propose([*several.tokens[index], 6], 4) == guesses[index]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("config", [TWO_STAGES, ONE_WITHOUT], ids=["both", "one"])
def test_in_stages(tiny_package, strict_mode, monkeypatch, batch, config):
    """Of two stages the second may have no linear attention; the layer runs where the head is."""
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    config = {**config, "num_hidden_layers": len(config["layer_types"])}
    package = tiny_package("qwen3_5", config, mtp=True, batch=batch, pipeline=2, **SIZES)
    engine = Engine.open(package, devices=[1, 0], pipeline=True, speculate="draft")
    assert len(engine.slots.stages) == 2
    assert answers_of(engine, 12) == wanted(tiny_package, "qwen3_5", 12, config=config)
    assert engine.stats.drafted_tokens > 0


def test_slots_on_two_devices_beside_stages(tiny_package, monkeypatch):
    """Without graphs for one device the layer has some all the same, for the stages."""
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    config = {**TWO_STAGES, "num_hidden_layers": 8}
    package = tiny_package("qwen3_next", config, mtp=True, batch=2, ndevice=2, pipeline=2, single_device=False, **SIZES)
    answers = wanted(tiny_package, "qwen3_next", 12, config=config)
    for pipeline in (False, True):
        engine = Engine.open(package, devices=[0, 1], pipeline=pipeline, speculate="draft")
        assert answers_of(engine, 12) == answers
        assert engine.stats.drafted_tokens > 0


def test_a_slot_goes_on_after_a_verify_run_of_another(tiny_package, strict_mode):
    """As programs use slots; what was taken back behind states is an error of that slot alone."""
    plain = Slots.open(tiny_package("qwen3_5", quant="float32", batch=2, **SIZES))
    slots = Slots.open(tiny_package("qwen3_5", quant="float32", mtp=True, batch=2, **SIZES))
    for each in (plain, slots):
        for slot in (0, 1):
            each.prefill(slot, PROMPTS[slot][:3])
    for token in (5, 6):
        plain.decode({0: token})
        plain.decode({1: token})
    slots.verify(0, [5, 6, 7])
    del slots.tokens[0][-1:]
    slots.verify(1, [5, 6, 8])
    del slots.tokens[1][-1:]
    both = {0: 8, 1: 9}
    np.testing.assert_array_equal(slots.decode(both), plain.decode(both))
    slots.verify(1, [3, 4])
    del slots.tokens[1][-2:]  # both: the states have seen the first
    plain.decode({0: 2})
    slots.decode({0: 2})
    np.testing.assert_array_equal(slots.decode({0: 1})[0], plain.decode({0: 1})[0])
    assert slots.tokens[1] == []
    slots.verify(0, [3, 4])
    del slots.tokens[0][-2:]
    for _ in range(2):
        with pytest.raises(ValueError, match="states only go forward"):
            slots.decode({0: 8})


def test_guesses_of_a_hybrid_need_the_layer(tiny_package):
    with pytest.raises(FileNotFoundError, match=r"compile CHECKPOINT .* --mtp"):
        Engine.open(tiny_package("qwen3_5", batch=2, **SIZES), speculate="draft")
