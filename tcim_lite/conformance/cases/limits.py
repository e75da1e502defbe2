"""Resources that run out: an error, and everything goes on."""

import gc

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only, refused
from ..registry import each, seconds

TIER = "full"


def test_a_full_device_refuses_and_serves_on(linear_pair, room_for_one):
    module = rt.load(linear_pair[0], rt.Option(room_for_one))
    for _ in range(20):
        with refused("DeviceError", "out of memory"):
            rt.load(linear_pair[0], rt.Option(room_for_one))
    with refused("DeviceError", "out of memory"):
        rt.Tensor(module.get_input_info("x"))
    module.set_input("x", np.ones((1, 4, 8), np.float32))
    module.run(True)
    assert module.get_output("y").numpy().any()
    del module
    gc.collect()
    rt.load(linear_pair[0], rt.Option(room_for_one)).run(True)


@seconds(180)
def test_many_modules_at_once(kit):
    manager = rt.WeightManager(0)
    modules = [rt.load(kit.model("linear_prefill"), rt.Option(manager)) for _ in range(200)]
    for number, module in enumerate(modules):
        module.set_input("x", np.full((1, 4, 8), number, np.float32))
        module.run()
    rows = kit.reference_weight.sum(1)
    for number, module in enumerate(modules):
        np.testing.assert_allclose(module.get_output("y").numpy()[0, 0], number * rows, rtol=1e-5)


def test_loading_and_dropping_leaves_no_descriptor_or_thread(kit, run_script):
    text = """
        import gc

        def counts():
            gc.collect()
            return [len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")]

        def cycle():
            module = rt.load(sys.argv[1], rt.Option(rt.WeightManager(0)))
            module.set_stream(rt.Stream())
            module.run(True)

        for _ in range(5):
            cycle()
        before = counts()
        for _ in range(100):
            cycle()
        print(before == counts(), before, counts())
    """
    assert run_script(text, kit.model("linear_prefill")).startswith("True")


def test_no_descriptors_left_is_an_error(kit, run_script):
    text = """
        import resource
        module = rt.load(sys.argv[1])
        module.run(True)
        used = len(os.listdir("/proc/self/fd"))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        opened = [os.open("/dev/null", os.O_RDONLY)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(opened) + 1, limits[1]))
        try:
            rt.load(sys.argv[2])
        except RuntimeError as error:
            print("refused")
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        rt.load(sys.argv[2]).run(True)
        module.run(True)
        print("and on")
    """
    assert run_script(text, kit.model("add"), kit.model("linear_prefill")).split() == ["refused", "and", "on"]


def test_no_address_space_left_is_an_error(kit, run_script):
    emulator_only("what a load maps")
    # In a thread, whose stack is mapped from the start: the main one could not grow any more.
    text = """
        import resource
        import threading

        def work():
            module = rt.load(sys.argv[1])
            module.run(True)
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            limits = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), limits[1]))
            try:
                rt.load(sys.argv[2])
            except (RuntimeError, MemoryError) as error:
                print("refused")
            resource.setrlimit(resource.RLIMIT_AS, limits)
            rt.load(sys.argv[2]).run(True)
            module.run(True)
            print("and on")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """
    assert run_script(text, kit.model("add"), kit.model("add_slow")).split() == ["refused", "and", "on"]


@each("method", ["fork", "spawn"])
def test_processes_side_by_side_do_not_disturb_each_other(kit, run_script, method):
    text = """
        import multiprocessing

        def work(number, path, queue):
            module = rt.load(path, rt.Option(rt.WeightManager(0)))
            module.set_dev_output("total", module.get_dev_input("b"))
            module.set_input("a", np.full((1, 256, 64), number, np.float32))
            for _ in range(50):
                module.run()
            module.sync()
            queue.put((number, float(module.get_dev_input("b").numpy().mean())))

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[2])
            queue = context.Queue()
            processes = [context.Process(target=work, args=(n, sys.argv[1], queue)) for n in (1, 2, 3)]
            for process in processes:
                process.start()
            print(sorted(queue.get(timeout=40) for _ in processes))
            for process in processes:
                process.join()
                assert process.exitcode == 0
    """
    assert run_script(text, kit.model("add_wide"), method) == "[(1, 50.0), (2, 100.0), (3, 150.0)]"
