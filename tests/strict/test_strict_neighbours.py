"""Neighbours of every finding of strict mode: what is close to one and none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graph_maker import GraphMaker
from strict_programs import CACHES, fed_add, feed, pair
from tiny_graphs import attention_graph, hybrid_graph

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import StrictError

pytestmark = pytest.mark.usefixtures("strict")


def test_s101_a_dummy_set_from_the_host():
    _, decode = pair(bind=False)
    for name in CACHES:
        decode.set_input(name, np.zeros((1, 2, 32, 64), np.float16))
    feed(decode, 3, 1)
    decode.run(True)


def test_s102_dummies_of_prefill_bound_to_decode():
    decode = rt.load("decode.hmm")
    prefill = rt.load("prefill.hmm", option=rt.Option(0).set_dummy_tensors(CACHES))
    for name in CACHES:
        prefill.set_input(name, decode.get_dev_input(name))
    feed(prefill, 0, 3)
    prefill.run(True)


def test_s103_prefill_bound_to_slots_of_decode_one_after_another():
    prefill, first, second = (rt.load(f"{name}.hmm") for name in ("prefill", "decode", "decode"))
    for decode in (first, second, first):
        for name in CACHES:
            prefill.set_input(name, decode.get_dev_input(name))
        feed(prefill, 0, 4)
        prefill.run(True)


def test_s103_decode_bound_after_prefill_ran():
    prefill, decode = pair(bind=False)
    feed(prefill, 0, 4)
    prefill.run(True)
    for name in CACHES:
        decode.set_input(name, prefill.get_dev_input(name))
    feed(decode, 4, 1)
    decode.run(True)


def test_s104_one_tensor_bound_to_two_ordinary_inputs():
    add = fed_add()
    add.set_input("b", add.get_dev_input("a"))
    add.run(True)


def test_s104_caches_side_by_side_in_one_tensor():
    prefill, _ = pair(bind=False)
    hmm.write_model("long.hmm", attention_graph(1, context=128), [])
    memory = rt.load("long.hmm").get_dev_input(CACHES[0])
    for name, row in zip(CACHES, (0, 64), strict=True):  # rows of head 0; [1, 1, 64, 64] for [1, 2, 32, 64]
        prefill.set_dev_input(name, memory.select_roi([0, 0, row, 0], [1, 1, 64, 64]))
    feed(prefill, 0, 3)
    prefill.run(True)
    prefill.set_dev_input(CACHES[1], memory.select_roi([0, 0, 32, 0], [1, 1, 64, 64]))
    with pytest.raises(StrictError, match="S-104"):
        prefill.run(True)


def test_s106_an_output_over_an_input_and_in_memory_of_its_own():
    maker = GraphMaker("both")
    given = [maker.input(name, (2, 3)) for name in "ab"]
    results = [maker.op(*op, (2, 3)) for op in (("Add", given, "total"), ("Mul", given, "product"))]
    hmm.write_model("both.hmm", maker.graph(*results), [])
    both = rt.load("both.hmm")
    for name, value in zip("ab", (2, 3), strict=True):
        both.set_input(name, np.full((2, 3), value))
    both.set_dev_output("total", both.get_dev_input("a"))
    both.set_dev_output("product", both.get_dev_input("b"))
    both.run(True)
    assert both.get_dev_input("a").numpy()[0, 0] == 5
    assert both.get_dev_input("b").numpy()[0, 0] == 6
    both.set_dev_output("product", both.get_dev_input("a"))
    with pytest.raises(StrictError, match=r"S-106: .*'total' and 'product' of both\.hmm"):
        both.run(True)


def test_s201_s202_lengths_at_their_limits():
    prefill, _ = pair()
    for valid in range(0, 32, 4):
        feed(prefill, valid, 4)
        prefill.run(True)


def test_s203_rounds_and_runs_on_the_same_input():
    prefill, _ = pair()
    feed(prefill, 0, 4)
    prefill.run(True)
    feed(prefill, 4, 2)
    prefill.run(True, rt.RunOption(3))
    prefill.run(True)


def test_s203_several_prompts_at_valid_length_0_set_once():
    prefill, _ = pair()
    feed(prefill, 0, 4)
    for value in range(3):
        prefill.set_input("input_1", np.full((1, 4, 128), value))
        prefill.run(True)


def test_s203_current_length_set_once():
    prefill, decode = pair()
    feed(prefill, 0, 4)
    prefill.run(True)
    feed(decode, 4, 1)
    for valid in range(4, 8):
        decode.set_input("input_1", np.full((1, 1, 128), valid))
        decode.set_input("valid_length", np.array([valid]))
        decode.run(True)


def test_s204_rollback_by_lowering_valid_length():
    prefill, decode = pair()
    feed(prefill, 0, 4)
    prefill.run(True)
    for valid in (4, 5, 6, 5, 6, 3, 4):
        feed(decode, valid, 1)
        decode.run(True)


def test_s204_a_shorter_second_chat():
    prefill, decode = pair()
    for length in (4, 2):
        feed(prefill, 0, length)
        prefill.run(True)
        feed(decode, length, 1)
        decode.run(True)


STATE, STATE_OUT = "past_recurrent_state_0", "recurrent_state_out_0"


def fed_hybrid(module, valid, current):
    module.set_input("linear_attn_mask", (np.arange(4) < current).astype(np.float16))
    feed(module, valid, current, valid)
    module.run(True)


def test_s207_masks_that_follow_the_length():
    module = rt.load("hybrid.hmm")
    module.set_input(STATE, np.zeros((1, 1, 4, 4)))
    module.set_dev_output(STATE_OUT, module.get_dev_input(STATE))
    for valid, current in ((0, 4), (4, 1), (5, 3)):
        fed_hybrid(module, valid, current)
    module.set_input("linear_attn_mask", np.float16([1, 0, 1, 0]))
    feed(module, 8, 3, 8)
    with pytest.raises(StrictError, match=r"S-207: .*'linear_attn_mask' is 0 for token 1, but 'current_length' is 3"):
        module.run(True)


def test_s208_states_that_go_on_begin_anew_or_come_from_the_host():
    first, second = rt.load("hybrid.hmm"), rt.load("hybrid.hmm")
    for name in CACHES:
        second.set_dev_input(name, first.get_dev_input(name))
    for text in range(2):
        first.set_input(STATE, np.full((1, 1, 4, 4), text))  # zeros, or those of a prefix that was kept
        fed_hybrid(first, 0, 4)
        second.set_dev_input(STATE, first.get_dev_output(STATE_OUT))
        fed_hybrid(second, 4, 1)
        kept = second.get_dev_output(STATE_OUT).numpy()
        second.set_dev_input(STATE, second.get_dev_output(STATE_OUT))
        fed_hybrid(second, 5, 2)
        second.set_input(STATE, kept)
        fed_hybrid(second, 5, 2)
    with pytest.raises(StrictError, match=rf"S-208: .*'{STATE}' holds the state after 7 tokens, but .* is 5"):
        fed_hybrid(second, 5, 1)
    fresh = rt.load("hybrid.hmm")
    fresh.get_dev_input(STATE).set_zero()
    fed_hybrid(fresh, 0, 1)


def test_s208_states_after_some_tokens_of_a_run():
    graph = hybrid_graph(4)
    *others, output = graph.values
    output = replace(output, role=hmm.Role("recurrent_state_1", slot=0, layer=0))
    hmm.write_model("steps.hmm", replace(graph, values=(*others, output)), [])
    module = rt.load("steps.hmm")
    module.get_dev_input(STATE).set_zero()
    module.set_dev_output(STATE_OUT, module.get_dev_input(STATE))
    fed_hybrid(module, 0, 4)
    fed_hybrid(module, 2, 1)
    fed_hybrid(module, 3, 3)
    with pytest.raises(StrictError, match=r"S-208: .* after 5 tokens, but .* is 6"):
        fed_hybrid(module, 6, 1)


def test_s301_s302_after_sync():
    add = fed_add()
    add.run()
    add.sync()
    add.set_input("a", np.zeros((2, 3)))
    assert add.get_output("total").numpy()[0, 0] == 2
    add.run(sync=True)
    add.get_dev_output("total").numpy()


def test_s301_after_the_sync_of_another_module_on_the_stream():
    first, second = fed_add(), fed_add()
    first.run()
    second.run()
    second.sync()
    first.get_output("total")


def test_s303_one_stream_orders_prefill_and_decode():
    prefill, decode = pair()
    feed(prefill, 0, 4)
    feed(decode, 4, 1)
    prefill.run()
    decode.run()
    decode.sync()


def test_s303_modules_that_share_nothing_on_two_streams():
    first, second = fed_add(), fed_add()
    second.set_stream(rt.Stream())
    first.run()
    second.run()
    first.sync()
    second.sync()


def test_s304_release_twice_and_memory_that_outlives_its_module():
    prefill, decode = pair()
    feed(prefill, 0, 4)
    prefill.run(True)
    prefill.release()
    prefill.release()
    feed(decode, 4, 1)
    decode.run(True)


def test_s401_caches_written_from_the_host_and_read_back_whole():
    prefill, decode = pair()
    feed(prefill, 0, 3)
    prefill.run(True)
    stored = {name: prefill.get_dev_input(name).to_host(True).numpy() for name in CACHES}
    other, _ = pair()
    for name, array in stored.items():
        other.set_input(name, array)
    feed(other, 3, 1)
    other.run(True)
    assert decode.get_dev_input(CACHES[0]).numpy().any()


def test_s402_inputs_that_no_op_reads():
    fed_add().run(True)


def test_s403_a_new_tensor_as_a_host_tensor():
    add = fed_add()
    rt.Tensor(add.get_input_info("a")).to_host(to_contiguous=True)
    twin = rt.Tensor(add.get_input_info("a"))
    twin.set_zero()
    assert not twin.numpy().any()
    assert add.get_dev_input("a").clone().numpy().all()


def test_s501_eight_bits_that_mean_the_same():
    add = rt.load("add.hmm")
    add.set_input("image", np.full(4, 127, np.uint8))
    add.set_input("image", np.full(4, -5, np.int8))
