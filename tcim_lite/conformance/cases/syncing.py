"""Queued work, with random delays between the calls: order holds, reads and host writes wait."""

import random
import threading
import time

import numpy as np

from .. import under_test as rt
from ..checks import same_rows
from ..registry import each

TIER = "full"
SHAPE = (1, 256, 64)


def pause(rng):
    """Nothing, or up to two milliseconds."""
    if rng.random() < 0.5:
        time.sleep(rng.random() * 0.002)


@each("seed", range(8))
def test_what_is_read_is_what_was_queued_before(kit, seed):
    """total = a + b over two modules whose buffers are chained, against the same in numpy."""
    rng = random.Random(seed)
    first, second = (rt.load(kit.model("add_wide")) for _ in range(2))
    second.set_dev_input("a", first.get_dev_output("total"))
    a, b, c = (np.zeros(SHAPE, np.float32) for _ in range(3))
    total, result = a + b, a + c
    for _ in range(60):
        pause(rng)
        what = rng.randrange(8)
        value = np.full(SHAPE, rng.randrange(100), np.float32)
        if what == 0:
            first.set_input("a", value)
            a = value
        elif what == 1:
            first.set_input("b", value)
            b = value
        elif what == 2:
            second.set_input("b", value)
            c = value
        elif what == 3:
            first.run(False, rt.RunOption(rng.randrange(1, 4)))
            total = a + b
        elif what == 4:
            second.run()
            result = total + c
        elif what == 5:
            rng.choice([first, second]).sync()
        elif what == 6:
            np.testing.assert_array_equal(second.get_output("total").numpy(), result)
        else:
            np.testing.assert_array_equal(first.get_dev_output("total").numpy(), total)
    np.testing.assert_array_equal(second.get_output("total").numpy(), result)


@each("seed", range(4))
def test_streams_do_not_disturb_each_other(kit, seed):
    rng = random.Random(seed)
    modules = [rt.load(kit.model("add_wide")) for _ in range(4)]
    for number, module in enumerate(modules):
        module.set_stream(rt.Stream(bool(number % 2)))
        module.set_dev_output("total", module.get_dev_input("b"))
        module.set_input("a", np.full(SHAPE, number + 1, np.float32))
    counts = [0] * 4
    for _ in range(80):
        number = rng.randrange(4)
        modules[number].run()
        counts[number] += 1
        pause(rng)
        if rng.random() < 0.1:
            modules[number].sync()
    for number, module in enumerate(modules):
        module.sync()
        assert (module.get_dev_input("b").numpy() == counts[number] * (number + 1)).all()


@each("seed", range(4))
def test_a_sequence_survives_delays_and_no_sync(kit, seed):
    rng = random.Random(seed)
    prefill, decode = (rt.load(kit.model(f"attention_{stage}")) for stage in ("prefill", "decode"))
    kit.bind_caches(decode, prefill)
    x = kit.rows(20)
    alone = rt.load(kit.model("attention_decode"))
    expected = [kit.step(alone, x[:, i : i + 1], i)[0] for i in range(20)]
    at = 0
    while at < 20:
        count = min(rng.choice([1, 1, 2, 3, 4]), 20 - at)
        module = decode if count == 1 and rng.random() < 0.7 else prefill
        rows = np.zeros(module.get_input_info("input_1").shape, np.float32)
        rows[:, :count] = x[:, at : at + count]
        module.set_input("input_1", rows)
        module.set_input("valid_length", np.array([at], np.int32))
        pause(rng)
        module.set_input("current_length", np.array([count], np.int32))
        module.run()
        pause(rng)
        at += count
        if rng.random() < 0.5:
            same_rows(module.get_output("logits").numpy()[0, count - 1], expected[at - 1])
    same_rows(decode.get_dev_input(kit.caches[0]).numpy(), alone.get_dev_input(kit.caches[0]).numpy())


def test_many_threads_share_a_module_that_nobody_writes(kit):
    module = rt.load(kit.model("add_wide"))
    module.set_input("a", np.full(SHAPE, 2, np.float32))
    wrong = []

    def work():
        for _ in range(30):
            module.run()
            if not (module.get_output("total").numpy() == 2).all():
                wrong.append(True)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
