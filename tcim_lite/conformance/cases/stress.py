"""Random calls against a model of the contract, and a soak; TCIM_CONFORMANCE_SECONDS says for how long each (60)."""

import os
import random
import time

import numpy as np

from .. import under_test as rt
from ..checks import set_input_binds
from ..registry import each, seconds, tier

TIER = "stress"
SECONDS = float(os.environ.get("TCIM_CONFORMANCE_SECONDS", "60"))
SHAPE = (4, 5)
CALLS = ("write", "write", "run", "run", "read", "read", "take", "bind", "bind", "zero", "copy", "bad")
SLOTS = ("a", "b", "total")


class Model:
    """What modules of `add_4x5` hold, in numpy: buffers are arrays, a slot names the one it is bound to."""

    def __init__(self, kit):
        self.modules = [rt.load(kit.model("add_4x5")) for _ in range(3)]
        self.slots = [{name: np.zeros(SHAPE, np.float32) for name in SLOTS} for _ in self.modules]
        self.tensors, self.held, self.done = [], [], []

    def step(self, rng):
        """One random call on both sides."""
        number = rng.randrange(len(self.modules))
        module, slots = self.modules[number], self.slots[number]
        name = rng.choice(SLOTS)
        call = rng.choice(CALLS)
        self.done.append((call, number, name))
        if call == "write" and name != "total":
            values = np.array([rng.randrange(-50, 50) for _ in range(20)], np.float32).reshape(SHAPE)
            module.set_input(name, values)
            slots[name][:] = values
        elif call == "run":
            module.run(rng.random() < 0.3)
            slots["total"][:] = slots["a"] + slots["b"]
            if np.abs(slots["total"]).max() > 1e6:  # stays exact in float32
                slots["total"][:] = 0
                module.get_dev_output("total").set_zero()
        elif call == "read":
            found = module.get_output("total") if name == "total" else module.get_dev_input(name)
            np.testing.assert_array_equal(found.numpy(), slots[name], err_msg=str(self.done[-40:]))
        elif call == "take":
            tensor = module.get_dev_output(name) if name == "total" else module.get_dev_input(name)
            self.tensors = [*self.tensors[-5:], tensor]
            self.held = [*self.held[-5:], slots[name]]
        elif call == "bind" and self.tensors:
            index = rng.randrange(len(self.tensors))
            if name == "total":
                module.set_dev_output(name, self.tensors[index])
            else:
                calls = (module.set_input, module.set_dev_input) if set_input_binds() else (module.set_dev_input,)
                rng.choice(calls)(name, self.tensors[index])
            slots[name] = self.held[index]
        elif call == "zero" and self.tensors:
            index = rng.randrange(len(self.tensors))
            self.tensors[index].set_zero()
            self.held[index][:] = 0
        elif call == "copy" and self.tensors:
            source, target = rng.randrange(len(self.tensors)), rng.randrange(len(self.tensors))
            self.tensors[source].copy_to(self.tensors[target])
            self.held[target][:] = self.held[source]
        elif call == "bad":
            for wrong in (lambda: module.set_input("x", [1]), lambda: module.set_input(name, np.zeros(3))):
                try:
                    wrong()
                except (RuntimeError, ValueError, KeyError):
                    continue
                raise AssertionError("a wrong call was not refused")

    def check(self):
        """Compares everything."""
        for module, slots in zip(self.modules, self.slots, strict=True):
            for name in SLOTS:
                found = module.get_output(name) if name == "total" else module.get_dev_input(name)
                np.testing.assert_array_equal(found.numpy(), slots[name], err_msg=str(self.done[-40:]))
        for tensor, held in zip(self.tensors, self.held, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), held, err_msg=str(self.done[-40:]))


def walk(kit, rng, steps):
    model = Model(kit)
    for _ in range(steps):
        model.step(rng)
    model.check()


@each("seed", range(20))
@tier("full")
def test_a_random_walk_agrees_with_the_model(kit, seed):
    walk(kit, random.Random(seed), 200)


@seconds(SECONDS + 60)
def test_random_walks_agree_with_the_model(kit):
    end, seed = time.monotonic() + SECONDS, random.SystemRandom().randrange(1 << 30)
    while time.monotonic() < end:
        seed += 1
        try:
            walk(kit, random.Random(seed), 300)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


SOAK = """
    import gc, multiprocessing, threading, time

    def cycle(paths, number):
        manager = rt.WeightManager(0)
        prefill = rt.load(paths[0], rt.Option(manager))
        names = [prefill.get_input_name(i) for i in range(prefill.get_num_inputs())]
        caches = [name for name in names if "cache" in name]
        decode = rt.load(paths[1], rt.Option(manager).set_dummy_tensors(caches))
        for name in caches:
            decode.set_input(name, prefill.get_dev_input(name))
        if number % 3 == 0:
            prefill.set_stream(rt.Stream())
        rows = np.random.default_rng(0).standard_normal(prefill.get_input_info("input_1").shape).astype(np.float16)
        prefill.set_input("input_1", rows)
        prefill.set_input("current_length", rows.shape[1])
        prefill.run()
        decode.set_input("current_length", 1)
        total = prefill.get_output("logits").numpy().astype(np.float64).sum()
        for position in range(4):
            decode.set_input("input_1", rows[:, position : position + 1])
            decode.set_input("valid_length", rows.shape[1] + position)
            decode.run()
            total += decode.get_output("logits").numpy().astype(np.float64).sum()
        return total

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(paths, seconds, queue):
        expected, failures, counts = cycle(paths, 0), [], [0] * 8

        def loop(index, end):
            while time.monotonic() < end:
                counts[index] += 1
                if cycle(paths, counts[index]) != expected:
                    failures.append(index)

        def threads(end):
            started = [threading.Thread(target=loop, args=(index, end)) for index in range(8)]
            [thread.start() for thread in started]
            [thread.join() for thread in started]

        threads(time.monotonic() + seconds / 4)
        before = resident()
        threads(time.monotonic() + seconds * 3 / 4)
        queue.put((failures, sum(counts), resident() - before))

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        arguments = (sys.argv[2:4], float(sys.argv[1]), queue)
        processes = [context.Process(target=work, args=arguments) for _ in range(2)]
        [process.start() for process in processes]
        for _ in processes:
            failures, count, growth = queue.get(timeout=float(sys.argv[1]) * 2 + 60)
            assert not failures and count > 0, (failures, count)
            print(growth)
        for process in processes:
            process.join()
            assert process.exitcode == 0
"""


@seconds(SECONDS * 2 + 120)
def test_two_processes_of_eight_threads_soak_in_bounded_memory(kit):
    paths = kit.model("llm_prefill"), kit.model("llm_decode")
    printed = kit.run_script(SOAK, SECONDS, *paths, seconds=SECONDS * 2 + 100)
    for growth in map(int, printed.split()):
        kit.measure("growth of a process over three quarters of the soak, MiB", growth / 2**20, 24)
