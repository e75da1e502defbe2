"""What the full tier does once, again and again with random seeds: walks, delays, threads, processes, limits."""

import gc
import random
import threading

import numpy as np

from .. import stress
from .. import under_test as rt
from ..checks import NotRunError, set_input_binds
from ..registry import each, seconds, tier
from . import corner_processes, limits, syncing

TIER = "stress"
DURATION = 60.0
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


def walk_for_a_while(kit, seed):
    walk(kit, random.Random(seed), 300)


def delays(kit, seed):
    """Queued work with random pauses between the calls, on one stream and on several."""
    syncing.test_what_is_read_is_what_was_queued_before(kit, seed)
    syncing.test_streams_do_not_disturb_each_other(kit, seed)
    syncing.test_a_sequence_survives_delays_and_no_sync(kit, seed)


def threads(kit, seed):
    """Threads with modules of their own and of one manager, and threads that share a module."""
    wrong = []
    manager = rt.WeightManager(0)

    def work(number):
        rng = random.Random(f"{seed} {number}")
        try:
            for _ in range(6):
                module = rt.load(kit.model(rng.choice(["linear_prefill", "linear_decode"])), rt.Option(manager))
                shape = module.get_input_info("x").shape
                if rng.random() < 0.5:
                    module.set_stream(rt.Stream())
                for _ in range(5):
                    value = rng.randrange(50)
                    module.set_input("x", np.full(shape, value, np.float32))
                    module.run()
                    syncing.pause(rng)
                    found = module.get_output("y").numpy()
                    np.testing.assert_allclose(found[0, 0], value * kit.reference_weight.sum(1), rtol=1e-5)
        except Exception as error:
            wrong.append(error)

    together([lambda number=number: work(number) for number in range(8)])
    if wrong:
        raise wrong[0]
    syncing.test_many_threads_share_a_module_that_nobody_writes(kit)


def processes(kit, seed):
    """Children by fork and by spawn, beside each other and, where the emulator allows it, with work in flight."""
    for method in ("fork", "spawn"):
        limits.test_processes_side_by_side_do_not_disturb_each_other(kit, kit.run_script, method)
    corner_processes.test_c20_children_load_models_with_managers_made_before_the_fork(kit, kit.run_script)
    if rt.emulates_on_cpu():
        corner_processes.test_c20_a_fork_after_loading_and_with_work_in_flight(kit, kit.run_script)


def full_device(kit, seed):
    """Threads that want more of a device than it has: each load succeeds or is refused, and all memory comes back."""
    device, path = kit.room_for_one, kit.model("linear_prefill")
    outcomes = []

    def work(number):
        rng = random.Random(f"{seed} {number}")
        for _ in range(20):
            try:
                module = rt.load(path, rt.Option(device))
                module.set_input("x", np.ones((1, 4, 8), np.float32))
                module.run(rng.random() < 0.5)
                outcomes.append(bool(module.get_output("y").numpy().any()))
                del module
            except rt.DeviceError:
                syncing.pause(rng)
            except Exception as error:
                outcomes.append(error)

    together([lambda number=number: work(number) for number in range(4)])
    assert outcomes, "nobody could load"
    assert all(outcome is True for outcome in outcomes), outcomes
    gc.collect()
    rt.load(path, rt.Option(device)).run(True)


def scarce_resources(kit, seed):
    """No descriptors, no address space, and nothing left behind by many loads."""
    limits.test_no_descriptors_left_is_an_error(kit, kit.run_script)
    limits.test_loading_and_dropping_leaves_no_descriptor_or_thread(kit, kit.run_script)
    if rt.is_emulator():
        limits.test_no_address_space_left_is_an_error(kit, kit.run_script)
        full_device(kit, seed)


def together(functions):
    """Runs them in threads of their own."""
    started = [threading.Thread(target=function) for function in functions]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


@each("what", [walk_for_a_while, delays, threads, processes, scarce_resources])
@seconds(stress.seconds(DURATION) + 300)
def test_again_and_again(kit, what):
    for seed in stress.seeds(DURATION):
        try:
            what(kit, seed)
        except NotRunError:
            raise
        except Exception as error:
            raise AssertionError(f"{what.__name__}, seed {seed}: again with --seed {seed} --seconds 1") from error
