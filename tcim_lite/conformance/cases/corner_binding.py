"""C-1, C-2, C-7 to C-10 and C-26: what an input or output is bound to, and who sees what is written there."""

import numpy as np

from .. import under_test as rt
from ..checks import bind, emulator_only, refused, same_rows
from ..registry import each, versions

CACHE_SHAPE = (1, 2, 32, 64)


def test_c01_prefill_writes_the_caches_that_decode_was_bound_to_before(pair, caches, rows, step):
    prefill, decode = pair
    for name in caches:
        decode.set_input(name, prefill.get_dev_input(name))
    x = rows(3)
    step(prefill, x, 0)
    for name in caches:
        cache = decode.get_dev_input(name).numpy()
        np.testing.assert_array_equal(cache[0, :, :3].transpose(1, 0, 2).reshape(3, 128), x[0].astype(np.float16))
        assert not cache[0, :, 3:].any()


def test_c01_decode_continues_what_prefill_cached(pair, caches, attention_pair, rows, step):
    prefill, decode = pair
    for name in caches:
        decode.set_input(name, prefill.get_dev_input(name))
    whole = step(rt.load(attention_pair[0]), rows(4), 0)
    np.testing.assert_array_equal(step(prefill, rows(3), 0), whole[:3])
    same_rows(step(decode, rows(4)[:, 3:], 3), whole[3:])


def test_c02_a_host_write_goes_through_the_binding_and_does_not_detach(pair, caches, rows, step):
    prefill, decode = pair
    for name in caches:
        decode.set_input(name, prefill.get_dev_input(name))
    stored = np.random.default_rng(1).standard_normal(CACHE_SHAPE).astype(np.float16)
    prefill.set_input(caches[0], stored)  # prefix caching
    np.testing.assert_array_equal(decode.get_dev_input(caches[0]).numpy(), stored)
    decode.set_input(caches[0], np.zeros(CACHE_SHAPE, np.float16))  # clearing a chat
    assert not prefill.get_dev_input(caches[0]).numpy().any()
    step(prefill, rows(2), 0)  # still the same memory
    assert decode.get_dev_input(caches[0]).numpy()[0, :, :2].any()


def test_c07_a_dummy_has_an_info_but_no_memory(pair, caches):
    decode = pair[1]
    tensor = decode.get_dev_input(caches[0])
    assert tensor.info.shape == decode.get_input_info(caches[0]).shape == CACHE_SHAPE
    assert tensor.info.dtype is decode.get_input_info(caches[0]).dtype is np.float16
    with refused("TcimError", "no memory"):
        tensor.to_host()


def test_c07_dummies_take_no_device_memory(attention_pair, caches, bytes_needed, device_with_memory):
    def load(device, dummies=()):
        return rt.load(attention_pair[1], rt.Option(device).set_dummy_tensors(dummies))

    cache_bytes = np.prod(CACHE_SHAPE) * 2
    without = bytes_needed(lambda device: load(device, caches))
    assert bytes_needed(load) - without == 2 * cache_bytes
    module = load(device_with_memory(without + cache_bytes), caches)
    module.set_input(caches[0], np.zeros(CACHE_SHAPE))  # now it has some
    with refused("DeviceError", "out of memory"):
        module.set_input(caches[1], np.zeros(CACHE_SHAPE))


@each("bind", ["set_input", "set_dev_input"])
def test_c07_a_dummy_is_bound_through_either_call(pair, caches, rows, step, bind):
    prefill, decode = pair
    for name in caches:
        getattr(decode, bind)(name, prefill.get_dev_input(name))
    step(decode, rows(1), 0)
    assert prefill.get_dev_input(caches[0]).numpy()[0, :, 0].any()


