"""C-22 and C-30: what keeps memory alive, and what a failed load leaves behind."""

import gc
import shutil

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only, refused
from ..registry import each

X = np.ones((1, 4, 8), np.float32)
WEIGHT_BYTES = 16 * 8 * 4


def result(module):
    module.set_input("x", X)
    module.run(True)
    return module.get_output("y").numpy()


def test_c22_a_module_keeps_its_manager_and_weights_alive(linear_pair, reference_weight):
    def load():  # the only Python names of manager and option are local
        manager = rt.WeightManager(rt.DevManager([0], "Xh2HalBackend"))
        option = rt.Option(manager)
        return rt.load(linear_pair[0], option=option)

    module = load()
    gc.collect()
    np.testing.assert_allclose(result(module), X @ reference_weight.T, rtol=1e-5)


def test_c22_managers_and_options_may_be_kept_as_well(linear_pair):
    manager = rt.WeightManager(0)
    option = rt.Option(manager)
    first = result(rt.load(linear_pair[0], option))
    gc.collect()
    np.testing.assert_array_equal(result(rt.load(linear_pair[0], option)), first)


def test_c22_deleting_the_last_module_frees_its_memory(linear_pair, room_for_one):
    module = rt.load(linear_pair[0], rt.Option(room_for_one))
    with refused("DeviceError", "out of memory"):
        rt.load(linear_pair[0], rt.Option(room_for_one))
    result(module)
    del module
    gc.collect()
    result(rt.load(linear_pair[0], rt.Option(room_for_one)))


def test_c22_modules_of_one_manager_hold_the_weights_once(linear_pair, bytes_needed):
    def load_two(first, second):
        modules = [rt.load(linear_pair[0], rt.Option(manager)) for manager in (first, second)]
        expected = result(modules.pop())
        np.testing.assert_array_equal(result(modules.pop()), expected)

    one = bytes_needed(lambda device: rt.load(linear_pair[0], rt.Option(device)))
    separate = bytes_needed(lambda device: load_two(rt.WeightManager(device), rt.WeightManager(device)))
    shared = bytes_needed(lambda device: load_two(*[rt.WeightManager(device)] * 2))
    assert (separate, shared) == (2 * one, 2 * one - WEIGHT_BYTES)


@each("verb", ["release", "close", "destroy"])
def test_c22_a_manager_can_be_released_by_any_of_its_names(linear_pair, room_for_one, verb):
    emulator_only("WeightManager.release")
    manager = rt.WeightManager(room_for_one)
    getattr(manager, verb)()  # before the first load
    module = rt.load(linear_pair[0], rt.Option(manager))
    expected = result(module)
    for _ in range(2):
        getattr(manager, verb)()
    np.testing.assert_array_equal(result(module), expected)
    del module
    gc.collect()
    np.testing.assert_array_equal(result(rt.load(linear_pair[0], rt.Option(manager))), expected)


def test_c22_releasing_a_manager_leaves_used_weights_shared(linear_pair, bytes_needed):
    emulator_only("WeightManager.release")

    def load_two(manager, release):
        first = rt.load(linear_pair[0], rt.Option(manager))
        if release:
            manager.release()
        np.testing.assert_array_equal(result(rt.load(linear_pair[0], rt.Option(manager))), result(first))

    needed = [bytes_needed(lambda device, r=r: load_two(rt.WeightManager(device), r)) for r in (False, True)]
    assert needed[0] == needed[1]


def test_c22_a_bound_tensor_outlives_the_module_that_owns_it(bind_caches, rows, step, attention_pair):
    prefill, decode = map(rt.load, attention_pair)
    bind_caches(decode, prefill)
    whole = step(rt.load(attention_pair[0]), rows(4), 0)
    step(prefill, rows(3), 0)
    del prefill
    gc.collect()
    np.testing.assert_array_equal(step(decode, rows(4)[:, 3:], 3), whole[3:])


def test_c22_the_memory_goes_with_the_last_tensor(linear_pair, room_for_one):
    option = rt.Option(room_for_one)
    module = rt.load(linear_pair[0], option)
    module.set_input("x", X)
    tensor = module.get_dev_input("x")
    del module
    gc.collect()
    np.testing.assert_array_equal(tensor.numpy(), X)
    with refused("DeviceError", "out of memory"):
        rt.load(linear_pair[0], option)
    del tensor
    gc.collect()
    rt.load(linear_pair[0], option)


@each("verb", ["release", "close", "destroy", "unload"])
def test_c22_a_module_can_be_released_by_any_of_its_names(linear_pair, room_for_one, verb):
    option = rt.Option(room_for_one)
    module = rt.load(linear_pair[0], option)
    for _ in range(2):
        getattr(module, verb)()
    result(rt.load(linear_pair[0], option))
    with refused("RuntimeError", "released", status="UNINITIALIZED"):
        module.run()


def test_c30_a_failed_load_raises_and_names_the_file(tmp_path, kit):
    model = kit.model("add").read_bytes()
    damaged = tmp_path / "damaged.hmm"
    damaged.write_bytes(model[:-200])
    foreign = tmp_path / "vendor.hmm"
    foreign.write_bytes(b"\x7fHMM" + bytes(4096))
    (tmp_path / "empty.hmm").touch()
    for name in ("missing.hmm", "damaged.hmm", "vendor.hmm", "empty.hmm", "."):
        for kind in ("RuntimeError", "ValueError", "HmmFormatError"):
            with refused(kind, name.replace(".", r"\.")):
                rt.load(str(tmp_path / name))


def test_c30_a_replaced_file_is_read_again(kit, tmp_path):
    path, other = tmp_path / "model.hmm", tmp_path / "other.hmm"
    shutil.copy(kit.model("add"), path)
    before = rt.load(path)
    shutil.copy(kit.model("add_4x5"), other)
    other.replace(path)
    after = rt.load(path)
    assert [module.get_input_info("a").shape for module in (before, after)] == [(2, 3), (4, 5)]


def test_c30_a_failed_load_leaves_nothing_behind(kit, room_for_one):
    linear_pair = kit.copied("linear_prefill", "linear_decode")
    manager = rt.WeightManager(room_for_one)
    weights = linear_pair[0].with_name("linear.hmw")
    content = weights.read_bytes()
    last = content.index(np.float32(127 / 16).tobytes())  # of the weights
    for damaged in (content[:-64] + bytes(64), content[:last] + bytes(4) + content[last + 4 :]):
        weights.write_bytes(damaged)
        with refused("HmmFormatError", "damaged"):
            rt.load(linear_pair[0], rt.Option(manager))
    weights.write_bytes(content)
    with refused("DeviceError", "does not exist"):
        rt.load(linear_pair[0], rt.Option(room_for_one + 1))
    module = rt.load(linear_pair[0], rt.Option(manager))  # with the same manager, on the same full device
    with refused("DeviceError", "out of memory"):
        rt.load(linear_pair[0], rt.Option(manager))
    result(module)
