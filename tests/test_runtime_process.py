"""Fork, and the end of the process. C-20: tcim_lite/conformance."""

import pytest


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
    "loop",
    [
        pytest.param("module.run(True)", marks=pytest.mark.slow),
        "module.run(); module.sync()",
        pytest.param("module.get_output('total').numpy()", marks=pytest.mark.slow),
    ],
)
def test_the_process_ends_while_daemon_threads_are_in_the_core(add_model, loop, run_script):
    text = """
        import os, sys, threading, time
        import tcim_lite.runtime as r

        threading.excepthook = lambda caught: os.write(1, repr(caught.exc_value).encode())

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


def test_a_sub_interpreter_is_refused_and_does_not_wait(run_script):
    text = """
        try:
            import _interpreters as interpreters  # Python 3.13
        except ImportError:
            import _xxsubinterpreters as interpreters
        interpreters.run_string(interpreters.create(), '''
        try:
            import tcim_lite._core
        except ImportError as error:
            print(error, flush=True)
        ''')
    """
    printed = run_script(text)
    assert "main interpreter only" in printed or "loading in subinterpreters" in printed  # Python's own words


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
    first, second = run_script(text, str(add_model), fresh=True).split("\n")
    assert "no thread could be started" in first
    assert second == "6.0"
