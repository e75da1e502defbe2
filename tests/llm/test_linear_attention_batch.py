"""Several sequences with linear attention: slots with states of their own give what each sequence gets alone."""

import numpy as np
import pytest
from engine_tools import run
from llm_packages import HYBRIDS, LoadedPackage

import tcim_lite.runtime as tcim
from tcim_lite.errors import StrictError
from tcim_lite.llm import Sampler, lanes_of
from tcim_lite.llm.engine import Engine, SamplingParams, Slots

SIZES = {"prefill_length": 16, "context_length": 64}
TWO_STAGES = {"config": {"layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"]}}
PROMPTS = [np.random.default_rng(seed).integers(0, 331, length).tolist() for seed, length in enumerate((21, 3, 40, 17))]
LIMITS = [9, 14, 4, 6]


def alone(tiny_package, family, **options):
    """What each prompt gets from a package of one slot."""
    model = LoadedPackage(tiny_package(family, **SIZES, **options))
    answers = {}
    for index, (prompt, limit) in enumerate(zip(PROMPTS, LIMITS, strict=True)):
        model.cached_tokens = []
        answers[str(index)] = list(model.generate(prompt, Sampler(), limit, ()))
    return answers


def together(slots, prefill_runs_one=False):
    """What they get from an engine with fewer slots than prompts."""
    assert slots.alone_by_prefill
    slots.alone_by_prefill = prefill_runs_one
    engine = Engine(slots)
    for index, (prompt, limit) in enumerate(zip(PROMPTS, LIMITS, strict=True)):
        engine.add(prompt, SamplingParams(max_tokens=limit), request_id=str(index))
    answers, last = run(engine)
    assert {event.error for event in last.values()} == {None}
    return answers


@pytest.mark.parametrize("prefill_runs_one", [False, True])
@pytest.mark.parametrize("family", HYBRIDS)
def test_slots_answer_as_one_sequence_does(tiny_package, strict_mode, family, prefill_runs_one):
    slots = Slots.open(tiny_package(family, batch=3, argmax=True, **SIZES))
    assert len(slots) == 3
    assert together(slots, prefill_runs_one) == alone(tiny_package, family)


@pytest.mark.parametrize("quant", ["float32", "w8a8h1_sefp"])
@pytest.mark.parametrize("form", [{}, {"split_conv": True, "recurrent_in_place": True}])
def test_slots_of_every_form(tiny_package, quant, form):
    options = {"quant": quant, **form}
    assert together(Slots.open(tiny_package("qwen3_5", batch=2, **SIZES, **options))) == alone(
        tiny_package, "qwen3_5", **options
    )


def test_slots_on_two_devices_and_in_stages(tiny_package, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    package = tiny_package("qwen3_next", batch=2, ndevice=2, pipeline=2, **SIZES, **TWO_STAGES)
    wanted = alone(tiny_package, "qwen3_next", **TWO_STAGES)
    assert together(Slots.open(package, devices=[0, 1])) == wanted
    assert together(Slots.open(package, devices=[0, 1], pipeline=True)) == wanted


class Decode:
    """The decode graph of two slots, run by hand: each state is read and written in one buffer."""

    def __init__(self, package):
        self.module = tcim.load(str(package.decode_path))
        self.lanes = lanes_of(self.module)
        for index, lane in enumerate(self.lanes):
            for name in lane.carried:
                kind = name.removeprefix("past_").replace("cache_", "cache_out_").replace("state_", "state_out_")
                self.module.set_input(name, np.zeros(self.module.get_input_info(name).shape, np.float16))
                self.module.set_dev_output(kind, self.module.get_dev_input(name))
            self.module.set_input(lane.current, np.int32([1]))
            assert name.endswith("_batch_1") == (index == 1)

    def run(self, masks, lengths):
        rows = np.random.default_rng(sum(lengths)).standard_normal((2, 1, 192)).astype(np.float16)
        self.module.set_input("input_1", rows)
        for lane, mask, length in zip(self.lanes, masks, lengths, strict=True):
            self.module.set_input(lane.linear_mask, np.full((1, 1), mask, np.float16))
            self.module.set_input(lane.valid, np.int32([length]))
            lane.set_text_positions(self.module, length)
        self.module.run(sync=True)

    def states(self, slot):
        return [self.module.get_dev_input(name).numpy().copy() for name in self.lanes[slot].carried]


def test_a_masked_slot_keeps_its_states(tiny_package, strict_mode):
    decode = Decode(tiny_package("qwen3_5", batch=2, **SIZES))
    decode.run((1, 1), (0, 0))
    before = decode.states(0), decode.states(1)
    assert all(np.any(state) for states in before for state in states)
    decode.run((1, 0), (1, 1))
    for old, new in zip(before[1], decode.states(1), strict=True):
        np.testing.assert_array_equal(new, old)
    assert all(np.any(new != old) for old, new in zip(before[0], decode.states(0), strict=True))
    decode.run((1, 1), (2, 1))  # each goes on where it was
    decode.run((0, 1), (3, 2))
    with pytest.raises(StrictError, match=r"S-208: .*_batch_1' holds the state after 3 tokens, but .*_batch_1' is 1"):
        decode.run((1, 1), (3, 1))


def test_states_do_not_go_back(tiny_package):
    """A slot whose tokens were taken back begins again; it does not go on with states that have seen them."""
    slots = Slots.open(tiny_package("qwen3_5", batch=2, **SIZES))
    for slot in (0, 1):
        slots.prefill(slot, PROMPTS[0][:9])
    del slots.tokens[0][-2:]
    for _ in range(2):
        for go_on in (lambda: slots.prefill(0, [5]), lambda: slots.decode({0: 5}), lambda: slots.decode({0: 5, 1: 5})):
            with pytest.raises(ValueError, match=r"slot 0 holds 7 tokens, .* states only go forward"):
                go_on()
    for move in (lambda: slots.copy_rows(1, 0, 5), lambda: slots.write_rows(0, [1], slots.read_rows(1))):
        with pytest.raises(ValueError, match="states of linear attention, which go with no rows"):
            move()
    slots.decode({1: 5})
    slots.tokens[0] = []
    slots.prefill(0, PROMPTS[0][:9])
    slots.decode({0: 5})
    first, second = slots.decode({0: 6, 1: 6})
    np.testing.assert_array_equal(first, second)


def test_a_run_that_failed_is_not_gone_on_from(tiny_package, tcim_faults):
    """Nobody knows which states it has written."""
    slots = Slots.open(tiny_package("qwen3_5", batch=2, **SIZES))
    slots.prefill(0, PROMPTS[1])
    slots.prefill(1, PROMPTS[0][:9])
    tcim_faults(kind="flaky_sync", nth=1)
    with pytest.raises(tcim.TcimError, match="the wait for device 0 failed"):
        slots.prefill(0, [5])
    with pytest.raises(ValueError, match="states only go forward"):
        slots.decode({0: 5})
    slots.decode({1: 5})
