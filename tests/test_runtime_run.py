"""What run, sync and streams promise besides the cases of tcim_lite/conformance (corner_running, syncing, refusals)."""

import threading
import time

import numpy as np
import pytest

import tcim_lite.runtime as rt


@pytest.fixture
def slow(write_add):
    """A module whose run takes milliseconds."""
    return rt.load(write_add((1, 256, 4096)))


def test_run_queues_and_returns(slow):
    slow.run(True)
    begin = time.perf_counter()
    for _ in range(3):
        slow.run(False, rt.RunOption(100))
    queued = time.perf_counter() - begin
    slow.sync()
    assert queued < (time.perf_counter() - begin) / 2


@pytest.fixture
def sharing(write_add):
    """Two modules on streams of their own with one "a", all ones; the second adds it to its "b", at first zeros."""
    first, second = (rt.load(write_add((1, 256, 4096))) for _ in range(2))
    first.set_stream(rt.Stream())
    second.set_stream(rt.Stream())
    first.set_input("a", np.ones((1, 256, 4096), np.float32))
    second.set_input("b", np.zeros((1, 256, 4096), np.float32))
    second.set_dev_input("a", first.get_dev_input("a"))
    second.set_dev_output("total", second.get_dev_input("b"))
    return first, second


def test_a_host_write_waits_for_the_runs_of_every_module_that_shares_the_memory(sharing):
    first, second = sharing
    first.run(True)
    second.run(False, rt.RunOption(9))
    first.set_input("a", np.zeros((1, 256, 4096), np.float32))
    assert (second.get_dev_input("b").numpy() == 9).all()


def test_a_host_write_waits_for_queued_runs_though_their_module_has_other_memory_now(sharing):
    first, second = sharing
    second.run(False, rt.RunOption(9))
    second.set_dev_input("a", second.get_dev_input("b"))
    first.set_input("a", np.zeros((1, 256, 4096), np.float32))
    assert (second.get_dev_input("b").numpy() == 9).all()


def test_a_stream_may_be_dropped_with_work_in_it(slow):
    stream = rt.Stream()
    slow.set_stream(stream)
    slow.run(False, rt.RunOption(5))
    del stream
    slow.set_stream(None)
    slow.sync()


def test_synchronous_mode_from_the_environment(monkeypatch, attention_pair):
    monkeypatch.setenv("TCIM_XH2_USE_SYNC_MODE", "1")
    module = rt.load(attention_pair[1])
    with pytest.raises(rt.ArgumentError):
        module.run()  # current_length is 0


def test_a_read_ends_while_another_thread_queues_runs_without_end(slow):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            slow.run(False, rt.RunOption(3))
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        slow.get_output("total")
    finally:
        stop.set()
        thread.join()
        slow.sync()
