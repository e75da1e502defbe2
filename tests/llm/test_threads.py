"""Eight Python threads with a model each (C-21)."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tcim_lite.runtime as rt


@pytest.mark.parametrize("share", [True, False])
def test_eight_threads_generate_what_one_does(tiny_package, share):
    """Each with its own prefill and decode of one package; logits equal bit for bit."""
    package = tiny_package()
    table = package.embedding(192, 331)

    def logits(number, manager):
        prefill = rt.load(package.prefill_path, rt.Option(manager))
        caches = [name for name in map(prefill.get_input_name, range(prefill.get_num_inputs())) if "cache" in name]
        decode = rt.load(package.decode_path, rt.Option(manager).set_dummy_tensors(caches))
        for name in caches:
            decode.set_input(name, prefill.get_dev_input(name))
        for module in (prefill, decode):
            module.set_stream(rt.Stream())
        length = prefill.get_input_info("input_1").shape[1]
        prompt = [(7 * number + i) % 331 for i in range(5 + number)]
        rows = np.zeros((1, length, 192), table.dtype)
        rows[0, : len(prompt)] = table[prompt]
        prefill.set_input("input_1", rows)
        prefill.set_input("current_length", len(prompt))
        prefill.run()
        prefill.sync()
        results = [prefill.get_output("logits").numpy()]
        decode.set_input("current_length", 1)
        for position in range(len(prompt), len(prompt) + 6):
            decode.set_input("input_1", table[results[-1].argmax()])
            decode.set_input("valid_length", position)
            decode.run()
            decode.sync()
            results.append(decode.get_output("logits").numpy())
        return results

    serial = [logits(number, rt.WeightManager(0)) for number in range(8)]
    manager = rt.WeightManager(0)
    barrier = threading.Barrier(8)

    def work(number):
        barrier.wait()
        for _ in range(2):
            results = logits(number, manager if share else rt.WeightManager(0))
            for result, expected in zip(results, serial[number], strict=True):
                np.testing.assert_array_equal(result, expected)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))  # raises what a thread raised
