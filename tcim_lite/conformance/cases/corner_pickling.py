"""C-32: managers and options pickle by configuration and come back as fresh, lazy objects."""

import copy
import multiprocessing
import pickle

import numpy as np

from .. import under_test as rt
from ..checks import refused
from ..registry import each

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@each("protocol", PROTOCOLS)
def test_c32_every_protocol_keeps_the_configuration(kit, linear_pair, protocol):
    kit.devices(2)
    devices = rt.DevManager([0, 1], "xh2")
    manager = rt.WeightManager(devices)
    option = rt.Option(manager).set_dummy_tensors(["x"])
    rt.load(linear_pair[0], option)  # managers that were used pickle as well
    copies = pickle.loads(pickle.dumps((devices, manager, option, rt.RunOption(7)), protocol))
    assert [type(item) for item in copies] == [rt.DevManager, rt.WeightManager, rt.Option, rt.RunOption]
    assert (copies[0].device_ids, copies[0].backend_name) == ([0, 1], "xh2")
    assert repr(copies[1]) == repr(manager)
    assert copies[3].rounds == 7
    module = rt.load(linear_pair[0], copies[2])
    with refused("StateError", "input 'x'"):  # still a dummy
        module.run()


def test_c32_an_offset_survives(tmp_path, linear_bytes):
    (tmp_path / "bundle").write_bytes(b"head" + linear_bytes + b"tail")
    option = rt.Option().set_model_offset(4, len(linear_bytes)).enable_host_lazy_loading(True)
    for twin in (pickle.loads(pickle.dumps(option)), copy.deepcopy(option)):
        assert rt.load(tmp_path / "bundle", twin).get_num_outputs() == 1


def test_c32_a_copy_shares_no_weights_with_the_original(linear_pair, bytes_needed):
    def load_two(device, copied):
        manager = rt.WeightManager(device)
        first = rt.load(linear_pair[0], rt.Option(manager))
        second = rt.load(linear_pair[0], rt.Option(copied(manager)))
        return first, second

    shared = bytes_needed(lambda device: load_two(device, lambda manager: manager))
    for copied in (lambda manager: pickle.loads(pickle.dumps(manager)), copy.copy, copy.deepcopy):
        assert bytes_needed(lambda device, copied=copied: load_two(device, copied)) == shared + 16 * 8 * 4


CHILD = """
    import multiprocessing

    def child(queue, path, devices, manager, option, run_option):
        module = rt.load(path, option=option)
        module.set_input("a", np.ones((2, 3)))
        module.set_input("b", np.zeros((2, 3)))
        module.set_dev_output("total", rt.load(path, rt.Option(manager)).get_dev_input("b"))
        module.run(False, run_option)
        module.sync()
        queue.put((float(module.get_output("total").numpy().sum()), devices.device_ids, run_option.rounds))

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[2])
        queue = context.Queue()
        devices = rt.DevManager([0], "Xh2HalBackend")
        manager = rt.WeightManager(devices)
        option = rt.Option(manager).set_dummy_tensors(["a"])
        rt.load(sys.argv[1], option)
        process = context.Process(target=child, args=(queue, sys.argv[1], devices, manager, option, rt.RunOption(2)))
        process.start()
        print(*queue.get(timeout=50))
        process.join()
        sys.exit(process.exitcode)
"""


@each("method", [m for m in multiprocessing.get_all_start_methods() if m != "fork"])
def test_c32_managers_reach_a_child_process(kit, run_script, method):
    assert run_script(CHILD, kit.model("add"), method) == "6.0 [0] 2"


def test_c32_what_holds_memory_does_not_pickle(add):
    for item in (add, add.get_output("total"), add.get_dev_input("a"), rt.Stream()):
        with refused("TypeError", "pickle"):
            pickle.dumps(item)
    array = add.get_output("total").numpy()  # what to send instead
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), array)
