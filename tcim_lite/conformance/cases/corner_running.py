"""C-13 and C-21: forms of run, and threads."""

import sys
import threading
import time
from contextlib import contextmanager

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only, refused
from ..registry import each


@each(
    "call",
    [
        lambda module: module.run(),
        lambda module: module.run(sync=False),
        lambda module: module.run(sync=True),
        lambda module: module.run(True),
        lambda module: module.run(False, rt.RunOption(3)),
        lambda module: module.run(sync=False, run_option=rt.RunOption(2)),
        lambda module: module.run(option=rt.RunOption(2)),
    ],
)
def test_c13_forms_of_run(add, call):
    add.set_input("a", np.full((2, 3), 3))
    assert call(add) is None
    assert add.sync() is None
    np.testing.assert_array_equal(add.get_output("total").numpy(), np.full((2, 3), 3))


def test_c13_many_runs_and_one_sync(add):
    add.set_dev_output("total", add.get_dev_input("b"))
    add.set_input("a", np.ones((2, 3)))
    for _ in range(30):
        add.run()
    add.sync()
    assert (add.get_dev_input("b").numpy() == 30).all()


def test_c13_modules_of_one_stream_run_in_the_order_of_the_calls(slow, kit):
    first, second = rt.load(kit.model("add")), rt.load(kit.model("add"))
    second.set_dev_input("a", first.get_dev_output("total"))
    for number in (3, 5, 7):
        for module, name in ((first, "b"), (second, "b"), (first, "a")):
            module.set_input(name, np.full((2, 3), number))
        slow.run(False, rt.RunOption(20))  # keeps the stream busy
        first.run()
        second.run()
        second.sync()
        assert (second.get_output("total").numpy() == 3 * number).all()


def test_c13_sync_waits_for_what_was_queued_before(add, slow):
    """What fails behind other work is known only when that is done."""
    emulator_only("rows that are not finite")
    for call in (lambda: (add.run(), add.sync()), lambda: add.run(True)):
        add.set_input("a", np.full((2, 3), np.nan))
        slow.run(False, rt.RunOption(50))
        with refused("ArgumentError", "NaN"):
            call()


def test_c13_rounds_repeat_the_graph(add):
    add.set_input("a", np.ones((2, 3)))
    add.set_dev_output("total", add.get_dev_input("b"))
    for sync in (False, True):
        add.run(sync, rt.RunOption(5))
    add.run(run_option=rt.RunOption(5))
    add.run(option=rt.RunOption(5))
    add.sync()
    assert (add.get_output("total").numpy() == 20).all()


def test_c13_rounds_of_a_stateless_graph_are_idempotent(linear_bytes):
    module = rt.load(linear_bytes)
    module.set_input("x", np.random.default_rng(0).standard_normal((1, 4, 8)))
    module.run(True)
    once = module.get_output("y").numpy()
    module.run(False, rt.RunOption(7))
    np.testing.assert_array_equal(module.get_output("y").numpy(), once)


def test_c13_rounds_of_an_llm_graph_rewrite_the_same_cache_rows(attention_pair, caches, rows, step):
    once, often = rt.load(attention_pair[0]), rt.load(attention_pair[0])
    expected = step(once, rows(3), 2)
    step(often, rows(3), 2)
    often.run(False, rt.RunOption(4))
    often.sync()
    np.testing.assert_array_equal(often.get_output("logits").numpy()[0, :3], expected)
    for name in caches:
        np.testing.assert_array_equal(often.get_dev_input(name).numpy(), once.get_dev_input(name).numpy())


@each("share", [True, False])
def test_c21_threads_load_and_run_at_once(linear_pair, share):
    manager = rt.WeightManager(0)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((1, 4 if number % 2 == 0 else 1, 8)).astype(np.float32) for number in range(8)]

    def compute(number, weights):
        module = rt.load(linear_pair[number % 2], rt.Option(weights))
        module.set_stream(rt.Stream())
        results = []
        for factor in range(1, 15):
            module.set_input("x", inputs[number] * factor)
            module.run()
            module.sync()
            results.append(module.get_output("y").numpy())
        return results

    serial = [compute(number, rt.WeightManager(0)) for number in range(8)]
    results: list = [None] * 8
    barrier = threading.Barrier(8)

    def work(number):
        barrier.wait()
        for _ in range(5):
            results[number] = compute(number, manager if share else rt.WeightManager(0))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        np.testing.assert_array_equal(results[number], serial[number])


@contextmanager
def ticking():
    """Reads a counter that another Python thread advances whenever it gets the interpreter.

    The thread that has it is never asked to give it away, so the counter stands still unless a call lets go of it.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    count, stop = 0, False

    def tick():
        nonlocal count
        while not stop:
            count += 1
            time.sleep(0.0002)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield lambda: count
    finally:
        stop = True
        sys.setswitchinterval(interval)
        thread.join()


CALLS = {
    "load": lambda model, path: rt.load(path),
    "run": lambda model, path: model.run(True, rt.RunOption(5)),
    "sync": lambda model, path: (model.run(False, rt.RunOption(5)), model.sync()),
    "set_input": lambda model, path: model.set_input("a", BIG),
    "get_output": lambda model, path: model.get_output("total"),
    "numpy": lambda model, path: model.get_dev_output("total").numpy(),
    "astype": lambda model, path: model.get_dev_output("total").astype(np.float16),
}
BIG = np.zeros((1, 256, 4096))


@each("call", CALLS)
def test_c21_python_goes_on_while_a_call_works(slow, kit, call):
    path = kit.model("add_slow")
    with ticking() as ticks:
        for _ in range(1000):  # one call may be over before the other thread wakes up
            before = ticks()
            CALLS[call](slow, path)
            if ticks() > before:
                return
    raise AssertionError(f"{call} never let another thread run")


def test_c21_another_thread_may_sync(slow):
    slow.set_input("a", np.ones((1, 256, 4096)))
    slow.run(False, rt.RunOption(20))
    seen = []

    def wait():
        slow.sync()
        seen.append((slow.get_output("total").numpy() == 1).all())

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4
