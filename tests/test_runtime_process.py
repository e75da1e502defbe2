"""Fork, and the end of the process (C-20)."""

import pytest


def test_c29_runtime_comes_with_a_bare_import_and_needs_numpy_alone(run_script):
    text = """
        import sys
        import tcim_lite as tcim
        assert "numpy" not in sys.modules
        assert tcim.runtime.get_device_num() == 1
        print(*(name for name in ("torch", "transformers", "safetensors") if name in sys.modules))
    """
    assert run_script(text) == ""


def test_c20_counting_and_constructing_start_no_threads(run_script):
    text = """
        import os
        import numpy
        before = len(os.listdir("/proc/self/task"))
        import tcim_lite.runtime as r
        r.get_device_num()
        r.Option(r.WeightManager(r.DevManager([0, 1], "Xh2HalBackend"))).set_dummy_tensors(["x"])
        r.RunOption(3), r.Stream(True)
        print(len(os.listdir("/proc/self/task")) - before)
    """
    assert run_script(text) == "0"


FORK = """
    import multiprocessing, os, sys, threading
    import numpy as np
    import tcim_lite.runtime as r

    def use(module, value):
        module.set_input("a", np.full((1, 256, 64), value, np.float32))
        module.run()
        module.sync()
        return float(module.get_output("total").numpy().mean())

    def child(option, module, queue):
        try:
            values = [use(r.load(sys.argv[1], option=option), 3)]
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


def test_c20_fork_after_constructing_managers(write_add, run_script):
    text = FORK + "\n    print(fork(r.Option(r.WeightManager(0))))"
    assert run_script(text, str(write_add((1, 256, 64)))) == "[3.0]"


def test_c20_fork_after_loading_and_with_work_in_flight(write_add, run_script):
    text = (
        FORK
        + """
    option = r.Option(r.WeightManager(0))
    module = r.load(sys.argv[1], option)
    use(module, 1)
    busy = r.load(sys.argv[1], option)
    busy.set_stream(r.Stream())
    stop = threading.Event()

    def work():
        while not stop.is_set():
            busy.run(False, r.RunOption(20))
            busy.get_output("total")

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(5):
        module.run(False, r.RunOption(50))
        assert fork(option, module) == [3.0, 4.0]
    stop.set()
    thread.join()
    print(use(module, 5))
    """
    )
    assert run_script(text, str(write_add((1, 256, 64)))) == "5.0"


def test_the_process_ends_with_work_queued(write_add, run_script):
    text = """
        import sys
        import tcim_lite.runtime as r
        module = r.load(sys.argv[1])
        for _ in range(20):
            module.run()
        other = r.load(sys.argv[1])
        other.set_stream(r.Stream())
        other.run(False, r.RunOption(20))
        print("end")
    """
    assert run_script(text, str(write_add((1, 256, 1024)))) == "end"


@pytest.mark.parametrize(
    "loop", ["module.run(True)", "module.run(); module.sync()", "module.get_output('total').numpy()"]
)
def test_the_process_ends_while_daemon_threads_are_in_the_core(add_model, loop, run_script):
    text = """
        import sys, threading, time
        import tcim_lite.runtime as r

        def work():
            module = r.load(sys.argv[1])
            while True:
                exec(sys.argv[2])

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        print("end")
    """
    for _ in range(3):
        assert run_script(text, str(add_model), loop) == "end"


def test_a_fork_may_use_more_threads_than_its_parent(attention_pair, monkeypatch, run_script):
    text = """
        import os, sys
        import numpy as np
        import tcim_lite.runtime as r

        module = r.load(sys.argv[1])
        module.set_input("input_1", np.random.default_rng(0).standard_normal((1, 4, 128)))
        module.set_input("current_length", 4)
        module.run(True)
        expected = module.get_output("logits").numpy()
        if (child := os.fork()) == 0:
            os.environ["TCIM_LITE_THREADS"] = "16"
            for _ in range(50):
                module.run(True)
            os._exit(int((module.get_output("logits").numpy() != expected).any()))
        print(os.waitpid(child, 0)[1])
    """
    monkeypatch.setenv("TCIM_LITE_THREADS", "1")
    assert run_script(text, str(attention_pair[0])) == "0"


def test_a_stream_that_gets_no_thread_is_an_error_and_nothing_waits_for_it(add_model, run_script):
    text = """
        import resource, sys
        import tcim_lite.runtime as r

        module = r.load(sys.argv[1])
        module.run(True)
        module.set_stream(r.Stream())
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 20), limits[1]))  # less than a thread's stack
        try:
            module.run()
        except r.DeviceError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        module.set_input("a", [1] * 6)
        module.run()
        print(module.get_output("total").numpy().sum())
    """
    first, second = run_script(text, str(add_model)).split("\n")
    assert "no thread could be started" in first
    assert second == "6.0"
