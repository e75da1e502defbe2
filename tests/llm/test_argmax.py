"""`compile --argmax`: decode returns the ids of the largest logits, which the engine takes where it needs no more."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from engine_tools import CHUNK, CONTEXT, prompt_of, run

import tcim_lite.runtime as tcim
from tcim_lite.hmm import read
from tcim_lite.llm.engine import Engine, SamplingParams, Slots
from tcim_lite.llm.sampling import greedy_token

SIZES = {"prefill_length": CHUNK, "context_length": CONTEXT}


def open_slots(tiny_package, batch=4, **options):
    return Slots.open(tiny_package(**SIZES, batch=batch, argmax=True), **options)


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float16", "float32"])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_ids_are_those_of_the_largest_logits_beside_them(tiny_package, quant, batch):
    slots = Slots.open(tiny_package(**SIZES, batch=batch, quant=quant, argmax=True))
    slots.alone_by_prefill = False
    for slot in range(batch):
        slots.prefill(slot, prompt_of(5 + slot, slot))
    for token in range(8):
        logits = slots.decode(dict.fromkeys(range(batch), token))
        stage = slots.stages[-1]
        ids, largest = stage.decoded("token_id"), stage.decoded("token_logit")
        assert (ids.shape, ids.dtype) == ((batch, 1, 1), np.int32)
        assert largest.dtype == logits.dtype
        np.testing.assert_array_equal(ids.reshape(-1), [greedy_token(row) for row in logits])
        np.testing.assert_array_equal(largest.reshape(-1), logits.max(axis=-1))


def test_logits_stay_the_first_output_and_other_graphs_have_no_more(tiny_package):
    package = tiny_package(**SIZES, batch=2, argmax=True, verify_length=3)
    decode, prefill = read(package.decode_path), read(package.prefill_path)
    names = [decode.graph.values[id_].name for id_ in decode.graph.outputs]
    roles = [decode.graph.values[id_].role.name for id_ in decode.graph.outputs]
    assert (names, roles) == (["logits", "token_id", "token_logit"], ["logits", "token_id", "token_logit"])
    assert json.loads(decode.custom_msg)["argmax"] is True
    assert len(prefill.graph.outputs) == len(read(package.graph("verify.hmm")).graph.outputs) == 1
    assert "argmax" not in json.loads(prefill.custom_msg)


@pytest.mark.parametrize("shape", ["one device", "two devices", "two stages"])
def test_answers_by_ids_equal_answers_by_logits(tiny_package, make_engine, monkeypatch, shape):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    more = {"one device": {}, "two devices": {"ndevice": 2}, "two stages": {"pipeline": 2}}[shape]
    opened = {} if shape == "one device" else {"devices": (0, 1), "pipeline": shape == "two stages"}
    prompts = {f"p{i}": prompt_of(length, i) for i, length in enumerate([3, 40, 17, 1, 33])}
    answers = []
    for engine in (
        make_engine(),
        Engine(Slots.open(tiny_package(**SIZES, batch=4, argmax=True, **more), **opened)),
    ):
        for name, prompt in prompts.items():
            engine.add(prompt, SamplingParams(max_tokens=10), request_id=name)
        answers.append(run(engine)[0])
    assert answers[0] == answers[1]


class Fetched:
    """A decode module that notes which outputs leave the device."""

    def __init__(self, module):
        self._module, self.names = module, []

    def get_output(self, name):
        self.names.append(name)
        return self._module.get_output(name)

    def __getattr__(self, name):
        return getattr(self._module, name)


@pytest.mark.parametrize(
    ("other", "needs_logits"),
    [
        ({}, False),
        ({"max_tokens": 3, "ignore_eos": True}, False),
        ({"temperature": 0.7, "seed": 1}, True),
        ({"logprobs": 0}, True),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.5}, True),
        ({"frequency_penalty": -0.5}, True),
        ({"logit_bias": {3: 1.0}}, True),
    ],
)
def test_logits_leave_the_device_only_where_some_request_needs_them(tiny_package, other, needs_logits):
    engine = Engine(open_slots(tiny_package))
    engine.slots.alone_by_prefill = True  # also on a GPU: only steps of both requests are to run the decode graph
    fetched = engine.slots.stages[0].decode = Fetched(engine.slots.stages[0].decode)
    engine.add(prompt_of(4, 1), SamplingParams(max_tokens=6))
    engine.add(prompt_of(4, 2), SamplingParams(**({"max_tokens": 6} | other)))
    while len(engine.requests) == 2:
        engine.step()
    assert ("logits" in fetched.names) is needs_logits
    assert ("token_id" in fetched.names) is not needs_logits


def test_a_request_whose_logits_are_all_nan_fails_alone(tiny_package):
    engine = Engine(open_slots(tiny_package))
    decode = engine.slots.stages[0].decode
    for seed in (1, 2):
        engine.add(prompt_of(4, seed), SamplingParams(max_tokens=4), request_id=f"p{seed}")

    class Poisoned(Fetched):
        def get_output(self, name):
            values = decode.get_output(name).numpy().copy()
            if name == "token_logit":
                values[1] = np.nan
            return SimpleNamespace(numpy=lambda: values)

    engine.slots.stages[0].decode = Poisoned(decode)
    answers, last = run(engine)
    assert last["p1"].finish_reason == "length"
    assert len(answers["p1"]) == 4
    assert last["p2"].finish_reason == "error"
    assert "is NaN" in last["p2"].error


def test_a_slot_alone_gives_the_same_by_the_prefill_graph(tiny_package):
    answers = []
    for by_prefill in (True, False):
        slots = open_slots(tiny_package)
        slots.alone_by_prefill = by_prefill
        slots.prefill(1, prompt_of(7, 3))
        ids, largest = slots.decode_greedy({1: 5})
        answers.append((ids[1], largest[1]))
    assert answers[0] == answers[1]


def test_packages_without_ids_say_so(make_engine):
    slots = make_engine().slots
    assert not slots.gives_largest
    with pytest.raises(ValueError, match="compile the package with --argmax"):
        slots.decode_greedy({0: 1})
    assert slots.tokens[0] == []


def test_vendor_style_calls_read_the_id_beside_the_logits(tiny_package):
    package = tiny_package(**SIZES, argmax=True)
    module = tcim.load(str(package.decode_path))
    names = [module.get_output_name(index) for index in range(module.get_num_outputs())]
    module.set_input("current_length", np.array([1], np.int32))
    module.run()
    module.sync()
    logits, token = (module.get_output(name).numpy() for name in names[:2])
    assert token.item() == logits.argmax()
