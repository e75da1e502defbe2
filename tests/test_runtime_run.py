"""run, sync, streams and the errors of queued work."""

import gc
import threading
import time

import numpy as np
import pytest

import tcim_lite.runtime as rt


@pytest.fixture
def add(add_model):
    return rt.load(add_model)


@pytest.fixture
def slow(write_add):
    """A module whose run takes milliseconds."""
    return rt.load(write_add((1, 256, 4096)))


@pytest.fixture
def attention(attention_pair):
    module = rt.load(attention_pair[1])
    module.set_input("current_length", 1)
    return module


def test_run_option_is_checked():
    for bad in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            rt.RunOption(bad)
    for bad in (1.5, True, "2"):
        with pytest.raises(TypeError, match="expected an int"):
            rt.RunOption(bad)


def test_arguments_of_another_type_are_refused(add):
    for call in (lambda: add.run(False, 3), lambda: add.set_stream(1), lambda: add.get_output("total", np.float32)):
        with pytest.raises(TypeError, match=r"expected a tcim_lite\.runtime\."):
            call()


def test_run_queues_and_returns(slow):
    slow.run(True)
    begin = time.perf_counter()
    for _ in range(3):
        slow.run(False, rt.RunOption(100))
    queued = time.perf_counter() - begin
    slow.sync()
    assert queued < (time.perf_counter() - begin) / 2


def test_reads_and_host_writes_wait_for_queued_runs(slow):
    shape = (1, 256, 4096)
    slow.set_input("a", np.ones(shape, np.float32))
    slow.run(False, rt.RunOption(10))
    slow.set_input("a", np.zeros(shape, np.float32))
    assert (slow.get_dev_output("total").numpy() == 1).all()
    slow.run(False, rt.RunOption(10))
    assert not slow.get_output("total").numpy().any()
    slow.set_dev_output("total", slow.get_dev_input("b"))
    slow.set_input("a", np.ones(shape, np.float32))
    slow.run(False, rt.RunOption(7))
    host = slow.get_dev_input("b").to_host()
    assert (host.numpy() == 7).all()


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


def test_modules_without_a_stream_run_in_order(write_add):
    first, second = rt.load(write_add((1, 256, 512))), rt.load(write_add((1, 256, 512)))
    first.set_dev_output("total", second.get_dev_input("a"))
    for value in range(1, 30):
        first.set_input("a", np.full((1, 256, 512), value, np.float32))
        first.run()
        second.run()
        assert (second.get_output("total").numpy() == value).all()


def test_streams_can_be_changed_between_runs(slow):
    slow.set_dev_output("total", slow.get_dev_input("b"))
    slow.set_input("a", np.ones((1, 256, 4096)))
    streams = [rt.Stream(), rt.Stream(True), None]
    for i in range(12):
        slow.set_stream(streams[i % 3])
        slow.run()
    assert (slow.get_output("total").numpy() == 12).all()


def test_a_stream_may_be_dropped_with_work_in_it(slow):
    stream = rt.Stream()
    slow.set_stream(stream)
    slow.run(False, rt.RunOption(5))
    del stream
    slow.set_stream(None)
    slow.sync()


def test_a_module_may_be_dropped_with_work_queued(slow):
    output = slow.get_dev_output("total")
    slow.set_input("a", np.ones((1, 256, 4096)))
    slow.run(False, rt.RunOption(5))
    del slow
    gc.collect()
    assert (output.numpy() == 1).all()


@pytest.mark.parametrize("read", ["sync", "run", "get_output"])
def test_errors_of_queued_work_are_raised_once(attention, read):
    attention.set_input("current_length", 0)
    attention.run()
    time.sleep(0.05)
    with pytest.raises(rt.ArgumentError):
        attention.get_output("logits") if read == "get_output" else getattr(attention, read)()
    attention.set_input("current_length", 1)
    attention.run()
    attention.sync()
    attention.get_output("logits")


def test_an_error_of_a_synchronous_run_is_raised_by_it(attention):
    attention.set_input("valid_length", -1)
    with pytest.raises(rt.ArgumentError) as caught:
        attention.run(True)
    assert caught.value.status == rt.Status.INVALID_ARGUMENT
    attention.set_input("valid_length", 0)
    attention.run(True)


def test_non_finite_live_rows_are_refused(attention):
    attention.set_input("input_1", np.full((1, 1, 128), np.inf))
    with pytest.raises(rt.ArgumentError):
        attention.run(True)


def test_synchronous_mode_from_the_environment(monkeypatch, attention_pair):
    monkeypatch.setenv("TCIM_XH2_USE_SYNC_MODE", "1")
    module = rt.load(attention_pair[1])
    with pytest.raises(rt.ArgumentError):
        module.run()  # current_length is 0


def test_released_modules_say_so(add):
    handle = add.get_dev_output("total")
    for verb in (add.release, add.close, add.destroy, add.unload):
        verb()
    for call in (add.run, add.sync, add.get_num_inputs, lambda: add.get_output("total"), lambda: add.set_input("a", 1)):
        with pytest.raises(rt.StateError, match="released"):
            call()
    assert handle.numpy().shape == (2, 3)


def test_several_threads_may_share_a_module(add):
    add.set_input("a", np.ones((2, 3)))
    failures = []

    def work():
        try:
            for _ in range(200):
                add.run()
                add.set_input("a", np.ones((2, 3)))
                assert (add.get_output("total").numpy() == 1).all()
                add.sync()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


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
