"""Changes that must not change a result: device, threads, repetition, order of modules."""

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only
from ..registry import each

TIER = "full"


def attention_outputs(kit, device, order=(0, 1)):
    """Outputs of a short sequence on a device; the two modules are loaded in this order."""
    roles = ["attention_prefill", "attention_decode"]
    loaded = {}
    for index in order:
        loaded[roles[index]] = rt.load(kit.model(roles[index]), rt.Option(rt.WeightManager(device)))
    prefill, decode = (loaded[role] for role in roles)
    kit.bind_caches(decode, prefill)
    x = kit.rows(6)
    found = [kit.step(prefill, x[:, :4], 0)]
    return np.concatenate(found + [kit.step(decode, x[:, at : at + 1], at) for at in (4, 5)])


def test_every_device_gives_the_same(kit):
    kit.devices(3)
    expected = attention_outputs(kit, 0)
    for device in (1, 2):
        np.testing.assert_array_equal(attention_outputs(kit, device), expected)


def test_the_order_of_loading_does_not_matter(kit):
    np.testing.assert_array_equal(attention_outputs(kit, 0, (1, 0)), attention_outputs(kit, 0))


SCRIPT = """
    import hashlib
    digest = hashlib.sha256()
    for path in sys.argv[1:]:
        module = rt.load(path)
        rng = np.random.default_rng(0)
        for index in range(module.get_num_inputs()):
            name = module.get_input_name(index)
            info = module.get_input_info(name)
            if name == "valid_length":
                value = np.array([3], np.int32)
            elif name == "current_length":
                value = np.array([1], np.int32)
            else:
                value = rng.standard_normal(info.shape).astype(info.dtype)
            module.set_input(name, value)
        module.run(True)
        for index in range(module.get_num_outputs()):
            digest.update(module.get_output(module.get_output_name(index)).numpy().tobytes())
    print(digest.hexdigest())
"""
ROLES = ["add_wide", "linear", "attention_prefill", "attention_decode", "llm_prefill", "llm_decode"]


def test_the_number_of_threads_does_not_matter(kit):
    emulator_only("TCIM_LITE_THREADS")
    found = set()
    for threads in (None, "1", "2", "3", "8"):
        kit.setenv("TCIM_LITE_THREADS", threads)
        found.add(kit.run_script(SCRIPT, *(kit.model(role) for role in ROLES)))
    assert len(found) == 1


def test_the_instruction_set_does_not_matter(kit):
    emulator_only("TCIM_LITE_ISA")
    found = set()
    for isa in (None, "ref"):
        kit.setenv("TCIM_LITE_ISA", isa)
        found.add(kit.run_script(SCRIPT, *(kit.model(role) for role in ROLES)))
    assert len(found) == 1


@each("rounds", [2, 5])
def test_repeating_a_run_changes_nothing(kit, rounds):
    for role in ("attention_prefill", "attention_decode"):
        module, twin = rt.load(kit.model(role)), rt.load(kit.model(role))
        expected = kit.step(twin, kit.rows(1), 4)
        kit.step(module, kit.rows(1), 4)
        module.run(True, rt.RunOption(rounds))
        np.testing.assert_array_equal(module.get_output("logits").numpy()[0, :1], expected)
        for name in kit.caches:
            np.testing.assert_array_equal(module.get_dev_input(name).numpy(), twin.get_dev_input(name).numpy())


def test_the_layout_of_host_arrays_does_not_matter(kit):
    module = rt.load(kit.model("add_4x5"))
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    forms = {
        "fortran": np.asfortranarray(values),
        "strided": np.repeat(values, 2, axis=1)[:, ::2],
        "reversed": values[::-1, ::-1].copy()[::-1, ::-1],
        "big endian": values.astype(">f4"),
        "flat": values.reshape(-1),
        "read-only": np.frombuffer(values.tobytes(), np.float32).reshape(4, 5),
        "float64": values.astype(np.float64),
        "int64": values.astype(np.int64),
        "list": values.tolist(),
    }
    for form, array in forms.items():
        module.set_input("a", np.zeros((4, 5), np.float32))
        module.set_input("a", array)
        np.testing.assert_array_equal(module.get_dev_input("a").numpy(), values, err_msg=form)