def test_c07_an_array_gives_a_dummy_memory_of_its_own(pair, caches, rows, step):
    prefill, decode = pair
    for name in caches:
        decode.set_input(name, np.zeros(CACHE_SHAPE, np.float32))
    assert step(decode, rows(1), 0).shape == (1, 128)
    assert decode.get_dev_input(caches[0]).numpy().any()
    assert not prefill.get_dev_input(caches[0]).numpy().any()


def test_c07_running_with_an_unbound_dummy_names_it(pair, caches, rows, step):
    decode = pair[1]
    for call in (decode.run, lambda: decode.run(True)):
        with refused("RuntimeError", rf"Status.UNINITIALIZED: input '{caches[0]}'", status="UNINITIALIZED"):
            call()
    decode.sync()  # nothing was queued
    for name in caches:
        decode.set_input(name, np.zeros(CACHE_SHAPE))
    step(decode, rows(1), 0)


def test_c07_binding_a_tensor_without_memory_is_refused(pair, caches):
    prefill, decode = pair
    own = prefill.get_dev_input(caches[0])
    with refused("RuntimeError", r"^set_input error: Status.UNINITIALIZED"):
        prefill.set_input(caches[0], decode.get_dev_input(caches[0]))
    own.copy_to(prefill.get_dev_input(caches[0]))  # the old binding stands


def test_c07_stray_dummy_calls_are_harmless(attention_pair, caches, rows, step):
    option = rt.Option(rt.WeightManager(0)).set_dummy_tensors(["nobody"])
    module = rt.load(attention_pair[1], option)
    option.set_dummy_tensors(caches)  # after load: no effect
    step(module, rows(1), 0)


def test_c08_decodes_caches_may_be_bound_into_prefill(attention_pair, caches, rows, step):
    prefill, decode = (rt.load(path) for path in attention_pair)  # no dummies anywhere
    for name in caches:
        bind(prefill, name, decode.get_input(name))
    step(prefill, rows(3), 0)
    whole = step(rt.load(attention_pair[0]), rows(4), 0)
    same_rows(step(decode, rows(4)[:, 3:], 3), whole[3:])


@versions(since=(1, 4))
def test_c08_set_input_binds_to_an_input_that_is_no_dummy(add):
    tensor = add.get_dev_input("a").clone(True)
    add.set_input("a", tensor)
    add.set_input("a", np.full((2, 3), 3))
    np.testing.assert_array_equal(tensor.numpy(), np.full((2, 3), 3))


@versions(before=(1, 4))
def test_c08_set_input_refuses_to_bind_to_an_input_that_is_no_dummy(add):
    """Reported of runtime 1.3.0; set_dev_input does it (section 7.2)."""
    add.set_input("a", np.full((2, 3), 2))
    own, tensor = add.get_dev_input("a"), add.get_dev_input("a").clone(True)
    for refused_tensor in (tensor, own):
        with refused("RuntimeError", r"^set_input error: Status\.UNINITIALIZED", status="UNINITIALIZED"):
            add.set_input("a", refused_tensor)
    add.set_input("a", np.full((2, 3), 3))  # into its own memory still
    np.testing.assert_array_equal(own.numpy(), np.full((2, 3), 3))
    np.testing.assert_array_equal(tensor.numpy(), np.full((2, 3), 2))
    add.set_dev_input("a", tensor)
    add.set_input("a", np.full((2, 3), 4))
    np.testing.assert_array_equal(tensor.numpy(), np.full((2, 3), 4))


def test_c08_dummies_may_be_declared_on_prefill(attention_pair, caches, rows, step):
    decode = rt.load(attention_pair[1])
    prefill = rt.load(attention_pair[0], rt.Option().set_dummy_tensors(caches))
    for name in caches:
        prefill.set_dev_input(name, decode.get_dev_input(name))
    step(prefill, rows(2), 0)
    assert decode.get_dev_input(caches[1]).numpy()[0, :, :2].any()


