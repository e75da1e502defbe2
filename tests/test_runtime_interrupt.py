"""Ctrl-C while the device works."""

import pytest

# Interrupts itself once it is inside the call; a run of 2^31 - 1 rounds would take days.
SCRIPT = """
    import os, signal, sys, threading, time
    import numpy as np
    import tcim_lite.runtime as r
    from tcim_lite.dev_ctrl import HalDeviceFactory

    HUGE = r.RunOption((1 << 31) - 1)
    module = r.load(sys.argv[1])
    module.set_input("a", np.ones((1, 256, 64)))

    def interrupt():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    try:
        threading.Thread(target=interrupt).start()
        CALL
    except KeyboardInterrupt:
        print("interrupted")
"""
OTHER = """other = r.load(sys.argv[1])
        other.set_dev_input("a", module.get_dev_input("a"))
        other.set_dev_output("total", module.get_dev_output("total"))
        module.run(False, HUGE)
        other.get_output("total")"""
CALLS = {
    "run": "module.run(True, HUGE)",
    "sync": "module.run(False, HUGE); module.sync()",
    "get_output": "module.run(False, HUGE); module.get_output('total')",
    "set_input": "module.run(False, HUGE); module.set_input('a', np.ones((1, 256, 64)))",
    "set_input of a tensor": "module.run(False, HUGE); module.set_input('a', r.Tensor(r.TensorInfo((1, 256, 64))))",
    "set_stream": "module.run(False, HUGE); module.set_stream(r.Stream())",
    "a tensor's array": "module.run(False, HUGE); module.get_dev_output('total').numpy()",
    "a tensor's copy": "module.run(False, HUGE); module.get_dev_output('total').clone()",
    "into a tensor": "t = module.get_dev_input('a'); module.run(False, HUGE); t.set_zero()",
    "another module's": OTHER,
    "release": "module.run(False, HUGE); module.release()",
    "ipu_reset": "module.run(False, HUGE); HalDeviceFactory.create('xh2').ipu_reset(0)",
}


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_ends_the_wait_and_the_process_can_end(write_add, run_script, call):
    path = write_add((1, 256, 64))
    assert run_script(SCRIPT.replace("CALL", CALLS[call]), str(path)) == "interrupted"


def test_interrupted_work_goes_on_and_can_be_waited_for(write_add, run_script):
    text = """
        import signal, sys
        import numpy as np
        import tcim_lite.runtime as r

        module = r.load(sys.argv[1])
        module.set_input("a", np.ones((1, 256, 1024)))
        module.set_dev_output("total", module.get_dev_input("b"))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        rounds = 0
        while True:
            try:
                rounds += 2000
                module.run(True, r.RunOption(2000))
            except KeyboardInterrupt:
                break
        print((module.get_output("total").numpy() == rounds).all())
    """
    assert run_script(text, str(write_add((1, 256, 1024)))) == "True"


def test_a_signal_handler_may_use_the_module_and_fork(write_add, run_script):
    text = """
        import os, signal, sys
        import numpy as np
        import tcim_lite.runtime as r

        module, other = r.load(sys.argv[1]), r.load(sys.argv[1])
        other.set_stream(r.Stream())
        other.set_input("a", np.ones((1, 256, 1024)))
        seen = []

        def handler(number, frame):
            other.run(True)
            seen.append((other.get_output("total").numpy() == 1).all())
            if (child := os.fork()) == 0:
                os._exit(int(module.get_num_inputs() != 4))
            seen.append(os.waitpid(child, 0)[1])

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        while not seen:
            module.run(True, r.RunOption(2000))
        print(*seen)
    """
    assert run_script(text, str(write_add((1, 256, 1024)))) == "True 0"


@pytest.mark.parametrize("call", ["module.get_num_inputs()", "module.get_input_info('a')", "fork()"])
def test_a_waiting_thread_gets_signals_while_others_wait_for_its_work(write_add, run_script, call):
    """One thread runs and now and then asks for signals, another waits for the run, the main thread for that one."""
    text = """
        import os, sys, threading, time
        import numpy as np
        import tcim_lite.runtime as r

        module = r.load(sys.argv[1])
        ones = np.ones((1, 256, 1024))
        module.set_input("a", ones)

        def fork():
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)

        threads = [
            threading.Thread(target=lambda: module.run(True, r.RunOption(5000))),
            threading.Thread(target=lambda: module.set_input("a", ones)),
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        CALL
        for thread in threads:
            thread.join()
        print("done")
    """
    assert run_script(text.replace("CALL", call), str(write_add((1, 256, 1024)))) == "done"


def test_streams_come_and_go_while_a_reset_waits(write_add, run_script):
    text = """
        import sys, threading, time
        import tcim_lite.runtime as r
        from tcim_lite.dev_ctrl import HalDeviceFactory

        module = r.load(sys.argv[1])
        module.run(False, r.RunOption((1 << 31) - 1))
        hal = HalDeviceFactory.create("xh2")
        threading.Thread(target=hal.ipu_reset, args=(0,), daemon=True).start()
        time.sleep(0.2)
        stream = r.Stream()
        del stream
        print("done")
    """
    assert run_script(text, str(write_add((1, 256, 64)))) == "done"
