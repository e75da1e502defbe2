"""C-28: models for several devices. Logically they look like the single-device model and give what it gives."""

import json

import numpy as np

from .. import under_test as rt
from ..checks import bind, emulator_only, refused
from ..registry import each

HEADS, HEAD_DIM, CONTEXT = 3, 64, 32
HIDDEN = HEADS * HEAD_DIM
KEYS, VALUES = "model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"
CACHES = [KEYS, VALUES]


def load(path, ids, dummies=None):
    manager = rt.WeightManager(rt.DevManager(ids, "Xh2HalBackend"))
    return rt.load(path, option=rt.Option(manager).set_dummy_tensors(dummies or []))


def rows(seed, tokens=4):
    return np.random.default_rng(seed).standard_normal((1, tokens, HIDDEN)).astype(np.float16)


def step(module, value, valid, current):
    module.set_input("input_1", value)
    module.set_input("valid_length", np.array([valid], np.int32))
    module.set_input("current_length", np.array([current], np.int32))
    module.run()
    module.sync()
    return module.get_output("logits").numpy()


def cache_values(seed):
    return np.random.default_rng(seed).standard_normal((1, HEADS, CONTEXT, HEAD_DIM)).astype(np.float16)


def test_c28_looks_like_the_single_device_model(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module, single = load(path, [0, 1]), rt.load(kit.model("heads"))
    for index in range(single.get_num_inputs()):
        name = single.get_input_name(index)
        assert module.get_input_name(index) == name
        assert module.get_input_info(name).shape == single.get_input_info(name).shape
        assert module.get_input_info(name).dtype == single.get_input_info(name).dtype
    assert module.get_output_info("logits").shape == single.get_output_info("logits").shape
    description = json.loads(rt.load_model_info(path))
    assert [port["shape"] for port in description["input"] if port["name"] == KEYS] == [[1, 3, 32, 64]]


@each("role", ["heads_2_1", "heads_1_2", "heads_1_1_1"])
def test_c28_gives_the_single_device_results_bit_for_bit(kit, role):
    kit.devices(4)
    single = rt.load(kit.model("heads"))
    module = load(kit.model(role), list(range(role.count("_"))))
    for seed, (valid, current) in enumerate([(0, 4), (4, 2), (6, 1), (7, 4)]):
        value = rows(seed)
        np.testing.assert_array_equal(step(module, value, valid, current), step(single, value, valid, current))
    for name in CACHES:
        np.testing.assert_array_equal(module.get_dev_input(name).numpy(), single.get_dev_input(name).numpy())


def test_c28_order_of_ids_is_the_order_of_ranks(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    forward, backward = load(path, [0, 1]), load(path, [3, 2])
    np.testing.assert_array_equal(step(forward, rows(0), 0, 4), step(backward, rows(0), 0, 4))
    assert backward.get_input_info("input_1").device_id == 3


def test_c28_too_few_or_repeated_or_missing_devices_are_refused(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    with refused("ArgumentError", r"model for 2 devices, the device manager lists 1"):
        load(path, [0])
    with refused("ArgumentError", r"model for 2 devices, the device manager lists 1"):
        rt.load(path)
    with refused("ArgumentError", "device 1 twice"):
        load(path, [1, 1])
    with refused("DeviceError", "device 7 does not exist"):
        load(path, [0, 7])


def test_c28_more_ids_than_devices_use_the_first(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    assert step(load(path, [2, 1, 0]), rows(0), 0, 4).shape == (1, 4, HIDDEN)
    assert rt.load(kit.model("heads"), rt.Option(rt.DevManager([3, 0]))).get_num_inputs() == 5


def test_c28_a_module_names_the_devices_it_runs_on(kit):
    emulator_only("Module.get_device_ids")
    kit.devices(4)
    assert load(kit.model("heads_2_1"), [3, 1, 0]).get_device_ids() == [3, 1]
    module = load(kit.model("heads"), [2])
    assert module.get_device_ids() == [2]
    module.release()
    with refused("StateError"):
        module.get_device_ids()


def test_c28_host_copies_of_a_cut_cache_gather_and_scatter(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module = load(path, [0, 1])
    values = cache_values(1)
    module.set_input(KEYS, values.astype(np.float32))
    cache = module.get_dev_input(KEYS)
    assert cache.shape == (1, HEADS, CONTEXT, HEAD_DIM)
    np.testing.assert_array_equal(cache.to_host().numpy(), values)
    np.testing.assert_array_equal(np.asarray(cache.to_host(True)), values)
    np.testing.assert_array_equal(cache.astype(np.float32).numpy(), values.astype(np.float32))
    twin = cache.clone(True)
    cache.set_zero()
    assert not module.get_dev_input(KEYS).numpy().any()
    np.testing.assert_array_equal(twin.numpy(), values)
    twin.copy_to(cache)
    np.testing.assert_array_equal(module.get_dev_input(KEYS).numpy(), values)


def test_c28_views_across_the_cut_read_and_write(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module = load(path, [0, 1])
    values = cache_values(2)
    module.set_input(KEYS, values)
    cache = module.get_dev_input(KEYS)
    view = cache.select_roi([0, 1, 5, 0], [1, 2, 7, HEAD_DIM])
    np.testing.assert_array_equal(view.numpy(), values[:, 1:3, 5:12])
    np.testing.assert_array_equal(view.clone(True).numpy(), values[:, 1:3, 5:12])
    view.set_zero()
    values[:, 1:3, 5:12] = 0
    np.testing.assert_array_equal(cache.numpy(), values)
    source = rt.Tensor(rt.TensorInfo((1, 2, 7, HEAD_DIM), np.float16), np.full((1, 2, 7, HEAD_DIM), 3, np.float16))
    source.copy_to(view)
    values[:, 1:3, 5:12] = 3
    np.testing.assert_array_equal(cache.numpy(), values)


def test_c28_modules_for_the_same_devices_share_caches(kit):
    kit.devices(4)
    prefill = load(kit.model("heads_2_1"), [0, 1])
    decode = load(kit.model("heads_decode_2_1"), [0, 1], CACHES)
    with refused("StateError", r"Status.UNINITIALIZED"):
        decode.run(sync=True)
    for name in CACHES:
        decode.set_input(name, prefill.get_dev_input(name))
    step(prefill, rows(0), 0, 4)
    np.testing.assert_array_equal(decode.get_dev_input(KEYS).numpy(), prefill.get_dev_input(KEYS).numpy())
    step(decode, rows(1, 1), 4, 1)
    assert prefill.get_dev_input(KEYS).numpy()[0, :, 4].any()


def test_c28_a_bind_needs_the_same_devices_and_the_same_cut(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module = load(path, [0, 1])
    before = module.get_dev_input(KEYS)
    others = {
        "devices 1, 0": load(path, [1, 0]),
        "device 0": rt.load(kit.model("heads")),
        "devices 0, 1, 2": load(kit.model("heads_1_1_1"), [0, 1, 2]),
    }
    for place, other in others.items():
        with refused("ArgumentError", f"is on devices 0, 1, the tensor on {place};"):
            bind(module, KEYS, other.get_dev_input(KEYS))
    other_cut = load(kit.model("heads_1_2"), [0, 1])
    with refused("ShapeError", "cut differently"):
        module.set_dev_input(KEYS, other_cut.get_dev_input(KEYS))
    values = cache_values(3)
    module.set_input(KEYS, values)
    np.testing.assert_array_equal(before.numpy(), values)


def test_c28_a_single_device_module_refuses_a_cut_tensor(kit):
    kit.devices(4)
    single = rt.load(kit.model("heads"))
    with refused("ArgumentError", "is on device 0, the tensor on devices 0, 1;"):
        bind(single, KEYS, load(kit.model("heads_2_1"), [0, 1]).get_dev_input(KEYS))


def test_c28_host_data_makes_the_memory_of_a_dummy(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module = load(path, [0, 1], CACHES)
    for name in CACHES:
        module.set_input(name, cache_values(4))
    assert np.isfinite(step(module, rows(5), 3, 4)).all()


def test_c28_outputs_can_be_bound_and_shared(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module = load(path, [0, 1])
    target = rt.Tensor(module.get_output_info("logits"))
    module.set_dev_output("logits", target)
    result = step(module, rows(0), 0, 4)
    np.testing.assert_array_equal(target.numpy(), result)
    host = rt.Tensor(rt.TensorInfo((1, 4, HIDDEN), np.float32))
    module.set_output("logits", host)
    np.testing.assert_array_equal(step(module, rows(1), 4, 4).astype(np.float32), host.numpy())


def test_c28_lengths_are_checked_before_any_device_writes(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module = load(path, [0, 1])
    module.set_input(KEYS, cache_values(6))
    with refused("ArgumentError", "expected 1 to 4"):
        step(module, rows(0), 0, 5)
    np.testing.assert_array_equal(module.get_dev_input(KEYS).numpy(), cache_values(6))


def test_c28_loads_from_memory(kit):
    kit.devices(4)
    path = kit.model("heads_2_1")
    module = rt.load(path.read_bytes(), rt.Option(rt.DevManager([0, 1])))
    np.testing.assert_array_equal(step(module, rows(0), 0, 4), step(load(path, [0, 1]), rows(0), 0, 4))