def test_c08_one_cache_after_another_may_be_bound_into_prefill(attention_pair, caches, rows, step):
    prefill = rt.load(attention_pair[0])
    slots = [rt.load(attention_pair[1]) for _ in range(3)]
    for tokens, slot in enumerate(slots, 1):
        for name in caches:
            bind(prefill, name, slot.get_dev_input(name))
        step(prefill, rows(tokens), 0)
    for tokens, slot in enumerate(slots, 1):
        filled = slot.get_dev_input(caches[0]).numpy()[0].any(axis=(0, 2))
        assert filled.tolist() == [True] * tokens + [False] * (32 - tokens)


def test_c09_an_output_may_be_an_input_of_the_same_module(add):
    for name in "ab":
        add.set_input(name, np.ones((2, 3)))
    bind(add, "a", add.get_dev_output("total"))  # zero before the first run
    for expected in (1, 2, 3):
        add.run()
        add.sync()
        np.testing.assert_array_equal(add.get_output("total").numpy(), np.full((2, 3), expected))


def test_c09_set_dev_output_onto_an_input_equals_separate_buffers(add, kit):
    separate = rt.load(kit.model("add"))
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((2, 3)).astype(np.float16) for _ in range(2))
    for module in (add, separate):
        module.set_input("a", a)
        module.set_input("b", b)
    state = add.get_dev_input("a").clone(True)
    add.set_dev_input("a", state)
    add.set_dev_output("total", state)
    for _ in range(4):
        add.run(True)
        separate.run(True)
        expected = separate.get_output("total").numpy()
        np.testing.assert_array_equal(state.numpy(), expected)
        np.testing.assert_array_equal(add.get_output("total").numpy(), expected)
        separate.set_input("a", expected)


def test_c09_an_output_may_overlap_an_input(kit):
    """The graph reads its inputs before it writes its outputs, here two windows of one memory, five elements apart."""
    emulator_only("windows of a larger tensor as input and output")
    module = rt.load(kit.model("add_4x5"))
    memory = rt.load(kit.model("add_wide")).get_dev_input("a")
    values = np.arange(1, 21, dtype=np.float32)
    source, target = (memory.select_roi([0, 0, at], [1, 1, 20]) for at in (0, 5))
    rt.Tensor(module.get_input_info("a").ascontiguous(), values).copy_to(source)
    module.set_input("b", np.full((4, 5), 100, np.float32))
    module.set_dev_input("a", source)
    module.set_dev_output("total", target)
    module.run(True)
    np.testing.assert_array_equal(target.numpy().reshape(-1), values + 100)


def test_c10_reading_a_dev_output_waits_for_the_runs_that_write_it(slow, kit):
    before = rt.load(kit.model("add_slow"))
    slow.set_input("a", np.ones((1, 256, 4096), np.float32))
    before.run(False, rt.RunOption(20))  # on the same stream
    slow.run()
    assert (slow.get_dev_output("total").numpy() == 1).all()


def test_c10_a_dev_output_handle_holds_the_data_until_the_next_run(add):
    add.set_input("a", np.full((2, 3), 4))
    add.run(True)
    handle = add.get_dev_output("total")
    add.set_input("a", np.zeros((2, 3)))
    np.testing.assert_array_equal(handle.numpy(), np.full((2, 3), 4))
    bind(add, "b", handle)  # last run's output is this run's input
    add.run(True)
    np.testing.assert_array_equal(handle.numpy(), np.full((2, 3), 4))
    add.set_input("a", np.ones((2, 3)))
    add.run(True)
    np.testing.assert_array_equal(handle.numpy(), np.full((2, 3), 5))


def test_c26_binding_the_same_tensor_for_every_token_changes_nothing(pair, caches, rows, step, attention_pair):
    prefill, decode = pair
    whole = step(rt.load(attention_pair[0]), rows(4), 0)
    for token in range(4):
        for name in caches:
            decode.set_input(name, prefill.get_dev_input(name))
        same_rows(step(decode, rows(4)[:, token : token + 1], token)[0], whole[token])
