"""Whatever is dropped, in whatever order and wherever it runs: no crash, no leak, no deadlock, the same numbers."""

import gc
import random
import threading

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import _core

CACHES = ["model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"]


def memory():
    gc.collect()
    return _core.device_memory_used(0)


def in_threads(count, work):
    """Runs work(number) in so many threads and raises what one of them raised."""
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("seed", range(4))
def test_objects_may_be_dropped_in_any_order(linear_pair, attention_pair, add_model, seed):
    """Sixty steps of making, using and dropping modules, managers, options, streams, tensors and arrays."""
    before = memory()
    rng = random.Random(seed)
    held = []

    def of(kind):
        return [item for item in held if isinstance(item, kind)]

    def make():
        kind = rng.randrange(6)
        if kind == 0:
            held.append(rt.WeightManager(rt.DevManager([0])))
        elif kind == 1:
            held.append(rt.Stream(rng.random() < 0.5))
        else:
            path = rng.choice([*linear_pair, *attention_pair, add_model])
            manager = rng.choice([*of(rt.WeightManager), rt.WeightManager(0)])
            option = rt.Option(manager).set_dummy_tensors(CACHES if path == attention_pair[1] else [])
            held.extend([option, rt.load(path, option)])

    def use():
        module = rng.choice(of(rt.Module))
        module.set_stream(rng.choice([*of(rt.Stream), None]))
        names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
        if CACHES[0] in names:
            module.set_input("current_length", 1)
            for name in CACHES:
                owners = [m for m in of(rt.Module) if m.get_input_name(0) == "input_1" and m is not module]
                tensors = [
                    tensor for tensor in (m.get_dev_input(name) for m in owners) if "no storage" not in repr(tensor)
                ]
                module.set_input(name, rng.choice([*tensors, np.zeros((1, 2, 32, 64))]))
        module.run(False, rt.RunOption(rng.randrange(1, 4)))
        output = module.get_output_name(0)
        take = rng.choice([module.get_output, module.get_dev_output])(output)
        held.extend(rng.choice([[take], [take, take.numpy()], [module.get_dev_input(names[0])], []]))

    for _ in range(60):
        action = rng.choice([make, use, "drop", "drop"])
        if action == "drop" and held:
            del held[rng.randrange(len(held))]
        elif action == make or (action == use and not of(rt.Module)):
            make()
        elif action == use:
            use()
    rng.shuffle(held)
    while held:
        held.pop()
    assert memory() == before


def test_the_last_reference_may_go_in_another_thread_while_runs_are_queued(write_add):
    before = memory()
    path = write_add((1, 256, 512))
    for _ in range(10):
        module = rt.load(path)
        module.set_input("a", np.ones((1, 256, 512)))
        module.set_stream(rt.Stream())
        module.run(False, rt.RunOption(20))
        holders = [[module, module.get_dev_output("total")] for _ in range(4)]
        del module
        in_threads(4, lambda number, holders=holders: holders[number].clear())
    assert memory() == before


def test_a_module_released_by_one_thread_is_an_error_in_the_others(write_add):
    module = rt.load(write_add((1, 256, 64)))
    started = threading.Barrier(4)

    def work(number):
        started.wait()
        if number == 0:
            for _ in range(5):
                module.run(True)
            module.release()
            return

        def use():
            while True:
                module.set_input("a", np.ones((1, 256, 64)))
                module.run()
                module.get_output("total")
                module.sync()

        with pytest.raises(rt.StateError, match="released"):
            use()

    in_threads(4, work)
