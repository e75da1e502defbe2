"""C-20: what may happen before a fork, and in the child after one."""

from ..checks import emulator_only

FORK = """
    import multiprocessing, threading

    def use(module, value):
        module.set_input("b", np.zeros((1, 256, 64), np.float32))
        module.set_input("a", np.full((1, 256, 64), value, np.float32))
        module.run()
        module.sync()
        return float(module.get_output("total").numpy().mean())

    def child(option, module, queue):
        try:
            values = [use(rt.load(sys.argv[1], option=option), 3)]
            if module is not None:
                values += [use(module, 4)]
            queue.put(values)
        except BaseException as error:
            queue.put(repr(error))

    def fork(option, module=None):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=child, args=(option, module, queue))
        process.start()
        result = queue.get(timeout=30)
        process.join(30)
        assert process.exitcode == 0
        return result
"""


def test_c20_counting_and_constructing_start_no_threads(run_script):
    text = """
        import os, subprocess, sys
        import numpy
        before = len(os.listdir("/proc/self/task"))
        import importlib
        rt = importlib.import_module(sys.argv[1])
        rt.get_device_num()
        rt.Option(rt.WeightManager(rt.DevManager([0, 1], "Xh2HalBackend"))).set_dummy_tensors(["x"])
        rt.RunOption(3), rt.Stream(True)
        print(len(os.listdir("/proc/self/task")) - before)
    """
    from ..under_test import name

    assert run_script(text, name(), prelude=False) == "0"


def test_c20_children_load_models_with_managers_made_before_the_fork(kit, run_script):
    text = FORK + "\n    print(fork(rt.Option(rt.WeightManager(0))))"
    assert run_script(text, kit.model("add_wide")) == "[3.0]"


def test_c20_a_fork_after_loading_and_with_work_in_flight(kit, run_script):
    emulator_only("a fork after a load")
    text = (
        FORK
        + """
    option = rt.Option(rt.WeightManager(0))
    module = rt.load(sys.argv[1], option)
    use(module, 1)
    busy = rt.load(sys.argv[1], option)
    busy.set_stream(rt.Stream())
    stop = threading.Event()

    def work():
        while not stop.is_set():
            busy.run(False, rt.RunOption(20))
            busy.get_output("total")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            module.run(False, rt.RunOption(50))
            assert fork(option, module) == [3.0, 4.0]
    finally:  # a failure is told at once
        stop.set()
        thread.join()
    print(use(module, 5))
    """
    )
    assert run_script(text, kit.model("add_wide")) == "5.0"
