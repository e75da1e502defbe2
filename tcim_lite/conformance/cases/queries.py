"""What queries say fits together, and asking changes nothing."""

import json

import numpy as np

from .. import under_test as rt
from ..registry import each

TIER = "full"
MODELS = ["add", "add_4x5", "linear_prefill", "attention_prefill", "attention_decode", "llm_prefill", "llm_decode"]


def slots(module):
    """(name, info, device tensor) of every input, then of every output."""
    inputs = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    outputs = [module.get_output_name(i) for i in range(module.get_num_outputs())]
    found = [(name, module.get_input_info(name), module.get_dev_input(name)) for name in inputs]
    return found + [(name, module.get_output_info(name), module.get_dev_output(name)) for name in outputs]


@each("role", MODELS)
def test_infos_tensors_and_arrays_agree(kit, role):
    module = rt.load(kit.model(role))
    found = slots(module)
    assert len({name for name, _, _ in found}) == len(found) > 1
    for name, info, tensor in found:
        assert isinstance(name, str)
        assert isinstance(info.shape, tuple)
        assert all(isinstance(extent, int) and extent > 0 for extent in info.shape)
        assert isinstance(info.dtype, type)
        array = tensor.numpy()
        assert array.shape == info.shape == tensor.info.shape == tensor.to_host(True).numpy().shape
        assert array.dtype == np.dtype(info.dtype) == np.dtype(tensor.info.dtype)
        assert tensor.info.format.name == info.format.name == "ND"
        contiguous = info.ascontiguous()
        assert contiguous.shape == info.shape
        assert contiguous.dtype is info.dtype


def test_every_form_of_load_gives_the_model(kit):
    path = kit.model("add")
    loads = [
        lambda: rt.load(path),
        lambda: rt.load(str(path), None),
        lambda: rt.load(path, rt.Option(rt.WeightManager(0))),
        lambda: rt.load(path, option=rt.Option(rt.WeightManager(device=0))),
        lambda: rt.Module.load(str(path), rt.Option(rt.WeightManager(rt.DevManager([0], "Xh2HalBackend")))),
    ]
    if rt.is_emulator():
        loads += [lambda: rt.load(path.read_bytes()), lambda: rt.load(memoryview(bytearray(path.read_bytes())))]
    for load in loads:
        module = load()
        assert isinstance(module, rt.Module)
        for name in ("a", "b"):
            module.set_input(name, np.full((2, 3), 2))
        module.run(True)
        assert (module.get_output("total").numpy() == 4).all()


@each("role", MODELS)
def test_asking_again_gives_the_same_and_changes_nothing(kit, role):
    module = rt.load(kit.model(role))

    def answers():
        return [(name, info.shape, info.dtype, tensor.numpy().tobytes()) for name, info, tensor in slots(module)]

    first = answers()
    assert answers() == first
    twin = rt.load(kit.model(role))
    assert [answer[:3] for answer in first] == [(name, info.shape, info.dtype) for name, info, _ in slots(twin)]


@each("role", MODELS)
def test_the_description_of_a_file_names_what_the_module_has(kit, role):
    found = json.loads(rt.load_model_info(str(kit.model(role))))
    ports = [(port["name"], tuple(port["shape"]), port["dtype"].lower()) for port in found["input"] + found["output"]]
    module = rt.load(kit.model(role))
    assert ports == [(name, tuple(info.shape), np.dtype(info.dtype).name) for name, info, _ in slots(module)]
    assert isinstance(found["info"]["custom_msg"], str)


def test_dummies_are_listed_like_other_inputs(attention_pair, caches):
    whole = rt.load(attention_pair[1])
    dummies = rt.load(attention_pair[1], rt.Option(rt.WeightManager(0)).set_dummy_tensors(caches))
    assert dummies.get_num_inputs() == whole.get_num_inputs()
    for index in range(whole.get_num_inputs()):
        name = whole.get_input_name(index)
        assert dummies.get_input_name(index) == name
        assert dummies.get_input_info(name).shape == whole.get_input_info(name).shape
        assert dummies.get_dev_input(name).info.dtype is whole.get_input_info(name).dtype


def test_the_process_wide_answers_stay(kit):
    version, count = rt.get_version(), rt.get_device_num()
    assert count >= 1
    rt.load(kit.model("add")).run(True)
    assert (rt.get_version(), rt.get_device_num()) == (version, count)
    assert rt.get_device_num("Xh2HalBackend") == count
