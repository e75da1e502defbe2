"""Inputs and outputs: copies, bindings, dummies, aliases (corners C-1 to C-4, C-7 to C-10, C-18, C-26)."""

import numpy as np
import pytest

import tcim_lite.runtime as rt

CACHES = ["model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"]


@pytest.fixture
def add(add_model):
    return rt.load(add_model)


@pytest.fixture
def pair(attention_pair):
    """Prefill, and decode whose caches are dummies."""
    manager = rt.WeightManager(0)
    prefill = rt.load(attention_pair[0], option=rt.Option(manager))
    decode = rt.load(attention_pair[1], option=rt.Option(manager).set_dummy_tensors(CACHES))
    return prefill, decode


def rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((1, count, 128)).astype(np.float32)


def step(module, x, valid):
    """Runs one call; returns the rows of the output, [tokens, 128]."""
    tokens = module.get_input_info("input_1").shape[1]
    padded = np.zeros((1, tokens, 128), np.float32)
    padded[:, : x.shape[1]] = x
    module.set_input("input_1", padded)
    module.set_input("valid_length", np.array(valid).astype("int32"))
    module.set_input("current_length", np.array(x.shape[1]).astype("int32"))
    module.run()
    module.sync()
    return module.get_output("logits").numpy()[0, : x.shape[1]]


def test_c01_a_run_writes_the_caches_bound_to_it(pair):
    prefill, decode = pair
    for name in CACHES:
        decode.set_input(name, prefill.get_dev_input(name))
    x = rows(3)
    step(prefill, x, 0)
    for name in CACHES:
        cache = decode.get_dev_input(name).numpy()
        np.testing.assert_array_equal(cache[0, :, :3].transpose(1, 0, 2).reshape(3, 128), x[0].astype(np.float16))
        assert not cache[0, :, 3:].any()


def test_c01_prefill_then_decode_equals_one_prefill(pair, attention_pair):
    prefill, decode = pair
    for name in CACHES:
        decode.set_input(name, prefill.get_dev_input(name))
    x = rows(4)
    whole = step(rt.load(attention_pair[0]), x, 0)
    np.testing.assert_array_equal(step(prefill, x[:, :3], 0), whole[:3])
    np.testing.assert_array_equal(step(decode, x[:, 3:], 3), whole[3:])


def test_c02_host_write_goes_through_the_binding(pair):
    prefill, decode = pair
    name = CACHES[0]
    decode.set_dev_input(name, prefill.get_dev_input(name))
    values = np.random.default_rng(1).standard_normal((1, 2, 32, 64)).astype(np.float16)
    prefill.set_input(name, values)
    np.testing.assert_array_equal(decode.get_dev_input(name).numpy(), values)
    decode.set_input(name, np.zeros_like(values))
    assert not prefill.get_dev_input(name).numpy().any()


def test_c03_host_data_is_copied_at_call_time(add):
    values = np.ones((2, 3), np.float16)
    add.set_input("a", values)
    values[:] = 7
    add.run()
    np.testing.assert_array_equal(add.get_output("total").numpy(), np.ones((2, 3)))


def test_c04_inputs_persist_between_runs(add):
    add.set_input("a", np.full((2, 3), 2))
    for b in (1, 5):
        add.set_input("b", np.full((2, 3), b))
        add.run(True)
        np.testing.assert_array_equal(add.get_output("total").numpy(), np.full((2, 3), 2 + b))


def test_c07_dummies_have_info_but_no_memory(pair):
    _, decode = pair
    tensor = decode.get_dev_input(CACHES[0])
    assert tensor.info.shape == decode.get_input_info(CACHES[0]).shape == (1, 2, 32, 64)
    assert tensor.info.dtype is np.float16
    with pytest.raises(rt.StateError, match="no memory"):
        tensor.numpy()


def test_c07_running_with_an_unbound_dummy_names_it(pair):
    with pytest.raises(rt.StateError, match=rf"Status.UNINITIALIZED: input '{CACHES[0]}'") as caught:
        pair[1].run()
    assert caught.value.status == rt.Status.UNINITIALIZED


def test_c07_binding_a_tensor_without_memory_is_refused(pair):
    prefill, decode = pair
    with pytest.raises(rt.StateError, match=r"^set_input error: Status.UNINITIALIZED"):
        prefill.set_input(CACHES[0], decode.get_dev_input(CACHES[0]))


def test_c07_an_array_gives_a_dummy_memory(pair):
    decode = pair[1]
    for name in CACHES:
        decode.set_input(name, np.zeros((1, 2, 32, 64), np.float16))
    assert step(decode, rows(1), 0).shape == (1, 128)


def test_c07_stray_dummy_calls_are_harmless(attention_pair, capfd):
    option = rt.Option().set_dummy_tensors(["nobody"])
    module = rt.load(attention_pair[1], option)
    option.set_dummy_tensors(CACHES)
    step(module, rows(1), 0)
    assert "nobody" in capfd.readouterr().err


def test_c08_binding_works_in_both_directions(pair):
    prefill, decode = pair
    for name in CACHES:
        decode.set_input(name, np.zeros((1, 2, 32, 64)))
        prefill.set_input(name, decode.get_input(name))
    step(prefill, rows(2), 0)
    assert decode.get_dev_input(CACHES[0]).numpy()[0, :, :2].any()


