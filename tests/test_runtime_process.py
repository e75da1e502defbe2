"""Imports, fork, spawn, threads and the end of the process (C-19, C-20, C-21, C-29, C-32)."""

import pickle
import re
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tcim_lite.runtime as rt


def run_script(text, *arguments, timeout=60):
    """Runs Python text in a fresh process and returns what it printed."""
    command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", textwrap.dedent(text), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_c19_version():
    first, second = rt.get_version().split("\n")
    assert re.search(r"v\d+\.\d+\.\d+", first).group() == "v1.4.0"
    assert "tcim_lite" in second


def test_c29_runtime_comes_with_a_bare_import_and_needs_numpy_alone():
    text = """
        import sys
        import tcim_lite as tcim
        assert "numpy" not in sys.modules
        assert tcim.runtime.get_device_num() == 1
        print(*(name for name in ("torch", "transformers", "safetensors") if name in sys.modules))
    """
    assert run_script(text) == ""


def test_c20_counting_and_constructing_start_no_threads():
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


def test_c20_fork_after_constructing_managers(write_add):
    text = FORK + "\n    print(fork(r.Option(r.WeightManager(0))))"
    assert run_script(text, str(write_add((1, 256, 64)))) == "[3.0]"


def test_c20_fork_after_loading_and_with_work_in_flight(write_add):
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


def test_the_process_ends_with_work_queued(write_add):
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


def spawned(queue, path, manager, option, run_option):
    module = rt.load(path, option=option)
    module.set_input("a", np.ones((2, 3)))
    module.run(False, run_option)
    queue.put((module.get_output("total").numpy().sum(), manager.device_ids))


def test_c32_configuration_pickles(add_model):
    text = """
        import multiprocessing, sys
        sys.path.insert(0, sys.argv[2])
        import test_runtime_process as t

        if __name__ == "__main__":
            rt = t.rt
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            option = rt.Option(rt.WeightManager(rt.DevManager([0], "xh2"))).set_dummy_tensors(["a"])
            rt.load(sys.argv[1], option)
            arguments = (queue, sys.argv[1], rt.DevManager([0]), option, rt.RunOption(2))
            process = context.Process(target=t.spawned, args=arguments)
            process.start()
            print(*queue.get(timeout=50))
            process.join()
    """
    assert run_script(text, str(add_model), __file__.rsplit("/", 1)[0]) == "6.0 [0]"


def test_c32_pickled_managers_are_fresh(linear_pair):
    manager = rt.WeightManager(rt.DevManager([0], "xh2"))
    option = rt.Option(manager).set_dummy_tensors(["x"])
    rt.load(linear_pair[0], option)
    other_manager, other = pickle.loads(pickle.dumps((manager, option)))
    assert other._weight_manager is other_manager
    assert repr(other_manager) == repr(manager)
    assert not rt.load(linear_pair[0], other).get_dev_input("x")._core.has_storage
    assert pickle.loads(pickle.dumps(rt.RunOption(7))).rounds == 7


@pytest.mark.parametrize("share", [True, False])
def test_c21_threads_load_and_run_at_once(linear_pair, reference_weight, share):
    manager = rt.WeightManager(0)
    failures = []
    barrier = threading.Barrier(8)

    def work(number):
        try:
            barrier.wait()
            for _ in range(10):
                module = rt.load(linear_pair[number % 2], rt.Option(manager if share else rt.WeightManager(0)))
                module.set_stream(rt.Stream(True))
                tokens = module.get_input_info("x").shape[1]
                for _ in range(20):
                    x = np.full((1, tokens, 8), number, np.float32)
                    module.set_input("x", x)
                    module.run()
                    np.testing.assert_allclose(module.get_output("y").numpy(), x @ reference_weight.T, rtol=1e-5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    "loop", ["module.run(True)", "module.run(); module.sync()", "module.get_output('total').numpy()"]
)
def test_the_process_ends_while_daemon_threads_are_in_the_core(add_model, loop):
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


def test_a_fork_may_use_more_threads_than_its_parent(attention_pair, monkeypatch):
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


def test_a_stream_that_gets_no_thread_is_an_error_and_nothing_waits_for_it(add_model):
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
