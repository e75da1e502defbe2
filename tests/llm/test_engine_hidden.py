"""Packages of --hidden-states behind the engine: prompts alone, whose last token's hidden states are told."""

import numpy as np
import pytest
from engine_tools import prompt_of

from tcim_lite.llm.engine import Engine, RequestError, SamplingParams, Slots

SIZES = {"prefill_length": 16, "context_length": 64, "hidden_states": -1}
PROMPTS = [prompt_of(length, length) for length in (5, 40, 64)]


@pytest.mark.parametrize("options", [{"quant": "float32"}, {"batch": 2}, {"pipeline": 2, "batch": 2}, {"ndevice": 2}])
def test_hidden_states_are_those_of_the_prompt_alone(tiny_package, monkeypatch, options):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    devices = (0, 1) if {"pipeline", "ndevice"} & options.keys() else (0,)
    engine = Engine.open(tiny_package(**SIZES, **options), devices=devices, pipeline="pipeline" in options)
    asked, found = {}, {}
    for prompts in (PROMPTS, [[*PROMPTS[2][:30], 7]]):  # the last begins with rows that a slot holds
        asked |= {engine.add(prompt, SamplingParams(max_tokens=0)).id: prompt for prompt in prompts}
        while engine.has_work:
            found |= {event.request_id: event.hidden for event in engine.step()}
    alone = Slots.open(tiny_package(**SIZES, **{key: options[key] for key in options.keys() & {"quant"}}))
    assert (engine.slots.hidden_size, engine.slots.vocab_size) == (192, 331)
    for number, prompt in asked.items():
        alone.tokens[0] = []
        for begin in range(0, len(prompt), 16):
            want = alone.prefill(0, prompt[begin : begin + 16])
        np.testing.assert_array_equal(found[number], want)
    assert engine.stats.cached_tokens == 30


def test_no_answer_is_made(tiny_package):
    engine = Engine.open(tiny_package(**SIZES))
    with pytest.raises(RequestError, match="compiled with --hidden-states"):
        engine.add([1, 2])
    with pytest.raises(RequestError, match="the prompt is empty"):
        engine.add([], SamplingParams(max_tokens=0))