def test_c09_an_output_may_be_an_input_of_the_same_run(add):
    add.set_input("a", np.ones((2, 3)))
    add.set_input("b", np.ones((2, 3)))
    add.set_input("a", add.get_dev_output("total"))
    add.run()
    add.run()
    np.testing.assert_array_equal(add.get_output("total").numpy(), np.full((2, 3), 2))
    state = add.get_dev_input("b")
    add.set_dev_input("b", state)
    add.set_dev_output("total", state)
    add.run(True)
    np.testing.assert_array_equal(state.numpy(), np.full((2, 3), 3))


def test_c10_a_dev_output_handle_holds_the_data_until_the_next_run(add):
    add.set_input("a", np.full((2, 3), 4))
    add.run(True)
    handle = add.get_dev_output("total")
    add.set_input("a", np.zeros((2, 3)))
    np.testing.assert_array_equal(handle.numpy(), np.full((2, 3), 4))


def test_c22_a_bound_tensor_outlives_its_module(pair):
    prefill, decode = pair
    for name in CACHES:
        prefill.set_input(name, np.ones((1, 2, 32, 64)))
        decode.set_input(name, prefill.get_dev_input(name))
    prefill.release()
    assert decode.get_dev_input(CACHES[1]).numpy().all()
    step(decode, rows(1), 5)


def test_c26_binding_the_same_tensor_again_changes_nothing(pair):
    prefill, decode = pair
    for _ in range(3):
        for name in CACHES:
            decode.set_input(name, prefill.get_dev_input(name))
        step(decode, rows(1), 0)


def test_c18_names_have_aliases_but_are_reported_as_compiled(pair):
    prefill = pair[0]
    assert prefill.get_num_inputs() == 5
    assert [prefill.get_input_name(i) for i in (0, 3)] == ["input_1", CACHES[0]]
    for alias in ("past_key_cache_0", CACHES[0] + ".hmcc.format", "past_key_cache_0.hmcc.format"):
        assert prefill.get_input_info(alias).name == CACHES[0]
    for alias, name in (("inputs_embeds", "input_1"), ("past_seq_length", "valid_length")):
        assert prefill.get_input_info(alias).name == name


def test_set_output_binds_devices_and_fills_hosts(add):
    add.set_input("a", np.full((2, 3), 1.5))
    host = rt.Tensor(rt.TensorInfo((6,), np.float32))
    add.set_output("total", host)
    before = host.numpy()
    add.run()
    np.testing.assert_array_equal(host.numpy(), np.full(6, 1.5))
    assert before.dtype == np.float32
    target = add.get_dev_input("b").clone(False)
    add.set_output("total", target)
    add.run(True)
    np.testing.assert_array_equal(target.numpy(), np.full((2, 3), 1.5))


@pytest.mark.parametrize("call", ["get_input_info", "get_output_info", "get_dev_input", "get_output", "get_dev_output"])
def test_unknown_names_are_errors_of_both_kinds(add, call):
    with pytest.raises(KeyError, match=r"no .*put is named 'nope'") as caught:
        getattr(add, call)("nope")
    assert isinstance(caught.value, RuntimeError)


def test_set_input_refuses_what_does_not_fit(add):
    with pytest.raises(rt.UnknownNameError, match=r"^Module set_input error: .*'nope'.* a, b, image, length"):
        add.set_input("nope", np.zeros(6))
    with pytest.raises(rt.ShapeError, match=r"'a' is float16 \[2, 3\] with 6 elements, got shape \[7\]"):
        add.set_input("a", np.zeros(7))
    with pytest.raises(rt.ShapeError, match="int32"):
        add.set_input("a", add.get_dev_input("length"))
    wide = add.get_dev_output("total").astype(np.int8)
    with pytest.raises(rt.ShapeError, match="strided"):
        add.set_input("image", wide.select_roi([0, 0], [2, 2]))
    with pytest.raises(rt.ArgumentError, match="needs a device tensor"):
        add.set_dev_input("a", add.get_output("total"))
    with pytest.raises(TypeError, match=r"expected a tcim_lite\.runtime\.Tensor"):
        add.set_dev_input("a", np.zeros((2, 3)))
    with pytest.raises(rt.ArgumentError, match="index 4"):
        add.get_input_name(4)


def test_a_value_that_does_not_fit_leaves_a_dummy_unbound(attention_pair):
    decode = rt.load(attention_pair[1], rt.Option().set_dummy_tensors(["valid_length"]))
    decode.set_input("current_length", 1)
    with pytest.raises(rt.ArgumentError, match="does not fit int32, input 'valid_length'"):
        decode.set_input("valid_length", 1 << 40)
    with pytest.raises(rt.StateError, match="input 'valid_length'"):
        decode.run(True)


def test_arguments_of_a_wrong_type_are_named(add):
    for bad in (None, 1, b"a", ["a"]):
        for call in (add.get_input_info, add.get_output, add.get_dev_input, lambda name: add.set_input(name, 0)):
            with pytest.raises(TypeError, match="expected the name of an input or output"):
                call(bad)
    for bad in (None, "0", 1.0):
        with pytest.raises(TypeError, match="get_input_name: expected an int"):
            add.get_input_name(bad)
    for bad in (None, "x", np.ones(6, complex), np.ones(6, np.longdouble)):
        with pytest.raises(rt.ArgumentError, match=r"input 'a': an array of dtype .* cannot be converted"):
            add.set_input("a", bad)
